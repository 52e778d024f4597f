"""A private cache for one run, so that every stage runs and the user's cache stays unchanged.

torch keeps precompiled C++ headers in its default cache folder whatever TORCHINDUCTOR_CACHE_DIR
says. Building one takes longer than most kernels, so those that the user's cache has are read from
there through links, and new ones are written into the private cache. What torch asks the compiler
about the processor is kept apart from any cache, see `vector_probes`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Tells the scope inside a process which private cache to use.
PRIVATE_CACHE_VARIABLE = "INDUCTOSCOPE_PRIVATE_CACHE"

_CODECACHE = "torch._inductor.codecache"
HEADERS = "precompiled_headers"
TEMPORARY = "tmp"


def environment(folder: Path) -> dict[str, str]:
    """Variables that make torch and Triton use the private cache in `folder`."""
    return {
        PRIVATE_CACHE_VARIABLE: str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def without_scope(folder: Path) -> dict[str, str]:
    """Variables for a process without the scope: its headers are in the private cache too.

    torch puts them under the folder for temporary files; they are found there through a link.
    What the compiler can do for the processor is not asked again where it is known.
    """
    import getpass

    temporary = folder / TEMPORARY
    owner = temporary / f"torchinductor_{getpass.getuser()}"
    owner.mkdir(parents=True, exist_ok=True)
    (folder / HEADERS).mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (owner / HEADERS).symlink_to(folder / HEADERS)
    return {"TMPDIR": str(temporary), **probe_variables(os.environ)}


def on_import() -> dict[str, Callable[[], None]]:
    """What to do in a process with a private cache when it imports modules of torch."""
    folder = os.environ.get(PRIVATE_CACHE_VARIABLE)
    if not folder:
        return {}
    return {
        _CODECACHE: lambda: _redirect_headers(Path(folder) / HEADERS),
        VEC_ISA_MODULE: remember_answers,
    }


def _redirect_headers(private: Path) -> None:
    module = sys.modules[_CODECACHE]
    shared = getattr(module, "_HEADER_DIR", None)
    if shared is None:
        return  # This torch has no precompiled headers.
    private.mkdir(parents=True, exist_ok=True)
    _link_existing(Path(shared), private)
    module._HEADER_DIR = str(private)  # type: ignore[attr-defined]
    module._HEADER_LOCK_DIR = str(private / "locks")  # type: ignore[attr-defined]


def _link_existing(shared: Path, private: Path) -> None:
    if not shared.is_dir():
        return
    for header in shared.iterdir():
        if header.is_file():
            with contextlib.suppress(FileExistsError):
                (private / header.name).symlink_to(header)


# --------------------------------------------------------------------------------------------------
# What the C++ compiler can do for this processor, asked once per machine rather than once per
# run.
#
# Before its first kernel, torch compiles and loads a small library for every instruction set,
# which takes longer than most programs' kernels. It keeps them in its cache, and a run with a
# private cache would have to compile them all again. An answer that was yes is kept in the tool's
# own folder: for the same code, flags, compiler, processor and torch. A compiler that says no is
# always asked again.

VEC_ISA_MODULE = "torch._inductor.cpu_vec_isa"
_BUILDER = "torch._inductor.cpp_builder"
# Tells torch that the compiler can do what the processor can.
_TRUSTED = "TORCHINDUCTOR_VEC_ISA_OK"
# The question whose answer is yes if all others were answered so.
_EVERYTHING = "everything"


def probes_folder() -> Path:
    """Where answers are kept: an empty file for every yes."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(cache) / "inductoscope" / "vector-probes"


def probe_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """For a process without the scope: nothing is asked, if every answer is known to be yes."""
    return {_TRUSTED: "1"} if _TRUSTED not in environment and _all_known(environment) else {}


def _all_known(environment: Mapping[str, str]) -> bool:
    compiler = environment.get("CXX", "g++")
    kept = _answer(compiler, _EVERYTHING, path=environment.get("PATH"))
    return kept is not None and kept.exists()


def remember_answers() -> None:
    """Have torch ask only what is not known."""
    module: Any = sys.modules[VEC_ISA_MODULE]
    ask, pick = module.VecISA.check_build, module.pick_vec_isa
    asked = _Asked()

    @functools.wraps(ask)
    def check_build(self: Any, code: str) -> bool:
        return asked.answer(self, code, ask)

    @functools.wraps(pick)
    def pick_vec_isa(*args: Any, **kwargs: Any) -> Any:
        found = pick(*args, **kwargs)
        asked.note_all()
        return found

    module.VecISA.check_build = check_build
    module.pick_vec_isa = pick_vec_isa


def learn_answers() -> None:
    """Have torch learn the answers in this process, and in all that are forked from it.

    Only where they are known, so that no compiler is started.
    """
    if not _all_known(os.environ):
        return
    module: Any = sys.modules[VEC_ISA_MODULE]
    usual = module.VecISA.check_build, module.pick_vec_isa
    remember_answers()
    try:
        module.pick_vec_isa()
    finally:
        module.VecISA.check_build, module.pick_vec_isa = usual


def trust_compiler() -> None:
    """For a confined process: nothing is asked, as the variable says.

    For some instruction sets torch asks all the same, and starts Python to load the answer.
    """
    module: Any = importlib.import_module(VEC_ISA_MODULE)
    module.VecISA.check_build = lambda self, code: True


class _Asked:
    """What was asked in this process, and what the answers were."""

    def __init__(self) -> None:
        self._answers: list[bool] = []

    def answer(self, isa: Any, code: str, ask: Callable[[Any, str], bool]) -> bool:
        kept = _answer(_compiler(), f"{isa.build_arch_flags()}\0{code}")
        is_yes = (kept is not None and kept.exists()) or bool(ask(isa, code))
        if is_yes and kept is not None:
            _keep(kept)
        self._answers.append(is_yes)
        return is_yes

    def note_all(self) -> None:
        """Every instruction set of the processor has been asked about."""
        answers, self._answers = self._answers, []
        kept = _answer(_compiler(), _EVERYTHING) if answers and all(answers) else None
        if kept is not None:
            _keep(kept)


def _compiler() -> str:
    builder: Any = sys.modules.get(_BUILDER)
    with contextlib.suppress(Exception):  # There is none, which torch says itself.
        return str(builder.get_cpp_compiler())
    return ""


def _answer(compiler: str, question: str, path: str | None = None) -> Path | None:
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
        return probes_folder() / hashlib.sha256(text.encode()).hexdigest()[:32]
    return None


@functools.cache
def _processor() -> str:
    """The processor's name and what it can do; a home folder may be shared by many machines."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        wanted = ("model name", "flags", "Features")
        return "\n".join(sorted({line.strip() for line in file if line.startswith(wanted)}))
    return ""


def _keep(path: Path) -> None:
    with contextlib.suppress(OSError):  # A folder that cannot be written: asked again next time.
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch()
