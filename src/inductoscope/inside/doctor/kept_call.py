"""Hands a call that the sentinel has kept to the investigation.

The program is run again up to the first call of the same graph, so that everything is as the
program made it: its operators, its settings, its graph. Then the kept inputs take the place of
those of that call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from inductoscope.doctor.alarm import GRAPH, INPUTS
from inductoscope.doctor.failure import NAN, WRONG
from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.compare.graphs import graph_code, snapshot
from inductoscope.inside.compare.values import is_plain
from inductoscope.inside.doctor.program_copy import run_forking
from inductoscope.inside.scope import say
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import Oracle

_SECONDS = 120.0
# The methods that give a tensor of a certain precision, the lowest first.
_METHODS = ("bfloat16", "half", "float", "double")
_METHOD_OF = {torch.float32: "float", torch.float64: "double"}


def call_to_investigate(
    candidate: Candidate, instructions: Instructions, folder: Path
) -> Candidate | None:
    """Return the kept call, in a higher precision if only that shows the failure in one call.

    Returns None if the kept call is not for this graph, or cannot be read.

    A bias may be too small to show in one call among roundings of a low precision. In float32, or
    in float64, the same graph rounds so little that it shows.
    """
    folder = Path(instructions.kept)
    try:
        if (folder / GRAPH).read_text("utf-8") != graph_code(candidate.module):
            return None
        inputs = tuple(torch.load(folder / INPUTS, weights_only=True))
    except Exception:
        return None  # The inputs could not be kept.
    say("this is the graph of the call that was kept; compiling that call")
    kept = replace(candidate, inputs=inputs, earlier=None, recipes=())
    precision: torch.dtype | None = run_forking(
        precision_that_shows_it, kept, instructions.recordings, folder=folder
    )
    if precision is None:
        return kept
    _leave_autocast()
    return in_precision(kept, precision)


def precision_that_shows_it(kept: Candidate, recordings: Sequence[str]) -> torch.dtype | None:
    """Return the precision in which one call fails; None for its own, or if none does."""
    # The investigation begins with the same question, and finds the answer recorded.
    oracle = Oracle(Forks(seconds=_SECONDS, uses_gpu=bool(kept.device)), recordings)
    if _is_wrong(oracle, kept):
        return None
    _leave_autocast()
    for precision in (torch.float32, torch.float64):
        if _is_wrong(oracle, in_precision(kept, precision)):
            return precision
    return None


def _is_wrong(oracle: Oracle, candidate: Candidate) -> bool:
    failure = oracle.failure(candidate)
    return failure is not None and failure.kind in (WRONG, NAN)


def _leave_autocast() -> None:
    """Disable autocast for good, since the program ends after this call."""
    for kind in ("cpu", "cuda"):
        torch.set_autocast_enabled(kind, False)


def in_precision(candidate: Candidate, dtype: torch.dtype) -> Candidate:
    """Return the same graph with this dtype in place of every lower precision."""
    module = snapshot(candidate.module)
    for node in module.graph.nodes:
        if node.op in ("call_function", "call_method"):
            _widen(node, dtype)
    for value in (*module.parameters(), *module.buffers()):
        value.data = _wider(value.data, dtype)
    module.recompile()
    inputs = tuple(_wider(value, dtype) for value in candidate.inputs)
    return replace(candidate, inputs=inputs, recipes=(), module=module)


def _widen(node: Node, dtype: torch.dtype) -> None:
    def wider(value: Any) -> Any:
        return dtype if isinstance(value, torch.dtype) and _is_lower(value, dtype) else value

    node.args, node.kwargs = map_aggregate((node.args, node.kwargs), wider)
    lower = _METHODS[: _METHODS.index(_METHOD_OF[dtype])]
    if node.op == "call_method" and node.target in lower:
        node.target = _METHOD_OF[dtype]
    if getattr(node.target, "__name__", "") == "_enter_autocast":
        # The arguments are device, dtype, enabled, cache_enabled.
        arguments = list(node.args)
        arguments[2:3] = [False]
        node.args = tuple(arguments)


def _wider(value: Any, dtype: torch.dtype) -> Any:
    if not is_plain(value) or not _is_lower(value.dtype, dtype):
        return value
    return value.detach().to(dtype).requires_grad_(value.requires_grad)


def _is_lower(one: torch.dtype, other: torch.dtype) -> bool:
    return bool(one.is_floating_point and torch.finfo(one).bits < torch.finfo(other).bits)
