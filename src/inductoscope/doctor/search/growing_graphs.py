"""A graph at several sizes, to see how its compile time grows.

Smaller ones are its first nodes. Larger ones are copies of it: one after the other where a result
fits as an input, side by side where none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from inductoscope.doctor.compare.values import copy_values
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.subgraph import record_values, subgraph

_SHARES = (0.125, 0.25, 0.5)
_FEWEST = 2


def growing_parts(candidate: Candidate) -> list[Candidate]:
    """The first eighth, quarter, half of the nodes and so on, then the whole graph."""
    recorded = record_values(candidate)
    names = recorded.names
    sizes = sorted({int(len(names) * share) for share in _SHARES})
    parts = [subgraph(recorded, names[:size]) for size in sizes if size >= _FEWEST]
    return [*(part for part in parts if part is not None), candidate]


@dataclass(frozen=True)
class Copies:
    """A graph several times over, and how the copies are joined."""

    candidate: Candidate
    joined: str


CHAINED = "copies one after the other"
SIDE_BY_SIDE = "copies side by side"


def repeated(candidate: Candidate, times: int) -> Copies:
    """The graph so many times: each copy reads a result of the one before, if that fits."""
    link = _fitting(candidate)
    copying = _Copying(candidate, link)
    for _ in range(times):
        copying.add_copy()
    made = replace(
        candidate,
        module=copying.module(),
        inputs=tuple(copy_values(copying.inputs)),
        recipes=(),
        earlier=None,
        marks=(),
    )
    return Copies(made, SIDE_BY_SIDE if link is None else CHAINED)


class _Copying:
    """A graph that consists of ever more copies of another."""

    def __init__(self, candidate: Candidate, link: tuple[int, int] | None) -> None:
        self._candidate, self._link = candidate, link
        self._graph = Graph()
        self._outputs: list[Node] = []
        # What the last copy hands to the next one.
        self._handed: Node | None = None
        self.inputs: list[Any] = []

    def add_copy(self) -> None:
        """One more copy."""
        new: dict[Node, Node] = {}
        place = 0
        for node in self._candidate.module.graph.nodes:
            if node.op == "output":
                self._end([new[old] for old in node.all_input_nodes])
            elif node.op == "placeholder":
                new[node] = self._given(node, place)
                place += 1
            else:
                new[node] = self._graph.node_copy(node, new.__getitem__)

    def _given(self, node: Node, place: int) -> Node:
        if self._handed is not None and self._link is not None and self._link[1] == place:
            return self._handed
        self.inputs.append(self._candidate.inputs[place])
        return self._graph.placeholder(f"{node.name}_{len(self.inputs)}")

    def _end(self, outputs: list[Node]) -> None:
        self._handed = None if self._link is None else outputs[self._link[0]]
        self._outputs += outputs

    def module(self) -> GraphModule:
        """All copies."""
        self._graph.output(tuple(dict.fromkeys(self._outputs)))
        return GraphModule(self._candidate.module, _placeholders_first(self._graph))


def _placeholders_first(graph: Graph) -> Graph:
    """Dynamo wants a graph's inputs before everything else, in order."""
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    late = []
    seen = False
    for node in graph.nodes:
        seen = seen or node is first
        if seen and node.op == "placeholder":
            late.append(node)
    for node in late:
        if first is not None:
            first.prepend(node)
    return graph


def _fitting(candidate: Candidate) -> tuple[int, int] | None:
    """The first result that has shape and type of an input: its place, and the input's."""
    module = candidate.module
    outputs: Sequence[Node] = module.graph.output_node().all_input_nodes
    for number, node in enumerate(outputs):
        value = node.meta.get("example_value", node.meta.get("val"))
        if not isinstance(value, torch.Tensor):
            continue
        for place, given in enumerate(candidate.inputs):
            if _is_alike(given, value) and not isinstance(given, torch.nn.Parameter):
                return number, place
    return None


def _is_alike(given: Any, value: torch.Tensor) -> bool:
    return (
        isinstance(given, torch.Tensor)
        and tuple(given.shape) == tuple(value.shape)
        and given.dtype == value.dtype
    )
