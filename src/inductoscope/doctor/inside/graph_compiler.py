"""Compiles a graph as the program wants it, or as the instructions say, and has calls checked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.capture.observe import current_compile_id
from inductoscope.capture.program_settings import backend_of
from inductoscope.doctor.compare.graphs import snapshot
from inductoscope.doctor.compare.rounding import with_perturbed_rounding
from inductoscope.doctor.inside.checked_graph import CheckedGraph
from inductoscope.doctor.inside.cuda_graphs import no_cuda_graphs
from inductoscope.doctor.inside.how_compiled import how_compiled, is_compilers_own
from inductoscope.doctor.instructions import MOVED, Instructions

TORCH_NAMES = {
    "torch._dynamo": ("lookup_backend",),
}


def checked_graph(
    original: Callable[..., Any],
    output: Any,
    module: GraphModule,
    examples: Any,
    instructions: Instructions,
    place: Path,
) -> Callable[..., Any]:
    """What replaces the compiled graph."""
    compile_id = current_compile_id() or "?"
    graph = CheckedGraph(snapshot(module), compile_id, instructions, place, *how_compiled(output))
    stand_in: Callable[..., Any] = graph.module
    if instructions.backend == MOVED:
        return with_perturbed_rounding(stand_in)
    if instructions.backend and instructions.backend != "eager":
        stand_in = torch._dynamo.lookup_backend(instructions.backend)(module, examples)
    if instructions.backend:
        return stand_in
    if instructions.stop_at == compile_id:
        graph.held_back = instructions.failure
        return graph
    is_checked = instructions.calls > 0
    without = no_cuda_graphs(backend_of(output)) if is_checked else contextlib.nullcontext()
    try:
        with without:
            graph.compiled = original(output, module, examples)
    except Exception as error:
        if not is_compilers_own(error):
            raise
        graph.hold_back(error)
    return graph
