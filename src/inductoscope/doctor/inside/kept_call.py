"""Hands a call that the sentinel has kept to the investigation.

The program is run again up to the first call of the same graph, so that everything is as the
program made it: its operators, its settings, its graph. Then the kept inputs take the place of
those of that call.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from inductoscope.doctor.alarm import GRAPH, INPUTS
from inductoscope.doctor.compare.graphs import graph_code, snapshot
from inductoscope.doctor.failure import NAN, WRONG
from inductoscope.doctor.handover import say
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.shrink.dtypes import common

_SECONDS = 120.0
_LOW = (torch.bfloat16, torch.float16)
_LOW_METHODS = ("bfloat16", "half")


def call_to_investigate(
    candidate: Candidate, instructions: Instructions, place: Path
) -> Candidate | None:
    """The kept call: as it is if one call shows what is wrong, otherwise in float32.

    None if what was kept is not for this graph, or cannot be read.

    A bias may be too small to show in one call among roundings of a low precision. In float32 the
    same graph rounds so little that it shows.
    """
    inputs = _kept_inputs(candidate, Path(instructions.kept))
    if inputs is None:
        return None
    say(place, "this is the graph of the call that was kept; compiling that call")
    kept = replace(candidate, inputs=inputs, earlier=None, recipes=())
    # The investigation begins with the same question, and finds the answer in the journal.
    oracle = Oracle(Forks(seconds=_SECONDS), Path(instructions.journal))
    if _is_wrong(oracle, kept):
        return kept
    _leave_autocast()
    wider = in_float32(kept)
    return wider if _is_wrong(oracle, wider) else kept


def _kept_inputs(candidate: Candidate, folder: Path) -> tuple[Any, ...] | None:
    """The kept inputs; None if they are not for this graph, or could not be kept."""
    try:
        if (folder / GRAPH).read_text("utf-8") != graph_code(candidate.module):
            return None
        return tuple(torch.load(folder / INPUTS, weights_only=True))
    except Exception:
        return None


def _is_wrong(oracle: Oracle, candidate: Candidate) -> bool:
    failure = oracle.failure(candidate)
    return failure is not None and failure.kind in (WRONG, NAN)


def _leave_autocast() -> None:
    """The program ends after this call."""
    for kind in ("cpu", "cuda"):
        torch.set_autocast_enabled(kind, False)


def in_float32(candidate: Candidate) -> Candidate:
    """The same graph with float32 in place of every lower precision."""
    module = snapshot(candidate.module)
    for node in module.graph.nodes:
        if node.op in ("call_function", "call_method"):
            _widen(node)
    module.recompile()
    inputs = tuple(common(value) for value in candidate.inputs)
    return replace(candidate, inputs=inputs, recipes=(), module=module)


def _widen(node: Node) -> None:
    node.args, node.kwargs = map_aggregate((node.args, node.kwargs), _wider)
    if node.op == "call_method" and node.target in _LOW_METHODS:
        node.target = "float"
    if getattr(node.target, "__name__", "") == "_enter_autocast":
        # Device, type, whether it is on, whether casts are kept.
        arguments = list(node.args)
        arguments[2:3] = [False]
        node.args = tuple(arguments)


def _wider(value: Any) -> Any:
    return torch.float32 if isinstance(value, torch.dtype) and value in _LOW else value
