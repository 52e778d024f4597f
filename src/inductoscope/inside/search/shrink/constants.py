"""Replaces numbers in the graph by simpler ones where the failure allows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_map

from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.shrink.shrink_pass import Proposals, ShrinkPass, Subject
from inductoscope.inside.search.user_kernels import is_user_kernel

# Numbers that nobody would have to think about, the simplest first.
_SIMPLE = (1, 2, 0.5)
_MANY = 6


def _measure(candidate: Candidate) -> int:
    return sum(1 for _ in _odd_numbers(candidate.module))


def _propose(subject: Subject) -> Proposals:
    candidate = subject.candidate
    for number in list(dict.fromkeys(_odd_numbers(candidate.module)))[:_MANY]:
        attempts = [
            _replaced(candidate, number, type(number)(s)) for s in _SIMPLE if _fits(s, number)
        ]
        found = yield attempts
        if found is not None:
            candidate = attempts[found]
    return None


def _fits(simple: float, number: float) -> bool:
    return isinstance(number, float) or isinstance(simple, int)


def _odd_numbers(module: GraphModule) -> Iterator[float]:
    """Numbers that are neither simple nor, most likely, a dimension or a size of something."""
    found: list[float] = []

    def look(item: Any) -> Any:
        is_odd_float = type(item) is float and item not in (0.0, -1.0, *map(float, _SIMPLE))
        if is_odd_float or (type(item) is int and abs(item) > 64):
            found.append(item)
        return item

    for node in module.graph.nodes:
        if _has_numbers(node):
            tree_map(look, (node.args, node.kwargs))
    yield from found


def _replaced(candidate: Candidate, number: float, simple: float) -> Candidate:
    def change(item: Any) -> Any:
        return simple if type(item) is type(number) and item == number else item

    graph = Graph()
    graph.output(graph.graph_copy(candidate.module.graph, {}))
    for node in graph.nodes:
        if _has_numbers(node):
            node.args, node.kwargs = tree_map(change, (node.args, node.kwargs))
    return replace(candidate, module=GraphModule(candidate.module, graph))


def _has_numbers(node: Node) -> bool:
    """Whether numbers in a call are values; a kernel that the user wrote gets its grid there."""
    is_call = node.op in ("call_function", "call_method")
    return is_call and not is_user_kernel(node)


PASS = ShrinkPass("constants", "trying simpler constants", _measure, _propose)
