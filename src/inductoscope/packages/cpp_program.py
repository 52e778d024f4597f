"""A C++ program that loads a package without Python, built here against torch's own headers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.packages.execution import child_environment
from inductoscope.packages.fitting import LocalMachine
from inductoscope.processes.children import ChildLimits, run_program

_SOURCE = Path(__file__).with_name("serve.cpp")
_COMPILERS = ("g++", "c++", "clang++")
_MOST_MESSAGE = 2_000


@dataclass(frozen=True)
class BuiltProgram:
    """The program, or why there is none."""

    path: Path | None
    problem: str = ""


@dataclass(frozen=True)
class ServerRun:
    """How one run of the program ended."""

    events: tuple[Mapping[str, Any], ...]
    exit_code: int | None  # None: its time was up
    printed: str

    @property
    def samples(self) -> list[Mapping[str, int]]:
        """What it measured between calls."""
        found = [event for event in self.events if event.get("event") == "sample"]
        return [{k: int(v) for k, v in event.items() if k != "event"} for event in found]

    def event(self, name: str) -> Mapping[str, Any] | None:
        """The last event of this name."""
        found = [event for event in self.events if event.get("event") == name]
        return found[-1] if found else None


def build_program(here: LocalMachine, folder: Path, limits: ChildLimits) -> BuiltProgram:
    """Compile it with the compiler that Inductor would use."""
    compiler = installed_compiler()
    if compiler is None:
        return BuiltProgram(None, "no C++ compiler is installed (set CXX, or install g++)")
    if here.torch_folder is None:
        return BuiltProgram(None, "torch is not installed")
    include, libraries = here.torch_folder / "include", here.torch_folder / "lib"
    if not (include / "torch").is_dir():
        return BuiltProgram(None, f"torch's headers are not in {include}")
    target = folder / "serve"
    names = [path.name for path in here.torch_libraries]
    optional = [f"-l{name}" for name in ("torch_cuda", "c10_cuda") if f"lib{name}.so" in names]
    command = [
        *compiler,
        *("-O1", "-std=c++20", "-w", str(_SOURCE), "-o", str(target)),
        *(f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", f"-L{libraries}"),
        *("-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", *optional),
        *(f"-Wl,-rpath,{libraries}", "-lpthread", "-ldl"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limits.start_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return BuiltProgram(None, f"the compiler did not end within {limits.start_seconds:g} s")
    if done.returncode != 0:
        return BuiltProgram(None, f"the compiler failed: {first_error(done.stderr)}")
    return BuiltProgram(target)


def installed_compiler() -> list[str] | None:
    """The words that call it. CXX may carry options, or a launcher such as ccache."""
    for candidate in (os.environ.get("CXX", ""), *_COMPILERS):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    return None


def every_compiler() -> list[str]:
    """All C++ compilers on PATH, in the order in which they are found."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = (shutil.which(name, path=folder) for name in _COMPILERS for folder in folders if folder)
    return list(dict.fromkeys(path for path in found if path))


def first_error(text: str) -> str:
    """What a compiler says first."""
    lines = [line for line in text.splitlines() if "error" in line or "No space" in line]
    return (lines or text.strip().splitlines() or ["it said nothing"])[0][:_MOST_MESSAGE]


def call_program(
    program: Path,
    words: Sequence[str],
    limits: ChildLimits,
    folder: Path,
    variables: Mapping[str, str],
) -> ServerRun:
    """Run it under limits; each of its lines is an event."""
    environment = {**os.environ, **child_environment(folder), **variables}
    code = run_program([str(program), *words], limits, folder, environment=environment)
    lines = (folder / "stdout").read_text("utf-8", "replace").splitlines()
    events = [event for line in lines if (event := _event(line)) is not None]
    printed = (folder / "stderr").read_text("utf-8", "replace")[-20_000:]
    return ServerRun(tuple(events), code, printed)


def _event(line: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
