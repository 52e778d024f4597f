"""Compares the first calls of AOTInductor packages with the programs they were made from.

AOTInductor compiles a program, a package stores the library, and a program loads and calls the
package. Hooks on all three steps let a package be checked like any other compiled graph.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from inductoscope.doctor.instructions import Instructions
from inductoscope.errors import InductoscopeError
from inductoscope.inside.doctor.compile_conditions import is_compilers_own
from inductoscope.inside.doctor.exported_program import (
    CompiledProgram,
    compiled_program,
    investigate_error,
    stop_if_asked,
)
from inductoscope.inside.doctor.package_calls import (
    CallsFromElsewhere,
    CheckedCalls,
    Demands,
    NewConstants,
    PackageCalls,
    stand_in_of,
    structure_of,
)
from inductoscope.inside.hooks.aot_inductor import calling_line
from inductoscope.inside.scope import SCOPE
from inductoscope.packages import cpp_library
from inductoscope.packages.package import read_package
from inductoscope.recording.events import CppLibraryTaken

# Methods of a loader that replace constants, and their parameters.
_SETS_CONSTANTS = ("load_constants", "update_constant_buffer")
_OF_CONSTANTS = ("constants_map", "use_inactive", "check_full_update", "user_managed")
# Methods of a runner after which its constants are unknown: the runner uses other names than the
# program, or hands out the memory itself.
_TOUCHES_CONSTANTS = (
    "extract_constants_map",
    "swap_constant_buffer",
    "update_constant_buffer",
    "update_constant_buffer_from_blob",
    "update_constant_buffer_from_cpu",
)
# The parameters of the function that compiles.
_PARAMETERS = ("model_", "example_inputs_", "inner_compile", "config_patches")

Original = Callable[..., Any]


# --- in the place of torch's functions ------------------------------------------------------------


# Set while this thread loads a package or a library: nested loads are torch's own.
_loading = threading.local()


@contextlib.contextmanager
def _torch_loads() -> Iterator[None]:
    before, _loading.is_on = _is_torch_loading(), True
    try:
        yield
    finally:
        _loading.is_on = before


def _is_torch_loading() -> bool:
    return getattr(_loading, "is_on", False)


def _is_programs_own(path: Any) -> bool:
    """Check whether the program itself loads this file, rather than torch on its behalf.

    Torch writes a package that is given as a stream to a temporary file.
    """
    folder, name = os.path.split(path) if isinstance(path, str) else ("", "")
    is_copy = folder == tempfile.gettempdir() and bool(re.fullmatch(r"tmp\w{8}\.pt2", name))
    return not _is_torch_loading() and not is_copy


def compile_ahead_of_time(
    original: Original, instructions: Instructions, folder: Path, *args: Any, **kwargs: Any
) -> Any:
    """Wrap AOTInductor's compile, and keep the program that it compiles."""
    given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
    made: list[CompiledProgram] = []

    def keep() -> None:
        arguments = given["model_"], given["example_inputs_"], given.get("config_patches")
        made.append(compiled_program(*arguments, instructions, folder))
        stop_if_asked(made[0])

    SCOPE.guard(keep)
    try:
        files = original(*args, **kwargs)
    except Exception as error:
        if made and is_compilers_own(error):
            SCOPE.guard(investigate_error, made[0], error)
        raise
    SCOPE.guard(PACKAGES.note_compiled, made, files)
    return files


def write_package(original: Original, archive_file: Any, aoti_files: Any) -> Any:
    """Wrap the writing of a package, and note its libraries."""
    result = original(archive_file, aoti_files)
    SCOPE.guard(PACKAGES.note_package, archive_file, aoti_files)
    return result


def load_package(
    original: Original, path: Any, model_name: str = "model", *args: Any, **kwargs: Any
) -> Any:
    """Wrap the loading of a package; torch's two loading functions call each other."""

    def load() -> Any:
        SCOPE.guard(before_loading, path, model_name)
        with _torch_loads():
            return original(path, model_name, *args, **kwargs)

    if not _is_programs_own(path):
        return original(path, model_name, *args, **kwargs)
    model = PACKAGES.loaded(load, path, model_name)
    SCOPE.guard(PACKAGES.note_loaded, model, path, model_name)
    return model


def call_model(original: Original, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Wrap a call of a loaded package."""
    return PACKAGES.called(model, functools.partial(original, model), args, kwargs)


def make_loader(
    original: Original, loader: Any, path: Any, model_name: str = "model", *args: Any, **kwargs: Any
) -> None:
    """Wrap the constructor of torch's package loader, and watch loaders of the program."""
    is_own = _is_programs_own(path)
    if is_own:
        SCOPE.guard(before_loading, path, model_name)
    original(loader, path, model_name, *args, **kwargs)
    if is_own:
        SCOPE.guard(PACKAGES.watch, loader, loader, path, model_name)


def make_runner(original: Original, runner: Any, so_path: Any, *args: Any, **kwargs: Any) -> None:
    """Wrap the constructor of torch's library runner, and watch runners of the program."""
    is_own = not _is_torch_loading()
    if is_own:
        SCOPE.guard(before_loading, so_path, None)
    original(runner, so_path, *args, **kwargs)
    if is_own:
        SCOPE.guard(PACKAGES.note_runner, runner, so_path)


def run_flat(original: Original, loader: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Wrap a call of a loader or runner with a list of tensors."""
    if not isinstance(inputs, list) or not PACKAGES.is_watched(loader):
        return original(loader, inputs, *args, **kwargs)

    def call(*flat: Any) -> Any:
        return original(loader, list(flat), *args, **kwargs)

    # `boxed_run` takes ownership, which shows if nobody else holds the tensors.
    flat = tuple(inputs)
    if original.__name__ == "boxed_run":
        inputs.clear()
    return PACKAGES.called(loader, call, flat, {})


def load_library(original: Original, so_path: str, device: str) -> Any:
    """Wrap the loading of a library, and check calls of the returned function."""
    SCOPE.guard(before_loading, so_path, None)
    with _torch_loads():
        function = original(so_path, device)
    calls = SCOPE.guard(PACKAGES.library, so_path)
    if not isinstance(calls, CheckedCalls):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return calls(function, args, kwargs)

    return torch._dynamo.disable(call)


# --- what the process has made and loaded ---------------------------------------------------------


class Packages:
    """The programs that this process has compiled ahead of time, packaged and loaded."""

    def __init__(self) -> None:
        # Programs by library path; and by package path and model name, with size and
        # time of the package as it was written.
        self._libraries: dict[str, CompiledProgram] = {}
        self._packaged: dict[tuple[str, str], tuple[CompiledProgram, tuple[int, int]]] = {}
        # Calls by the callable object, and by the loader that receives constants.
        self._calls: weakref.WeakKeyDictionary[Any, PackageCalls] = weakref.WeakKeyDictionary()
        self._by_loader: weakref.WeakKeyDictionary[Any, PackageCalls] = weakref.WeakKeyDictionary()

    def note_compiled(self, programs: Sequence[CompiledProgram], files: Any) -> None:
        """Record the files that AOTInductor has made: the path of a library, or a list."""
        libraries = _libraries_in(files)
        for program in programs:
            program.lifted.note_values()  # The compiler may have modified them.
            self._libraries.update((path, program) for path in libraries)
        # The libraries may be loaded in a way that is not hooked.
        if any(cpp_library.file_brings_own(Path(library)) for library in libraries):
            _take_cpp_library("")

    def note_package(self, archive: Any, files: Any) -> None:
        """Record a package that was written."""
        if not _is_path(archive):
            return
        for name, own in (files if isinstance(files, dict) else {"model": files}).items():
            for library in _libraries_in(own):
                if library in self._libraries:
                    found = self._libraries[library], _stamp(archive)
                    self._packaged[_real(archive), name] = found

    def loaded(self, load: Callable[[], Any], archive: Any, name: str) -> Any:
        """Return the loaded package, or a lazy stand-in where its calls are replaced.

        Without the stand-in, a package that cannot be loaded would end a run in eager, too.
        """
        from torch.export.pt2_archive._package import AOTICompiledModel

        def stands_in() -> bool:
            program, stamp = self._packaged.get((_real(archive), name), (None, None))
            return program is not None and stamp == _stamp(archive) and bool(stand_in_of(program))

        if _is_path(archive) and SCOPE.guard(stands_in) is True:
            return AOTICompiledModel(LoaderOnDemand(lambda: load().loader))
        return load()

    def note_loaded(self, model: Any, archive: Any, name: str) -> None:
        """Watch a loaded package, and exclude its call from Dynamo's tracing.

        The code that checks a call must not be traced. Torch's own call breaks the graph, too.
        """
        kind: Any = type(model)
        if not getattr(kind.__call__, "_torchdynamo_disable", False):
            kind.__call__ = torch._dynamo.disable(kind.__call__)
        self.watch(model, model.loader, archive, name)

    def watch(self, model: Any, loader: Any, archive: Any, name: str) -> None:
        """Watch calls and constants of `model`, which may be the loader itself."""
        if not _is_path(archive):
            return
        program, _ = self._packaged.get((_real(archive), name), (None, None))
        demands, is_flat = Demands(archive, name), model is loader
        calls: PackageCalls
        if program is None:
            structure = None if is_flat else structure_of(model)
            calls = CallsFromElsewhere(os.path.basename(archive), demands, structure)
        else:
            calls = CheckedCalls(program, demands, is_flat=is_flat)
        self.watch_constants(loader, calls)
        self._calls[model] = calls

    def watch_constants(self, loader: Any, calls: PackageCalls) -> None:
        """Watch updates of constants, also those that the program makes on the loader itself."""
        self._by_loader[loader] = calls
        _wrap_once(type(loader), _SETS_CONSTANTS, self._noting_constants)

    def _noting_constants(self, original: Original) -> Original:
        @functools.wraps(original)
        def replace_constants(loader: Any, *args: Any, **kwargs: Any) -> Any:
            calls = self._by_loader.get(loader)
            if calls is None:
                return original(loader, *args, **kwargs)

            def with_copies() -> None:
                own, named = _with_copies(args, kwargs)
                original(loader, *own, **named)

            given = {**dict(zip(_OF_CONSTANTS, args, strict=False)), **kwargs}
            new = SCOPE.guard(calls.judge_constants, _new_constants(given, with_copies))
            if not isinstance(new, NewConstants):
                return original(loader, *args, **kwargs)
            try:
                with calls.taking(new):
                    result = original(loader, *args, **kwargs)
            except Exception as error:
                SCOPE.guard(calls.reject_constants, new, error)
                raise
            SCOPE.guard(calls.replace_constants, new)
            return result

        return replace_constants

    def is_watched(self, model: Any) -> bool:
        """Check whether calls of this object are recorded."""
        return model in self._calls

    def called(self, model: Any, function: Original, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a loaded package, and check the call if it is watched."""
        calls = self._calls.get(model)
        return function(*args, **kwargs) if calls is None else calls(function, args, kwargs)

    def library(self, path: str, *, is_flat: bool = False) -> CheckedCalls | None:
        """Return the calls of a loaded library; None if this process has not compiled it."""
        program = self._libraries.get(_real(path))
        if program is None:
            return None
        return CheckedCalls(program, Demands(path, None), is_flat=is_flat)

    def note_runner(self, runner: Any, path: str) -> None:
        """Watch a library that the program loaded with torch's runner."""
        calls = self.library(path, is_flat=True)
        if calls is not None:
            self._calls[runner] = calls
            _wrap_once(type(runner), _TOUCHES_CONSTANTS, self._losing_constants)

    def _losing_constants(self, original: Original) -> Original:
        @functools.wraps(original)
        def touch_constants(runner: Any, *args: Any, **kwargs: Any) -> Any:
            calls = self._calls.get(runner)
            if isinstance(calls, CheckedCalls):
                calls.lose_constants()
            return original(runner, *args, **kwargs)

        return touch_constants


class LoaderOnDemand:
    """A lazy loader of a package whose calls are replaced; it loads on first use."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._loader: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._loader is None:
            self._loader = self._load()
        return getattr(self._loader, name)

    # These are methods of the class, so that they can be wrapped; torch accepts or rejects.

    def load_constants(self, *args: Any, **kwargs: Any) -> Any:
        """Replace constants, by the name of the method of AOTICompiledModel."""
        return self._taken_by("load_constants", args, kwargs)

    def update_constant_buffer(self, *args: Any, **kwargs: Any) -> Any:
        """Replace constants, by the name of the loader's own method."""
        return self._taken_by("update_constant_buffer", args, kwargs)

    def _taken_by(self, name: str, args: Any, kwargs: Any) -> Any:
        # Views of the program's tensors could crash a run without the package, too.
        own, named = _with_copies(args, kwargs)
        return self.__getattr__(name)(*own, **named)


PACKAGES = Packages()


def _wrap_once(kind: Any, names: Sequence[str], wrap: Callable[[Original], Original]) -> None:
    """Wrap methods of a class, unless they are wrapped already."""
    for name in names:
        original = getattr(kind, name, None)
        if original is not None and not hasattr(original, "__wrapped__"):
            setattr(kind, name, wrap(original))


def _new_constants(given: Mapping[str, Any], with_copies: Callable[[], None]) -> NewConstants:
    return NewConstants(
        given.get("constants_map", given.get("tensor_map", {})),
        is_used=not given.get("use_inactive"),
        is_copied=not given.get("user_managed"),
        with_copies=with_copies,
    )


def _with_copies(args: Any, kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return a loader's arguments with each constant copied to its own memory."""

    def copies(constants: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in constants.items()}

    names = {"constants_map", "tensor_map"} & kwargs.keys()
    named = {**kwargs, **{name: copies(kwargs[name]) for name in names}}
    return [*map(copies, args[:1]), *args[1:]], named


def _libraries_in(files: Any) -> list[str]:
    """Return the libraries among the files that AOTInductor has written."""
    every = [files] if isinstance(files, str) else list(files or ())
    return [_real(path) for path in every if isinstance(path, str) and path.endswith(".so")]


def _is_path(archive: Any) -> bool:
    return isinstance(archive, (str, os.PathLike))  # A file object is no path.


def _stamp(path: Any) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _real(path: Any) -> str:
    return str(os.path.realpath(os.fspath(path)))


# --- a copy of libstdc++ in a package -------------------------------------------------------------

_noted: set[str] = set()


def before_loading(path: Any, name: str | None) -> None:
    """Make a package or library that is about to be loaded use torch's libstdc++.

    One that contains a copy of libstdc++ may kill the process, and would then never be checked.
    The event lets the parent process test whether the program dies without this measure.
    """
    if not _is_path(path):
        return
    try:
        library = read_package(Path(path), verify=False).model(name).library
    except InductoscopeError:
        return  # torch raises its own error about the file.
    if cpp_library.brings_own(library):
        _take_cpp_library(os.path.basename(path))


def _take_cpp_library(package: str) -> None:
    if package not in _noted and cpp_library.take_from_torch():
        _noted.add(package)
        file, line = calling_line() if package else ("", 0)
        SCOPE.emit(CppLibraryTaken(package=package, source=f"{file}:{line}" if file else ""))
