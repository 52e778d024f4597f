"""Leaves out outputs that the failure does not need."""

from __future__ import annotations

from dataclasses import replace

from torch.fx import Graph, GraphModule, Node

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.delta_debugging import smallest_subset
from inductoscope.doctor.search.oracle import Oracle


def shrink_outputs(candidate: Candidate, failure: Failure, oracle: Oracle) -> Candidate:
    """The candidate with as few outputs as show the failure."""
    count = len(candidate.module.graph.output_node().args[0])
    if count < 2:
        return candidate
    suspected = [
        int(words[1]) for place in failure.where if (words := place.split())[:1] == ["output"]
    ]
    start = list(range(count))
    if suspected and oracle.first([_with_outputs(candidate, suspected[:1])], failure) is not None:
        start = suspected[:1]
    kept = smallest_subset(
        start,
        lambda attempts: oracle.first(
            [_with_outputs(candidate, list(numbers)) for numbers in attempts], failure
        ),
    )
    if len(kept) == count:
        return candidate
    return _with_outputs(candidate, kept)


def _with_outputs(candidate: Candidate, numbers: list[int]) -> Candidate:
    graph = Graph()
    outputs = graph.graph_copy(candidate.module.graph, {})
    graph.output(tuple(outputs[number] for number in numbers))
    # Inputs that nothing reads any more go too; operations that write in place stay.
    graph.eliminate_dead_code(has_effect)
    unused = [n for n in graph.nodes if n.op == "placeholder" and not n.users]
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    inputs = tuple(
        value
        for node, value in zip(placeholders, candidate.inputs, strict=True)
        if node not in unused
    )
    for node in unused:
        graph.erase_node(node)
    return replace(
        candidate, module=GraphModule(candidate.module, graph), inputs=inputs, recipes=()
    )


def has_effect(node: Node) -> bool:
    """Whether a node does more than give a result."""
    if node.op in ("placeholder", "output"):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name == "setitem" or (name.endswith("_") and not name.endswith("__"))
