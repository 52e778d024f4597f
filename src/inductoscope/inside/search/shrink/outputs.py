"""Leaves out outputs that the failure does not need."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from torch.fx import Graph, GraphModule, Node

from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.shrink.shrink_pass import (
    Proposals,
    ShrinkPass,
    Subject,
    smallest_subset_of,
)
from inductoscope.model.entities import NotedDifference


def _count(candidate: Candidate) -> int:
    return len(candidate.module.graph.output_node().args[0])


def _propose(subject: Subject) -> Proposals:
    candidate = subject.candidate
    count = _count(candidate)
    if count < 2:
        return None
    suspected = [
        int(words[1])
        for place in subject.failure.where
        if (words := place.split())[:1] == ["output"]
    ]
    if suspected and (yield [with_outputs(candidate, suspected[:1])]) is not None:
        return None
    yield from smallest_subset_of(
        range(count),
        lambda numbers: with_outputs(candidate, list(numbers)),
        subject.guesses,
    )
    return None


def with_outputs(candidate: Candidate, numbers: list[int]) -> Candidate:
    """The candidate with only these outputs, and the inputs that they need."""
    graph = Graph()
    outputs = graph.graph_copy(candidate.module.graph, {})
    graph.output(tuple(outputs[number] for number in numbers))
    # Inputs that nothing reads any more are dropped; operations that write in place stay.
    graph.eliminate_dead_code(has_effect)
    return with_used_inputs(candidate, graph)


def with_used_inputs(candidate: Candidate, graph: Graph) -> Candidate:
    """The candidate with a graph that may read fewer inputs; the others are dropped."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    used = [bool(node.users) for node in placeholders]
    for node in placeholders:
        if not node.users:
            graph.erase_node(node)
    changed = replace(candidate, module=GraphModule(candidate.module, graph))
    return changed.with_calls_changed(lambda inputs: itertools.compress(inputs, used))


def with_outputs_that_count(candidate: Candidate, notes: Sequence[NotedDifference]) -> Candidate:
    """The candidate with only the outputs whose strides count, if strides are all that does."""
    if not notes or any(note.aspect != "stride" for note in notes):
        return candidate
    return with_outputs(candidate, [int(note.where.split()[1]) for note in notes])


def has_effect(node: Node) -> bool:
    """Whether a node does more than compute a result."""
    if node.op in ("placeholder", "output"):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name == "setitem" or (name.endswith("_") and not name.endswith("__"))


PASS = ShrinkPass("outputs", "leaving out outputs (nodes left: {size})", _count, _propose)
