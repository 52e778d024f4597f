"""Hooks around AOTInductor: what it compiles, which package holds it, and who calls that.

Nothing here imports torch, which is still being imported when they are installed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.scope import SCOPE
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, TorchName, Wrap

_COMPILE = hooked.COMPILE_FX_AOT
_PACKAGE = hooked.PACKAGE_AOTI
_LOAD = hooked.LOAD_PACKAGE
_LOAD_FROM_ARCHIVE = hooked.LOAD_AOTI
_CALL = hooked.AOTICOMPILED_MODEL_CALL
# What a program calls that does without AOTICompiledModel.
_LOADER, _RUN, _BOXED_RUN = (
    TorchName("torch._C", f"_aoti.AOTIModelPackageLoader.{name}")
    for name in ("__init__", "run", "boxed_run")
)
_LOAD_LIBRARY = hooked.AOT_LOAD
# By the device that it runs libraries on: how a runner is made, and called.
_RUNNERS = {
    device: tuple(
        TorchName("torch._C", f"_aoti.AOTIModelContainerRunner{device}.{name}")
        for name in ("__init__", "run")
    )
    for device in ("Cpu", "Cuda")
}
# Of the function that compiles.
_PARAMETERS = ("model_", "example_inputs_", "inner_compile", "config_patches")


def package_hooks(instructions: Instructions, place: Path) -> tuple[Hook, ...]:
    """The hooks that have calls of packages compared with the programs they were made from."""

    def compiling(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_ahead_of_time(*args: Any, **kwargs: Any) -> Any:
            if not _is_watched():
                return original(*args, **kwargs)
            from inductoscope.inside.doctor.checked_packages import PACKAGES

            given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
            with PACKAGES.compiling(given, instructions, place) as done:
                return done(original(*args, **kwargs))

        return compile_ahead_of_time

    return (
        Hook(
            stage=stages.AOT,
            records="what AOTInductor compiles, so that calls of it can be compared with eager",
            wraps=(Wrap(_COMPILE, compiling),),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="packages of AOTInductor: written, loaded and called",
            wraps=(
                Wrap(_PACKAGE, _packaging),
                Wrap(_LOAD, _loading),
                Wrap(_CALL, _calling),
            ),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="packages of AOTInductor that load_pt2 loads",
            wraps=(Wrap(_LOAD_FROM_ARCHIVE, _loading),),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="packages of AOTInductor that the program loads with torch's own loader",
            wraps=(
                Wrap(_LOADER, _loading_alone),
                Wrap(_RUN, _running),
                Wrap(_BOXED_RUN, _running),
            ),
        ),
        Hook(
            stage=stages.RUNTIME,
            records="libraries of AOTInductor: loaded and called",
            wraps=(Wrap(_LOAD_LIBRARY, _loading_library),),
        ),
        *(
            Hook(
                stage=stages.RUNTIME,
                records=f"libraries of AOTInductor that the program runs with torch's own {device} "
                "runner",
                wraps=(Wrap(made, _loading_runner), Wrap(called, _running)),
                is_optional=device != "Cpu",
            )
            for device, (made, called) in _RUNNERS.items()
        ),
    )


class _Loads(threading.local):
    """Whether this thread is loading a package or a library."""

    is_inside = False

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What torch itself loads in the block is not loaded by the program."""
        before, self.is_inside = self.is_inside, True
        try:
            yield
        finally:
            self.is_inside = before


_loads = _Loads()


def _is_torchs_copy(path: Any) -> bool:
    """Torch writes a package that is given as a stream to a file, which says nothing of it."""
    folder, name = os.path.split(path) if isinstance(path, str) else ("", "")
    return folder == tempfile.gettempdir() and bool(re.fullmatch(r"tmp\w{8}\.pt2", name))


def _is_watched() -> bool:
    return SCOPE.active and not SCOPE.is_redirected


def _packaging(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def package_aoti(archive_file: Any, aoti_files: Any) -> Any:
        result = original(archive_file, aoti_files)
        if _is_watched():
            from inductoscope.inside.doctor.checked_packages import PACKAGES

            SCOPE.guard(PACKAGES.note_package, archive_file, aoti_files)
        return result

    return package_aoti


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_package(path: Any, model_name: str = "model", *args: Any, **kwargs: Any) -> Any:
        # One of the functions that load a package calls the other.
        if not _is_watched() or _loads.is_inside or _is_torchs_copy(path):
            return original(path, model_name, *args, **kwargs)
        from inductoscope.inside.doctor.checked_packages import PACKAGES, before_loading

        def load() -> Any:
            SCOPE.guard(before_loading, path, model_name)
            with _loads.inside():
                return original(path, model_name, *args, **kwargs)

        model = PACKAGES.loaded(load, path, model_name)
        SCOPE.guard(PACKAGES.note_loaded, model, path, model_name)
        return model

    return load_package


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_watched():
            return original(model, *args, **kwargs)
        from inductoscope.inside.doctor.checked_packages import PACKAGES

        return PACKAGES.called(model, functools.partial(original, model), args, kwargs)

    return call


def _loading_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(loader: Any, path: Any, model_name: str = "model", *args: Any, **kwargs: Any) -> None:
        is_own = _is_watched() and not _loads.is_inside and not _is_torchs_copy(path)
        if is_own:
            from inductoscope.inside.doctor.checked_packages import before_loading

            SCOPE.guard(before_loading, path, model_name)
        original(loader, path, model_name, *args, **kwargs)
        if is_own:
            from inductoscope.inside.doctor.checked_packages import PACKAGES

            SCOPE.guard(PACKAGES.note_loader, loader, path, model_name)

    return load


def _running(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(loader: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_watched() or not isinstance(inputs, list):
            return original(loader, inputs, *args, **kwargs)
        from inductoscope.inside.doctor.checked_packages import PACKAGES

        if not PACKAGES.is_watched(loader):
            return original(loader, inputs, *args, **kwargs)

        def call(*flat: Any) -> Any:
            return original(loader, list(flat), *args, **kwargs)

        # It takes the tensors over, which is seen if nobody else holds them.
        flat = tuple(inputs)
        if original.__name__ == "boxed_run":
            inputs.clear()
        return PACKAGES.called(loader, call, flat, {})

    return run


def _loading_runner(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(runner: Any, so_path: Any, *args: Any, **kwargs: Any) -> None:
        is_own = _is_watched() and not _loads.is_inside
        if is_own:
            from inductoscope.inside.doctor.checked_packages import before_loading

            SCOPE.guard(before_loading, so_path, None)
        original(runner, so_path, *args, **kwargs)
        if is_own:
            from inductoscope.inside.doctor.checked_packages import PACKAGES

            SCOPE.guard(PACKAGES.note_runner, runner, so_path)

    return load


def _loading_library(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def aot_load(so_path: str, device: str) -> Any:
        if not _is_watched():
            return original(so_path, device)
        from inductoscope.inside.doctor.checked_packages import before_loading, checked_library

        SCOPE.guard(before_loading, so_path, None)
        with _loads.inside():
            loaded = original(so_path, device)
        checked = SCOPE.guard(checked_library, loaded, so_path)
        return checked if callable(checked) else loaded

    return aot_load
