"""Packages of AOTInductor whose first calls are compared with the program they were made from.

AOTInductor compiles a program, a package stores what it made, and whoever loads that calls it. All
three are seen here, so that a call of a package is checked like a call of any other compiled graph.
"""

from __future__ import annotations

import contextlib
import functools
import os
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
    NewConstants,
    broken_constants,
    constants_of,
    guards_of,
    stand_in_of,
    structure_of,
)
from inductoscope.inside.hooks.aot_inductor import calling_line
from inductoscope.inside.scope import SCOPE
from inductoscope.packages import cpp_library
from inductoscope.packages.constants import is_about_view
from inductoscope.packages.package import read_package
from inductoscope.recording.events import CppLibraryTaken

# Functions of a loader that replace constants, and what they are given.
_SETS_CONSTANTS = ("load_constants", "update_constant_buffer")
_OF_CONSTANTS = ("constants_map", "use_inactive", "check_full_update", "user_managed")
# Functions of a runner after which its constants may be others: it names them otherwise than the
# program does, or gives the memory itself away.
_TOUCHES_CONSTANTS = (
    "extract_constants_map",
    "swap_constant_buffer",
    "update_constant_buffer",
    "update_constant_buffer_from_blob",
    "update_constant_buffer_from_cpu",
)
# What AOTInductor returns: the path of a library, or a list of files.
Files = Any


class Packages:
    """What this process has compiled ahead of time, packaged and loaded."""

    def __init__(self) -> None:
        # By the path of the library, and by the path of the package and the name in it.
        self._libraries: dict[str, CompiledProgram] = {}
        self._packaged: dict[tuple[str, str], CompiledProgram] = {}
        # Size and time of the packages, as they were written.
        self._written: dict[str, tuple[int, int]] = {}
        self._loaded: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        # Models by what they are called through.
        self._models: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        # The constants of a loaded package, read when they are replaced.
        self._constants: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def compiling(
        self, given: Mapping[str, Any], instructions: Instructions, place: Path
    ) -> Iterator[Callable[[Files], Files]]:
        """Keep what is compiled in the block; the function it yields takes what came of it."""
        made: list[CompiledProgram] = []

        def keep() -> None:
            arguments = given["model_"], given["example_inputs_"], given.get("config_patches")
            made.append(compiled_program(*arguments, instructions, place))
            stop_if_asked(made[0])

        def note(files: Files) -> None:
            for program in made:
                program.lifted.note_values()  # The compiler itself may have touched them.
                self._libraries.update((path, program) for path in _libraries_in(files))
            after_compiling(_libraries_in(files))

        def done(files: Files) -> Files:
            SCOPE.guard(note, files)
            return files

        SCOPE.guard(keep)
        try:
            yield done
        except Exception as error:
            if made and is_compilers_own(error):
                SCOPE.guard(investigate_error, made[0], error)
            raise

    def note_package(self, archive: Any, files: Any) -> None:
        """A package was written."""
        if not isinstance(archive, (str, os.PathLike)):
            return
        named = files if isinstance(files, dict) else {"model": files}
        for name, own in named.items():
            for library in _libraries_in(own):
                if library in self._libraries:
                    self._packaged[_real(archive), name] = self._libraries[library]
                    self._written[_real(archive)] = _stamp(archive)

    def loaded(self, load: Callable[[], Any], archive: Any, name: str) -> Any:
        """The package that `load` loads; not loaded at all where the program stands in for it.

        Otherwise a package that cannot be loaded would end a run in eager, too.
        """
        from torch.export.pt2_archive._package import AOTICompiledModel

        def stands_in() -> bool:
            program = self._packaged.get((_real(archive), name))
            is_as_written = self._written.get(_real(archive)) == _stamp(archive)
            return program is not None and is_as_written and stand_in_of(program) != ""

        is_path = isinstance(archive, (str, os.PathLike))
        if is_path and SCOPE.guard(stands_in) is True:
            return AOTICompiledModel(LoaderOnDemand(lambda: load().loader))
        return load()

    def note_loaded(self, model: Any, archive: Any, name: str) -> None:
        """A package was loaded."""
        _keep_dynamo_out(type(model))
        self._watch(model, model.loader, archive, name)

    def note_loader(self, loader: Any, archive: Any, name: str) -> None:
        """A package was loaded by a program that uses torch's loader itself."""
        self._watch(loader, loader, archive, name)

    def _watch(self, model: Any, loader: Any, archive: Any, name: str) -> None:
        """Hear of calls and new constants of what is called through `model`."""
        self._watch_constants(model, loader)
        if not isinstance(archive, (str, os.PathLike)):
            return
        program = self._packaged.get((_real(archive), name))
        guards, is_flat = guards_of(archive, name), model is loader
        self._constants[model] = functools.lru_cache(1)(
            functools.partial(constants_of, archive, name)
        )
        if program is None:
            structure = None if is_flat else structure_of(model)
            self._loaded[model] = CallsFromElsewhere(os.path.basename(archive), guards, structure)
        else:
            self._loaded[model] = CheckedCalls(program, guards, is_flat=is_flat)

    def _watch_constants(self, model: Any, loader: Any) -> None:
        """Hear of new constants, also where the program gives them to the loader itself."""
        self._models[loader] = weakref.ref(model)
        kind: Any = type(loader)
        for name in _SETS_CONSTANTS:
            original = getattr(kind, name, None)
            if original is not None and not hasattr(original, "__wrapped__"):
                setattr(kind, name, self._noting_constants(original))

    def _noting_constants(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replace_constants(loader: Any, *args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(_OF_CONSTANTS, args, strict=False)), **kwargs}
            taking = SCOPE.guard(self._taking_views, loader, given)
            try:
                with taking or contextlib.nullcontext():
                    result = original(loader, *args, **kwargs)
            except Exception as error:
                SCOPE.guard(self.note_rejected, loader, given, error)
                raise

            def with_copies() -> None:
                own, named = _with_copies(args, kwargs)
                original(loader, *own, **named)

            SCOPE.guard(self.note_constants, loader, given, with_copies)
            return result

        return replace_constants

    def _calls_through(self, loader: Any) -> tuple[Any, Any]:
        """The model that has this loader, and its calls; None where nobody watches them."""
        model = self._models.get(loader, lambda: None)()
        return model, None if model is None else self._loaded.get(model)

    def _taking_views(
        self, loader: Any, given: Mapping[str, Any]
    ) -> contextlib.AbstractContextManager[None] | None:
        """Says, before torch takes new constants, which of them are views that it takes wrongly.

        It may write past the end of its own, which ends the process at once or some time later.
        """
        model, calls = self._calls_through(loader)
        if calls is None:
            return None
        is_copied = not given.get("user_managed")
        wrong = broken_constants(self._constants[model](), _given(given), is_copied=is_copied)
        views = [text for texts in wrong.values() for text in texts if is_about_view(text)]
        return calls.taking_views(views) if views else None

    def note_constants(
        self,
        loader: Any,
        given: Mapping[str, Any],
        with_copies: Callable[[], None] | None = None,
    ) -> None:
        """Constants of a loaded package were replaced; `with_copies` does so with copies."""
        model, calls = self._calls_through(loader)
        if calls is not None:
            constants = _given(given)
            is_used, is_copied = not given.get("use_inactive"), not given.get("user_managed")
            own = self._constants[model]() if is_used else ()
            wrong = broken_constants(own, constants, is_copied=is_copied)
            shared = not (is_used and is_copied)
            calls.replace_constants(NewConstants(constants, wrong, shared, with_copies))

    def note_rejected(self, loader: Any, given: Mapping[str, Any], error: Exception) -> None:
        """Torch does not take new constants, and hardly says why."""
        model, calls = self._calls_through(loader)
        if calls is not None:
            own = self._constants[model]()
            wrong = broken_constants(own, _given(given), is_copied=not given.get("user_managed"))
            calls.reject_constants([text for texts in wrong.values() for text in texts], error)

    def is_watched(self, model: Any) -> bool:
        """Whether calls of it are noted."""
        return model in self._loaded

    def called(
        self, model: Any, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A loaded package is called."""
        calls = self._loaded.get(model)
        return function(*args, **kwargs) if calls is None else calls(function, args, kwargs)

    def library(self, path: str, *, is_flat: bool = False) -> CheckedCalls | None:
        """The calls of a library that was loaded, if this process has compiled it."""
        program = self._libraries.get(_real(path))
        if program is None:
            return None
        return CheckedCalls(program, guards_of(path, None), is_flat=is_flat)

    def note_runner(self, runner: Any, path: str) -> None:
        """A library was loaded by a program that uses torch's runner itself."""
        calls = self.library(path, is_flat=True)
        if calls is None:
            return
        kind: Any = type(runner)
        for name in _TOUCHES_CONSTANTS:
            original = getattr(kind, name, None)
            if original is not None and not hasattr(original, "__wrapped__"):
                setattr(kind, name, self._losing_constants(original))
        self._loaded[runner] = calls

    def _losing_constants(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def touch_constants(runner: Any, *args: Any, **kwargs: Any) -> Any:
            calls = self._loaded.get(runner)
            if calls is not None:
                calls.lose_constants()
            return original(runner, *args, **kwargs)

        return touch_constants


class LoaderOnDemand:
    """The loader of a package whose calls are replaced: it is loaded once something asks for it."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._loader: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._loader is None:
            self._loader = self._load()
        return getattr(self._loader, name)

    # Of the class, so that new constants are heard of.

    def load_constants(self, *args: Any, **kwargs: Any) -> Any:
        """Have torch say whether it takes these constants."""
        return self._taken_by("load_constants", args, kwargs)

    def update_constant_buffer(self, *args: Any, **kwargs: Any) -> Any:
        """The same, as a program says it that uses the loader itself."""
        return self._taken_by("update_constant_buffer", args, kwargs)

    def _taken_by(self, name: str, args: Any, kwargs: Any) -> Any:
        # Views of the program's own could end a run without the package, too.
        own, named = _with_copies(args, kwargs)
        return self.__getattr__(name)(*own, **named)


PACKAGES = Packages()


def checked_library(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The function through which a loaded library is called, with its calls checked."""
    calls = PACKAGES.library(path)
    if calls is None:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return calls(function, args, kwargs)

    untraced: Callable[..., Any] = torch._dynamo.disable(call)
    return untraced


def _keep_dynamo_out(kind: Any) -> None:
    """In a function that Dynamo compiles, a package is called as it is: what checks it must not be
    traced. Torch's own code for the call ends a graph, too."""
    if not getattr(kind.__call__, "_torchdynamo_disable", False):
        kind.__call__ = torch._dynamo.disable(kind.__call__)


def _given(given: Mapping[str, Any]) -> Mapping[str, torch.Tensor]:
    """The new constants among what a loader is given."""
    found: Mapping[str, torch.Tensor] = given.get("constants_map", given.get("tensor_map", {}))
    return found


def _with_copies(args: Any, kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """What a loader is given, with copies of the constants."""
    names = {"constants_map", "tensor_map"} & kwargs.keys()
    named = {**kwargs, **{name: _copies(kwargs[name]) for name in names}}
    return [*map(_copies, args[:1]), *args[1:]], named


def _copies(constants: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same values, each in memory of its own."""
    return {name: value.detach().clone() for name, value in constants.items()}


def _libraries_in(files: Files) -> list[str]:
    """The libraries among the files that AOTInductor has written."""
    every = [files] if isinstance(files, str) else list(files or ())
    return [_real(path) for path in every if isinstance(path, str) and path.endswith(".so")]


def _stamp(path: Any) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _real(path: Any) -> str:
    return str(os.path.realpath(os.fspath(path)))


# --- Has packages that bring a copy of libstdc++ use the one that torch uses ----------------------
#
# Otherwise loading such a package may end the process, and what it computes would never be checked.
# It is noted, so that the part outside finds out whether the program dies without that.

_noted: set[str] = set()


def before_loading(path: Any, name: str | None) -> None:
    """A package, or a library, is about to be loaded."""
    if not isinstance(path, (str, os.PathLike)):
        return  # A buffer.
    try:
        library = read_package(Path(path), verify=False).model(name).library
    except InductoscopeError:
        return  # torch says what is wrong with it.
    if cpp_library.brings_own(library):
        _take(os.path.basename(path))


def after_compiling(libraries: Sequence[str]) -> None:
    """These libraries are made. They may be loaded in a way that is not seen here."""
    if any(cpp_library.file_brings_own(Path(library)) for library in libraries):
        _take("")


def _take(package: str) -> None:
    if package not in _noted and cpp_library.take_from_torch():
        _noted.add(package)
        file, line = calling_line() if package else ("", 0)
        SCOPE.emit(CppLibraryTaken(package=package, source=f"{file}:{line}" if file else ""))
