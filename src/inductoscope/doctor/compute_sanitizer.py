"""NVIDIA's compute-sanitizer, run on a program that loses the GPU.

It reports the kernel, the line and the distance to the nearest allocation. It is used if it is
installed, under a time limit, because a program may run many times slower under it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.processes.children import start_group
from inductoscope.processes.ending import end_child

_TOOL = "compute-sanitizer"
_SECONDS = 120.0
_ACCESS = re.compile(
    r"Invalid __\w+__ (?P<how>read|write|atomic) of size (?P<size>\d+) bytes\s*"
    r"=*\s*at (?P<kernel>[^\s+]+)\+0x[0-9a-f]+(?: in (?P<file>\S+?):(?P<line>\d+))?"
)
_DISTANCE = re.compile(
    r"and is ([\d,]+ bytes \w+ the nearest allocation at \S+ of size [\d,]+ bytes)"
)


@dataclass(frozen=True)
class InvalidAccess:
    """The first access out of bounds."""

    kernel: str
    place: str
    text: str


@dataclass(frozen=True)
class MemoryCheck:
    """The invalid access, or why it is unknown."""

    access: InvalidAccess | None = None
    why_not: str = ""


def check_memory(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ
) -> MemoryCheck:
    """Run a command under compute-sanitizer and parse its first report."""
    tool = _find_tool(environment)
    if tool is None:
        return MemoryCheck(why_not=f"{_TOOL} is not installed; it could name the line")
    arguments = [tool, "--tool", "memcheck", "--print-limit", "1"]
    child = start_group(
        [*arguments, *command],
        environment={**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        folder=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        output, _ = child.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return MemoryCheck(why_not=f"{_TOOL} did not end within {_SECONDS:.0f} s")
    finally:
        end_child(child)
    text = output.decode("utf-8", "replace")
    access = read_report(text)
    return MemoryCheck(access, "" if access else _why_not(text))


def check_script(script: Path, environment: Mapping[str, str]) -> MemoryCheck:
    return check_memory([sys.executable, str(script)], script.parent, environment)


def read_report(text: str) -> InvalidAccess | None:
    """Parse the first invalid access in the output of compute-sanitizer."""
    found = _ACCESS.search(text)
    if found is None:
        return None
    distance = _DISTANCE.search(text, found.end())
    place = f"{found['file']}:{found['line']}" if found["file"] else ""
    what = f"{found['how']} of {found['size']} bytes out of bounds"
    at = f" at {place}" if place else ""
    far = f", {distance[1]}" if distance else ""
    return InvalidAccess(found["kernel"], place, f"kernel {found['kernel']}{at}: {what}{far}")


def _why_not(text: str) -> str:
    if "ERROR SUMMARY" in text:
        return f"{_TOOL} reports no access out of bounds"
    first = next((line.strip("= ") for line in text.splitlines() if line.strip("= ")), "nothing")
    return f"{_TOOL} could not run the program: {first[:200]}"


def _find_tool(environment: Mapping[str, str]) -> str | None:
    places = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [str(Path(place) / "bin") for place in (*places, "/usr/local/cuda") if place]
    path = os.pathsep.join([environment.get("PATH", ""), *folders])
    return shutil.which(_TOOL, path=path)
