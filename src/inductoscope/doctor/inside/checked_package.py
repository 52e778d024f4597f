"""Packages of AOTInductor whose first calls are compared with the program they were made from.

AOTInductor compiles a program, a package stores what it made, and whoever loads that calls it. All
three are seen here, so that a call of a package is checked like a call of any other compiled graph.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.capture.hooks.ahead_of_time import calling_line, compile_id_of
from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.compare.lifted_attributes import LiftedGraph, lifted
from inductoscope.doctor.compare.rounding import with_perturbed_rounding
from inductoscope.doctor.compare.values import copy_values
from inductoscope.doctor.inside.call_notes import CallNotes
from inductoscope.doctor.inside.checked_graph import CheckedGraph
from inductoscope.doctor.inside.how_compiled import is_compilers_own
from inductoscope.doctor.instructions import MOVED, Instructions
from inductoscope.doctor.search.exported_sizes import exported_sizes
from inductoscope.errors import InductoscopeError
from inductoscope.packages.guards import InputFacts, PackageGuards, broken
from inductoscope.packages.package import read_package
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.flows import AOT_INDUCTOR

TORCH_NAMES = {
    "torch.export._tree_utils": ("reorder_kwargs",),
    "torch.utils._pytree": (
        "tree_flatten",
        "tree_leaves",
        "tree_unflatten",
        "treespec_loads",
    ),
}

# What torch adds to the settings that a user gives.
_INTERNAL = (
    "aot_inductor.output_path",
    "aot_inductor.package",
    "aot_inductor.serialized_in_spec",
    "aot_inductor.serialized_out_spec",
    "cpp_wrapper",
)

Files = Any


@dataclass
class CompiledProgram:
    """What AOTInductor has compiled: the graph, its weights, and how it was asked to."""

    compile_id: str
    lifted: LiftedGraph
    settings: Mapping[str, Any]
    examples: tuple[Any, ...]
    instructions: Instructions
    place: Path

    def new_graph(self) -> CheckedGraph:
        """Its graph, of which calls are checked anew."""
        options = {name: value for name, value in self.settings.items() if name not in _INTERNAL}
        graph = CheckedGraph(
            self.lifted.module, self.compile_id, self.instructions, self.place, options, None, ""
        )
        graph.flow = AOT_INDUCTOR
        graph.constants = frozenset(self.lifted.attributes)
        graph.marks = exported_sizes(self.lifted.module)
        graph.first = self.with_attributes(self.examples)
        if self.instructions.stop_at == self.compile_id:
            graph.held_back = self.instructions.failure
        return graph

    def with_attributes(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs of the graph: those of a call, and the weights."""
        return (*inputs, *self.lifted.attributes.values())

    @property
    def structures(self) -> tuple[Any, Any]:
        """How arguments and results are nested; None where nothing is known."""
        from torch.utils._pytree import treespec_loads

        texts = [self.settings.get(f"aot_inductor.serialized_{n}_spec") for n in ("in", "out")]
        given, returned = (treespec_loads(text) if text else None for text in texts)
        return given, returned


def _program(
    module: GraphModule,
    examples: Sequence[Any],
    settings: Mapping[str, Any] | None,
    instructions: Instructions,
    place: Path,
) -> CompiledProgram:
    return CompiledProgram(
        compile_id_of(module),
        lifted(module),
        dict(settings or {}),
        tuple(copy_values(list(examples))),
        instructions,
        place,
    )


class Packages:
    """What this process has compiled ahead of time, packaged and loaded."""

    def __init__(self) -> None:
        # By the path of the library, and by the path of the package and the name in it.
        self._libraries: dict[str, CompiledProgram] = {}
        self._packaged: dict[tuple[str, str], CompiledProgram] = {}
        self._loaded: weakref.WeakKeyDictionary[Any, CheckedCalls] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def compiling(
        self, given: Mapping[str, Any], instructions: Instructions, place: Path
    ) -> Iterator[Callable[[Files], Files]]:
        """Keep what is compiled in the block; the function it yields takes what came of it."""
        made: list[CompiledProgram] = []

        def keep() -> None:
            arguments = given["model_"], given["example_inputs_"], given.get("config_patches")
            made.append(_program(*arguments, instructions, place))
            _stop_if_asked(made[0])

        def done(files: Files) -> Files:
            for program in made:
                self._libraries.update((path, program) for path in _libraries_in(files))
            return files

        SCOPE.guard(keep)
        try:
            yield done
        except Exception as error:
            if made and is_compilers_own(error):
                SCOPE.guard(_investigate_error, made[0], error)
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

    def note_loaded(self, model: Any, archive: Any, name: str) -> None:
        """A package was loaded."""
        if isinstance(archive, (str, os.PathLike)):
            program = self._packaged.get((_real(archive), name))
            if program is not None:
                self._loaded[model] = CheckedCalls(program, _guards(archive, name))

    def note_constants(self, model: Any, constants: Mapping[str, torch.Tensor]) -> None:
        """Constants of a loaded package were replaced."""
        if model in self._loaded:
            self._loaded[model].replace_constants(constants)

    def called(
        self, model: Any, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A loaded package is called."""
        calls = self._loaded.get(model)
        return function(*args, **kwargs) if calls is None else calls(function, args, kwargs)

    def library(self, path: str) -> CheckedCalls | None:
        """The calls of a library that was loaded, if this process has compiled it."""
        program = self._libraries.get(_real(path))
        return None if program is None else CheckedCalls(program, _guards(path, None))


PACKAGES = Packages()


def checked_library(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The function through which a loaded library is called, with its calls checked."""
    calls = PACKAGES.library(path)
    if calls is None:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return calls(function, args, kwargs)

    return call


class CheckedCalls:
    """The calls of one loaded package."""

    def __init__(self, program: CompiledProgram, guards: PackageGuards | None) -> None:
        self._program = program
        self._guards = guards
        self._graph = program.new_graph()
        self._structures = program.structures
        self._unchecked = ""
        self._attributes = dict(program.lifted.attributes)

    def replace_constants(self, constants: Mapping[str, torch.Tensor]) -> None:
        """From now on the package has other constants."""
        names = {target: name for name, target in self._program.lifted.named.items()}
        for target, value in constants.items():
            if target in names:
                self._attributes[names[target]] = value.detach().clone()
            else:
                self._unchecked = f"its constant {target} was replaced"

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        flat: list[Any] = []
        SCOPE.guard(lambda: flat.extend(self._flat(args, kwargs)))
        if not flat:
            return function(*args, **kwargs)
        inputs = (*flat, *self._attributes.values())
        stand_in = self._program.instructions.backend
        if stand_in in ("eager", MOVED):
            return self._in_eager(inputs, moved=stand_in == MOVED)
        if self._graph.calls == 1 and self._program.lifted.changes_itself:
            self._unchecked = "it changes its own buffers, so later calls find other ones"
        if self._unchecked:
            self._skip()
        else:
            self._graph.compiled = lambda *values: self._on_flat(function, values)
            self._graph.outside = self._broken(flat)
            self._graph.check(inputs)
        return function(*args, **kwargs)

    def _broken(self, flat: Sequence[Any]) -> str:
        """What the inputs break of what the package was made for, and whose call it is."""
        given = [_facts(value) for value in flat if _is_tensor(value)]
        found = broken(self._guards, given) if self._guards is not None else ()
        names = iter(self._graph.module.graph.find_nodes(op="placeholder"))
        own = [name.name for name, value in zip(names, flat, strict=False) if _is_tensor(value)]
        texts = [
            each.text.replace(f"({each.name})", f"({own[each.input]})")
            if each.input >= 0
            else each.text
            for each in found
            if not each.is_harmless
        ]
        return f"{'; '.join(texts)}{_called_at()}" if texts else ""

    def _flat(self, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        from torch.export._tree_utils import reorder_kwargs
        from torch.utils._pytree import tree_flatten

        given = self._structures[0]
        ordered = kwargs if given is None else reorder_kwargs(kwargs, given)
        values, structure = tree_flatten((args, ordered))
        is_as_exported = given is None or structure == given
        return list(values) if is_as_exported else []  # Otherwise torch says what is wrong.

    def _on_flat(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        from torch.utils._pytree import tree_leaves, tree_unflatten

        flat = list(values[: len(values) - len(self._attributes)])
        args, kwargs = (flat, {})
        if self._structures[0] is not None:
            args, kwargs = tree_unflatten(flat, self._structures[0])
        returned = tree_leaves(function(*args, **kwargs))
        return tuple(value for value in returned if isinstance(value, torch.Tensor))

    def _in_eager(self, inputs: tuple[Any, ...], *, moved: bool) -> Any:
        from torch.utils._pytree import tree_unflatten

        module = self._graph.module
        returned = list((with_perturbed_rounding(module) if moved else module)(*inputs))
        structure = self._structures[1]
        return returned if structure is None else tree_unflatten(returned, structure)

    def _skip(self) -> None:
        self._graph.calls += 1
        if self._graph.calls > self._program.instructions.calls:
            return
        notes = CallNotes(self._program.compile_id)
        notes.checked(self._graph.calls, "skipped", self._unchecked)


def _guards(path: Any, name: str | None) -> PackageGuards | None:
    """What a package demands of its inputs, as its own code says; None if it does not."""
    try:
        wrapper = read_package(Path(path), verify=False).model(name).wrapper
    except InductoscopeError:
        return None
    return None if wrapper is None else wrapper.guards


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _facts(value: torch.Tensor) -> InputFacts:
    return InputFacts(
        str(value.dtype).removeprefix("torch."),
        tuple(value.shape),
        tuple(value.stride()),
        str(value.device),
    )


def _called_at() -> str:
    file, line = calling_line()
    return f" (called at {file}:{line})" if file else ""


def _stop_if_asked(program: CompiledProgram) -> None:
    """Investigate here, if the compile itself never ends or ends the process."""
    wanted = program.instructions
    if wanted.stop_at != program.compile_id or wanted.failure is None:
        return
    if wanted.failure.stage != stages.RUNTIME:
        graph = program.new_graph()
        graph.check(program.with_attributes(program.examples))


def _investigate_error(program: CompiledProgram, error: BaseException) -> None:
    graph = program.new_graph()
    graph.hold_back(error)
    graph.check(program.with_attributes(program.examples))


def _libraries_in(files: Files) -> list[str]:
    """The libraries among the files that AOTInductor has written."""
    every = [files] if isinstance(files, str) else list(files or ())
    return [_real(path) for path in every if isinstance(path, str) and path.endswith(".so")]


def _real(path: Any) -> str:
    return str(os.path.realpath(os.fspath(path)))
