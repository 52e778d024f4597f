"""Nodes that may be enough to show a failure."""

from __future__ import annotations

from inductoscope.doctor.failure import NAN, WRONG
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.subgraph import RecordedGraph, subgraph


def nodes_wrong_alone(recorded: RecordedGraph, oracle: Oracle) -> list[list[str]]:
    """Nodes that are wrong even on their own, on the values that they read in eager.

    One compile of all nodes side by side tells, because rounding in one cannot reach another.
    """
    apart = subgraph(recorded, recorded.names, separate=True)
    if apart is None:
        return []
    found = oracle.failure(apart)
    if found is None or found.kind not in (WRONG, NAN):
        return []
    outputs = apart.module.graph.output_node().args[0]
    wrong = []
    for place in found.where:
        words = place.split()
        if words[:1] == ["output"] and isinstance(outputs, tuple):
            node = outputs[int(words[1])]
            wrong.append([_owner(recorded, getattr(node, "name", ""))])
    return wrong


def _owner(recorded: RecordedGraph, name: str) -> str:
    """The node itself, or the one that computed the results of which it takes one."""
    known = set(recorded.names)
    while name not in known:
        node = next((n for n in recorded.candidate.module.graph.nodes if n.name == name), None)
        if node is None or not node.all_input_nodes:
            return name
        name = node.all_input_nodes[0].name
    return name
