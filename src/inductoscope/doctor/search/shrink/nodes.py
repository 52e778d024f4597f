"""Leaves out every node that the failure does not need."""

from __future__ import annotations

from collections.abc import Sequence

from inductoscope.doctor.failure import NAN, WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.delta_debugging import smallest_subset
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.shrink.bypass import bypass_nodes
from inductoscope.doctor.search.subgraph import RecordedGraph, record_values, subgraph


def shrink_nodes(
    candidate: Candidate, failure: Failure, oracle: Oracle, hints: Sequence[Sequence[str]] = ()
) -> Candidate:
    """The smallest subgraph of the candidate that still shows the failure.

    `hints` are sets of nodes that are suspected, the strongest suspicion first.
    """
    recorded = record_values(candidate)
    start = _suspected(recorded, failure, oracle, hints)
    if start is None:
        # Nothing is wrong by itself: it takes several nodes, that may have to read one value.
        candidate = bypass_nodes(candidate, failure, oracle)
        recorded = record_values(candidate)
    kept = smallest_subset(
        start or recorded.names,
        lambda attempts: oracle.first([subgraph(recorded, names) for names in attempts], failure),
    )
    smaller = subgraph(recorded, kept)
    if smaller is None or oracle.first([smaller], failure) is None:
        return candidate
    return smaller


def _suspected(
    recorded: RecordedGraph, failure: Failure, oracle: Oracle, hints: Sequence[Sequence[str]]
) -> list[str] | None:
    """The first suspicion that shows the failure on its own."""
    known = set(recorded.names)
    suspects = [[name for name in recorded.names if name in hint] for hint in hints]
    suspects = [hint for hint in suspects if hint and len(hint) < len(known)]
    if failure.kind in (WRONG, NAN):
        suspects = nodes_wrong_alone(recorded, oracle) + suspects
    found = oracle.first([subgraph(recorded, hint) for hint in suspects], failure)
    return None if found is None else suspects[found]


def nodes_wrong_alone(recorded: RecordedGraph, oracle: Oracle) -> list[list[str]]:
    """Nodes that are wrong even when each stands alone, on the values that it has in eager.

    One compile of all nodes side by side tells; rounding of one cannot reach another.
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
            source = getattr(node, "name", "")
            wrong.append([_owner(recorded, source)])
    return wrong


def _owner(recorded: RecordedGraph, name: str) -> str:
    """The node itself, or the one that made the results that it takes one of."""
    known = set(recorded.names)
    while name not in known:
        node = next((n for n in recorded.candidate.module.graph.nodes if n.name == name), None)
        if node is None or not node.all_input_nodes:
            return name
        name = node.all_input_nodes[0].name
    return name
