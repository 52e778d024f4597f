"""The machine, the compilers on it and the cache folder: what can be told without torch."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.processes.cores import own_cores

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_SECONDS_FOR_A_VERSION = 20


@dataclass(frozen=True)
class Machine:
    """The operating system and the CPU."""

    system: str
    cpu: str
    cores: int


@dataclass(frozen=True)
class Tool:
    """A program that Inductor or Triton starts."""

    path: str
    version: str | None  # None where it does not start


@dataclass(frozen=True)
class Cache:
    """The folder in which Inductor keeps what it compiled."""

    path: str
    private: bool  # chosen for this run; otherwise all runs of this user share it


def read_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(system=platform.platform(), cpu=_cpu(), cores=len(own_cores()))


def find_tool(candidates: Sequence[str]) -> Tool | None:
    """The first of `candidates` that is there, asked for its version; None where none is."""
    for candidate in candidates:
        # CXX may carry options, or a launcher such as ccache, before the compiler.
        words = shlex.split(candidate)
        path = shutil.which(words[0]) if words else None
        if path is not None:
            return Tool(shlex.join([path, *words[1:]]), _version([path, *words[1:]]))
    return None


def find_cache(default: str | None) -> Cache | None:
    """The cache folder in use: the one that was chosen, else torch's `default`."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        path = os.path.abspath(chosen)
        return Cache(path, private=path != default)
    return Cache(default, private=False) if default else None


def _cpu() -> str:
    """The name of the CPU where the system tells it, and the architecture."""
    machine = platform.machine()
    name = _cpu_name() or platform.processor()
    return f"{name} ({machine})" if name and name != machine else machine


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def _version(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS_FOR_A_VERSION,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _version_line(done.stdout) if done.returncode == 0 else None


def _version_line(text: str) -> str | None:
    """The line that tells: the one with "release" (ptxas), else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "release" in line]
    return next(iter(telling or lines), None)
