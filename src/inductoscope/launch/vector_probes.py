"""Cached answers to torch's vector ISA probes of the C++ compiler, kept per machine.

Before its first kernel, torch compiles and loads a small library for every instruction set, which
takes longer than most programs' kernels. It keeps them in its cache, and a run with a private cache
would have to compile them all again. Successful probes are kept in the tool's own folder, keyed by
code, flags, compiler, processor and torch. Failed probes are always repeated.
`inside.private_cache` has torch use the answers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

# The variable that makes torch trust the compiler with all instruction sets.
_TRUSTED = "TORCHINDUCTOR_VEC_ISA_OK"
# The pseudo-probe that succeeds if all others have.
EVERYTHING = "everything"


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that skips the probes of a process if all are known to succeed."""
    return {_TRUSTED: "1"} if _TRUSTED not in environment and all_known(environment) else {}


def all_known(environment: Mapping[str, str]) -> bool:
    compiler = environment.get("CXX", "g++")
    kept = answer_file(compiler, EVERYTHING, path=environment.get("PATH"))
    return kept is not None and kept.exists()


def answer_file(compiler: str, question: str, path: str | None = None) -> Path | None:
    """Return the marker file of a successful probe; None if the compiler is not found."""
    place = shutil.which(compiler, path=path) if compiler else None
    if place is None:
        return None
    import importlib.metadata

    with contextlib.suppress(OSError, importlib.metadata.PackageNotFoundError):
        found = os.stat(place)
        torch = importlib.metadata.version("torch")
        parts = (os.path.realpath(place), found.st_mtime_ns, found.st_size, torch, _processor())
        text = "\0".join(map(str, (*parts, question)))
        return _folder() / hashlib.sha256(text.encode()).hexdigest()[:32]
    return None


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(cache) / "inductoscope" / "vector-probes"


@functools.cache
def _processor() -> str:
    """Return the CPU's name and flags: several machines may share a home folder."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        wanted = ("model name", "flags", "Features")
        return "\n".join(sorted({line.strip() for line in file if line.startswith(wanted)}))
    return ""


def keep_yes(file: Path | None) -> None:
    """Store a successful probe; if the folder is read-only, the next run probes again."""
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch()
