"""A private cache for one run, so that every stage runs and the user's cache stays unchanged.

torch keeps precompiled C++ headers in its default cache folder whatever TORCHINDUCTOR_CACHE_DIR
says. Building one takes longer than most kernels, so those that the user's cache has are read from
there through links, and new ones are written into the private cache. What torch asks the compiler
about the processor is kept apart from any cache: see `launch.vector_probes`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.launch.environment import CACHE_VARIABLE, HEADERS
from inductoscope.launch.vector_probes import EVERYTHING, all_known, answer_file, keep_yes

_CODECACHE = "torch._inductor.codecache"
_VEC_ISA = "torch._inductor.cpu_vec_isa"
_BUILDER = "torch._inductor.cpp_builder"


def on_import() -> dict[str, Callable[[], None]]:
    """Return the work to do in a process with a private cache as it imports modules of torch."""
    folder = os.environ.get(CACHE_VARIABLE)
    if not folder:
        return {}
    return {
        _CODECACHE: lambda: _redirect_headers(Path(folder) / HEADERS),
        _VEC_ISA: _remember_answers,
    }


def _redirect_headers(private: Path) -> None:
    module: Any = sys.modules[_CODECACHE]
    if getattr(module, "_HEADER_DIR", None) is None:
        return  # This torch has no precompiled headers.
    private.mkdir(parents=True, exist_ok=True)
    shared = Path(module._HEADER_DIR)
    for header in shared.iterdir() if shared.is_dir() else ():
        if header.is_file():
            with contextlib.suppress(FileExistsError):
                (private / header.name).symlink_to(header)
    module._HEADER_DIR = str(private)
    module._HEADER_LOCK_DIR = str(private / "locks")


# --- vector instruction sets that the C++ compiler supports ---------------------------------------


def _remember_answers() -> None:
    """Cache the answers of torch's compiler probes for vector instructions between processes."""
    module: Any = sys.modules[_VEC_ISA]
    ask, pick = module.VecISA.check_build, module.pick_vec_isa
    answers: list[bool] = []

    @functools.wraps(ask)
    def check_build(self: Any, code: str) -> bool:
        kept = answer_file(_compiler(), f"{self.build_arch_flags()}\0{code}")
        is_yes = (kept is not None and kept.exists()) or bool(ask(self, code))
        if is_yes:
            keep_yes(kept)
        answers.append(is_yes)
        return is_yes

    @functools.wraps(pick)
    def pick_vec_isa(*args: Any, **kwargs: Any) -> Any:
        found = pick(*args, **kwargs)
        if answers and all(answers):
            keep_yes(answer_file(_compiler(), EVERYTHING))
        answers.clear()
        return found

    module.VecISA.check_build = check_build
    module.pick_vec_isa = pick_vec_isa


def _compiler() -> str:
    builder: Any = sys.modules.get(_BUILDER)
    with contextlib.suppress(Exception):  # There is no compiler, which torch reports.
        return str(builder.get_cpp_compiler())
    return ""


def learn_answers() -> None:
    """Load cached vector-ISA probe results into torch, for this process and its forks.

    Do nothing unless all results are cached, so that no compiler is started.
    """
    if not all_known(os.environ):
        return
    module: Any = sys.modules[_VEC_ISA]
    usual = module.VecISA.check_build, module.pick_vec_isa
    _remember_answers()
    try:
        module.pick_vec_isa()
    finally:
        module.VecISA.check_build, module.pick_vec_isa = usual


def trust_compiler() -> None:
    """Make all vector-ISA probes of torch succeed without a compiler, for a confined process.

    With TORCHINDUCTOR_VEC_ISA_OK, torch still probes some instruction sets, and starts Python to
    load the compiled probe.
    """
    module: Any = importlib.import_module(_VEC_ISA)
    module.VecISA.check_build = lambda self, code: True
