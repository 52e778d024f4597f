"""Bypasses nodes: their users read what they read.

A part that is cut out gets a new input for every node that is missing. Some failures need two nodes
to read the same value; for them a node is bypassed instead, so that its users read its input.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any

import torch
from torch.fx import Graph, Node

from inductoscope.inside.search.candidate import Candidate, is_unpacking
from inductoscope.inside.search.shrink.outputs import has_effect, with_used_inputs
from inductoscope.inside.search.shrink.shrink_pass import Batch, smallest_subset_of
from inductoscope.inside.search.subgraph import record_values


def bypassed(candidate: Candidate, guesses: int) -> Generator[Batch, int | None, Candidate]:
    """The candidate without the nodes that can be bypassed and are not needed."""
    stand_ins = _stand_ins(candidate)
    names = list(stand_ins)
    if not names:
        return candidate
    without_any = _bypassed(candidate, stand_ins, ())
    if (yield [without_any]) is not None:
        return without_any
    kept = yield from smallest_subset_of(
        names, lambda keep: _bypassed(candidate, stand_ins, keep), guesses
    )
    return candidate if len(kept) == len(names) else _bypassed(candidate, stand_ins, kept)


def _stand_ins(candidate: Candidate) -> dict[str, str]:
    """Nodes that can be bypassed, each with an input of the same shape and type to stand in."""
    made = record_values(candidate).made
    found = {}
    for node in candidate.operations:
        value = made.get(node.name)
        if has_effect(node) or is_unpacking(node) or not isinstance(value, torch.Tensor):
            continue
        for source in node.all_input_nodes:
            other = made.get(source.name)
            if isinstance(other, torch.Tensor) and _shape_and_type(other) == _shape_and_type(value):
                found[node.name] = source.name
                break
    return found


def _shape_and_type(value: torch.Tensor) -> tuple[Any, ...]:
    return value.shape, value.dtype, value.device


def _bypassed(candidate: Candidate, stand_ins: dict[str, str], keep: Collection[str]) -> Candidate:
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(candidate.module.graph, copies))
    new = {node.name: copy for node, copy in copies.items()}
    for name, source in stand_ins.items():
        if name not in keep:
            new[name].replace_all_uses_with(new[source])
            graph.erase_node(new[name])
            # Nodes for which it was to stand in are replaced by its own stand-in.
            new[name] = new[source]
    graph.eliminate_dead_code(has_effect)
    return with_used_inputs(candidate, graph)
