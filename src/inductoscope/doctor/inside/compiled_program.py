"""A program that AOTInductor has compiled, as a graph whose calls can be checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.capture.hooks.ahead_of_time import compile_id_of
from inductoscope.doctor.compare.lifted_attributes import LiftedGraph, lifted
from inductoscope.doctor.compare.values import copy_values
from inductoscope.doctor.inside.checked_graph import CheckedGraph
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.search.exported_sizes import exported_sizes
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.flows import AOT_INDUCTOR

TORCH_NAMES = {
    "torch.compiler": ("_is_compiling_flag", "_is_exporting_flag"),
    "torch.utils._pytree": ("treespec_loads",),
}

# What torch adds to the settings that a user gives.
_INTERNAL = (
    "aot_inductor.output_path",
    "aot_inductor.package",
    "aot_inductor.serialized_in_spec",
    "aot_inductor.serialized_out_spec",
    "cpp_wrapper",
)


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


def compiled_program(
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


def stop_if_asked(program: CompiledProgram) -> None:
    """Investigate here, if the compile itself never ends or ends the process."""
    wanted = program.instructions
    if wanted.stop_at != program.compile_id or wanted.failure is None:
        return
    if wanted.failure.stage != stages.RUNTIME:
        _investigate(program, program.new_graph())


def investigate_error(program: CompiledProgram, error: BaseException) -> None:
    graph = program.new_graph()
    graph.held_back = graph.failure_at_run(error)
    _investigate(program, graph)


def _investigate(program: CompiledProgram, graph: CheckedGraph) -> None:
    """Investigate what `graph` holds back, on the inputs that the program was exported with."""
    with _outside_of_export():
        graph.check(program.with_attributes(program.examples))


@contextlib.contextmanager
def _outside_of_export() -> Iterator[None]:
    """torch.export takes for traced whatever is called while AOTInductor compiles."""
    before = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = False
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = before
