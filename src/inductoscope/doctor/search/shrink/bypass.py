"""Leaves nodes out by letting what follows read what they read.

A part that is cut out gets a new input for every node that is missing. Some failures need two nodes
to read the very same value; there a node is bypassed instead: its users take its input.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.search.candidate import Candidate, is_unpacking
from inductoscope.doctor.search.delta_debugging import smallest_subset
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.shrink.outputs import has_effect
from inductoscope.doctor.search.subgraph import record_values


def bypass_nodes(candidate: Candidate, failure: Failure, oracle: Oracle) -> Candidate:
    """The candidate without the nodes that can be bypassed and are not needed."""
    inputs = _stand_ins(candidate)
    names = list(inputs)
    if not names:
        return candidate

    def first(attempts: Any) -> int | None:
        return oracle.first([_bypassed(candidate, inputs, keep) for keep in attempts], failure)

    if first([[]]) is not None:
        return _bypassed(candidate, inputs, ())
    kept = smallest_subset(names, first)
    return candidate if len(kept) == len(names) else _bypassed(candidate, inputs, kept)


def _stand_ins(candidate: Candidate) -> dict[str, str]:
    """Nodes that can be bypassed, each with the input of the same form that takes its place."""
    made = record_values(candidate).made
    found = {}
    for node in candidate.operations:
        value = made.get(node.name)
        if has_effect(node) or is_unpacking(node) or not isinstance(value, torch.Tensor):
            continue
        for source in node.all_input_nodes:
            other = made.get(source.name)
            if isinstance(other, torch.Tensor) and _form(other) == _form(value):
                found[node.name] = source.name
                break
    return found


def _form(value: torch.Tensor) -> tuple[Any, ...]:
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
            # Those that were to be read in its place are read through it.
            new[name] = new[source]
    graph.eliminate_dead_code(has_effect)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    used = [bool(node.users) for node in placeholders]
    for node in [node for node in placeholders if not node.users]:
        graph.erase_node(node)
    inputs = tuple(v for v, is_used in zip(candidate.inputs, used, strict=True) if is_used)
    module = GraphModule(candidate.module, graph)
    return replace(candidate, module=module, inputs=inputs, recipes=())
