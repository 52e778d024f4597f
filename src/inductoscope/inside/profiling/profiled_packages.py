"""C++ wrappers compiled so that torch.profiler sees their kernels, inside the program.

A graph of torch.compile belongs to the profiled run, so it is compiled with torch's ranges around
its kernels. A package of AOTInductor is a file of the user's, so it is written unchanged, and a
copy with the ranges is compiled in addition. The program loads the copy.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.inside.observe import around
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

SETTING = "cpp.enable_kernel_profile"
_CODEGEN = hooked.CODEGEN_WITH_CPP_WRAPPER
_COMPILE = hooked.AOTI_COMPILE_AND_PACKAGE
_LOAD = hooked.LOAD_PACKAGE
_UNKNOWN = "a package"


def _with_ranges(original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
    config: Any = sys.modules["torch._inductor.config"]
    if graph.aot_mode or not hasattr(config.cpp, "enable_kernel_profile"):
        return original(graph, *args, **kwargs)
    with config.patch({SETTING: True}):
        return original(graph, *args, **kwargs)


JIT_WRAPPERS = Hook(
    stage=stages.WRAPPER,
    records="kernels that C++ wrappers of torch.compile call, for torch.profiler",
    wraps=(Wrap(_CODEGEN, around(_with_ranges)),),
)


# A package file: its path, modification time and size.
_File = tuple[str, int, int]


def _file(path: Any) -> _File | None:
    with contextlib.suppress(OSError, TypeError, ValueError):
        found = os.stat(path)
        return os.path.realpath(path), found.st_mtime_ns, found.st_size
    return None


class ProfiledPackages:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "packages"
        self._copies: dict[_File, str] = {}
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def hooks(self) -> tuple[Hook, ...]:
        return (
            Hook(
                stage=stages.AOT,
                records="packages of AOTInductor, once more with kernels for torch.profiler",
                wraps=(Wrap(_COMPILE, around(self._compile)),),
            ),
            Hook(
                stage=stages.RUNTIME,
                records="the files that packages of AOTInductor are loaded from",
                wraps=(Wrap(_LOAD, around(self._load)),),
            ),
        )

    def path_of(self, model: Any) -> str:
        """Return the file that a loaded package comes from, as the program names it."""
        return self._paths.get(model, _UNKNOWN)

    def remove_copies(self) -> None:
        for copy in self._copies.values():
            with contextlib.suppress(OSError):
                os.unlink(copy)
                os.rmdir(os.path.dirname(copy))
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def _compile(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        copy = self._copy(original, args, kwargs)
        if copy is None:
            return original(*args, **kwargs)
        with SCOPE.redirected(None):  # Not recorded twice: the copy is the same program.
            path = original(*args, **kwargs)
        written = _file(path)
        if written is not None:
            self._copies[written] = copy
        return path

    def _copy(self, original: Callable[..., Any], args: Any, kwargs: Any) -> str | None:
        """Compile a copy with ranges around its kernels; return its file, or None on failure."""
        settings = {**(kwargs.get("inductor_configs") or {}), SETTING: True}

        def compile_copy() -> str:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Other processes and threads of the program may compile at the same time.
            place = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self._folder)
            path = os.path.join(place, "copy.pt2")
            more = {**kwargs, "package_path": path, "inductor_configs": settings}
            return str(original(*args, **more))

        copy = SCOPE.attempt(compile_copy)
        # If the copy fails to compile, the program's own call reports the error.
        return None if copy is BROKEN else str(copy)

    def _load(self, original: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> Any:
        known = _file(path)
        copy = self._copies.get(known) if known else None
        model = SCOPE.attempt(lambda: original(copy, *args, **kwargs)) if copy else BROKEN
        if model is BROKEN:
            model = original(path, *args, **kwargs)
        with contextlib.suppress(TypeError):
            self._paths[model] = os.fspath(path)
        return model
