"""A private cache for one run, so that every stage runs and the user's cache stays unchanged.

torch keeps precompiled C++ headers in its default cache folder whatever TORCHINDUCTOR_CACHE_DIR
says. Building one takes longer than most kernels, so those that the user's cache has are read from
there through links, and new ones are written into the private cache. What torch asks the compiler
about the processor is kept apart from any cache, see `vector_probes`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from inductoscope.capture import vector_probes

TORCH_NAMES = {
    "torch._inductor.codecache": ("_HEADER_DIR", "_HEADER_LOCK_DIR"),
}

# Tells the scope inside a process which private cache to use.
VARIABLE = "INDUCTOSCOPE_PRIVATE_CACHE"

_CODECACHE = "torch._inductor.codecache"
HEADERS = "precompiled_headers"
TEMPORARY = "tmp"


def environment(folder: Path) -> dict[str, str]:
    """Variables that make torch and Triton use the private cache in `folder`."""
    return {
        VARIABLE: str(folder),
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
    return {"TMPDIR": str(temporary), **vector_probes.variables(os.environ)}


def on_import() -> dict[str, Callable[[], None]]:
    """What to do in a process with a private cache when it imports modules of torch."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return {}
    return {
        _CODECACHE: lambda: _redirect_headers(Path(folder) / HEADERS),
        vector_probes.MODULE: vector_probes.remember_answers,
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
