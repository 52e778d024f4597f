"""Whether the C++ compiler can do what this processor can: known per machine, not per run.

Before its first kernel, torch compiles and loads a small library for every instruction set, which
takes longer than most programs' kernels. It keeps them in its cache, and a run with a private cache
would have to compile them all again. An answer that was yes is kept in the tool's own folder: for
the same code, flags, compiler, processor and torch. A compiler that says no is always asked again.
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

# Tells torch that the compiler can do what the processor can.
_TRUSTED = "TORCHINDUCTOR_VEC_ISA_OK"
# The question whose answer is yes if all others were answered so.
EVERYTHING = "everything"


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """For a process without the scope: nothing is asked, if every answer is known to be yes."""
    return {_TRUSTED: "1"} if _TRUSTED not in environment and all_known(environment) else {}


def all_known(environment: Mapping[str, str]) -> bool:
    """Whether every question was answered with yes."""
    compiler = environment.get("CXX", "g++")
    kept = answer_file(compiler, EVERYTHING, path=environment.get("PATH"))
    return kept is not None and kept.exists()


def answer_file(compiler: str, question: str, path: str | None = None) -> Path | None:
    """The file that is there if the answer is yes; None if it is not known who is asked."""
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
    """The processor's name and what it can do; a home folder may be shared by many machines."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        wanted = ("model name", "flags", "Features")
        return "\n".join(sorted({line.strip() for line in file if line.startswith(wanted)}))
    return ""


def keep_yes(file: Path | None) -> None:
    """Keep an answer; in a folder that cannot be written to, it is asked for again next time."""
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch()
