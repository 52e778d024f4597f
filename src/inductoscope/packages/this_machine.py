"""The machine that a package is to run on, told without importing torch or loading anything."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 20


@dataclass(frozen=True)
class LocalMachine:
    """What decides whether a package can run here."""

    platform: str  # as sys.platform calls it
    processor: str  # as platform.machine() calls it
    processor_flags: frozenset[str]
    c_library: str  # the version of glibc; empty for another C library
    torch_folder: Path | None
    torch_version: str
    # Name and compute capability; None where nvidia-smi does not say.
    gpus: tuple[tuple[str, str], ...] | None
    loaded_first: tuple[Path, ...] = ()  # libraries that the user loads before a package

    @property
    def torch_libraries(self) -> tuple[Path, ...]:
        """The libraries of torch that a package may be linked with."""
        if self.torch_folder is None:
            return ()
        return tuple(sorted((self.torch_folder / "lib").glob("lib*.so*")))

    @property
    def torch_devices(self) -> tuple[str, ...]:
        """The kinds of device that the installed torch was built for."""
        kinds = {"libtorch_cuda.so": "cuda", "libtorch_hip.so": "cuda", "libtorch_xpu.so": "xpu"}
        names = {library.name for library in self.torch_libraries}
        return ("cpu", *sorted({kind for name, kind in kinds.items() if name in names}))

    @property
    def has_rocm(self) -> bool:
        """Whether the installed torch calls AMD GPUs `cuda`."""
        return any(library.name == "libtorch_hip.so" for library in self.torch_libraries)


def look_at_this_machine(loaded_first: tuple[Path, ...] = ()) -> LocalMachine:
    """Look at files and ask nvidia-smi, where it is installed."""
    folder = _torch_folder()
    return LocalMachine(
        platform=sys.platform,
        processor=platform.machine(),
        processor_flags=_flags(),
        c_library=_c_library(),
        torch_folder=folder,
        torch_version=_torch_version(folder),
        gpus=_gpus(),
        loaded_first=loaded_first,
    )


def _torch_folder() -> Path | None:
    found = importlib.util.find_spec("torch")
    return Path(found.origin).parent if found is not None and found.origin else None


def _torch_version(folder: Path | None) -> str:
    if folder is None:
        return ""
    try:
        text = (folder / "version.py").read_text("utf-8")
    except OSError:
        return ""
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", text, re.MULTILINE)
    return found.group(1) if found else ""


def _flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


def _c_library() -> str:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return ""
    return version if name == "glibc" else ""


def _gpus() -> tuple[tuple[str, str], ...] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    rows = (line.rpartition(",") for line in done.stdout.splitlines())
    return tuple((name.strip(), capability.strip()) for name, comma, capability in rows if comma)
