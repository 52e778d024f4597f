"""Nodes that may be enough to show a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Node

from inductoscope.doctor.compare.graphs import inputs_for
from inductoscope.doctor.compare.watched_graphs import KernelDivergence
from inductoscope.doctor.failure import FEW_NODES, NAN, WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate, is_operation
from inductoscope.doctor.search.oracle import Oracle, examine
from inductoscope.doctor.search.subgraph import RecordedGraph, record_values, subgraph


def nodes_wrong_alone(recorded: RecordedGraph, oracle: Oracle) -> list[list[str]]:
    """Nodes that are wrong even on their own, on the values that they read in eager."""
    return [[name] for name in _wrong_among(recorded, recorded.names, oracle.failure)]


def all_nodes_apart(recorded: RecordedGraph) -> Candidate | None:
    """All nodes side by side, so that rounding in one cannot reach another."""
    return subgraph(recorded, recorded.names, separate=True)


def worth_trying(candidate: Candidate, names: Sequence[str]) -> list[str]:
    """The first node of each operation among those that seem to be wrong alone, and a few of them.

    They were side by side in one graph. Often all that can be wrong alone is. If the first few are
    right in graphs of their own, it probably takes several, and larger parts are tried next.
    """
    first: dict[Any, str] = {}
    for node in candidate.operations:
        if node.name in names:
            first.setdefault(node.target, node.name)
    return [*first.values()][:_MOST_ALONE]


_MOST_ALONE = 3


def operations_wrong_alone(candidate: Candidate, found: KernelDivergence) -> tuple[str, ...]:
    """The operations around a wrong buffer that are wrong even on their own."""
    wrong = nodes_wrong_in_kernel(candidate, found)
    return tuple(dict.fromkeys(str(node.target) for node in wrong))


def nodes_wrong_in_kernel(candidate: Candidate, found: KernelDivergence) -> list[Node]:
    """The nodes around a wrong buffer that are wrong even on their own, in this process.

    They are those of Inductor's graph, forward or backward, which has simpler operations
    than the program. In a large graph, only those that went into the buffer are tried.
    """
    graph = found.graph
    nodes = {node.name: node for node in graph.module.graph.nodes if is_operation(node)}
    tried = nodes.keys() if len(nodes) <= FEW_NODES else set(found.origins) & nodes.keys()
    if len({nodes[name].target for name in tried}) < 2:
        return []  # There is nothing to choose from.
    inputs = tuple(inputs_for(graph.module, graph.inputs))
    of_graph = replace(
        candidate, module=graph.module, inputs=inputs, backward=False, earlier=None, recipes=()
    )
    try:
        recorded = record_values(of_graph)
        names = [name for name in recorded.names if name in tried]
        wrong = _wrong_among(recorded, names, examine)
    except Exception:  # They are only a hint.
        return []
    return [nodes[name] for name in wrong]


def _wrong_among(
    recorded: RecordedGraph, names: Sequence[str], fails: Callable[[Candidate], Failure | None]
) -> list[str]:
    """The nodes among these that are wrong on their own, from one compile of all of them."""
    apart = subgraph(recorded, names, separate=True)
    return [] if apart is None else nodes_with_wrong_outputs(recorded, apart, fails(apart))


def nodes_with_wrong_outputs(
    recorded: RecordedGraph, apart: Candidate, found: Failure | None
) -> list[str]:
    """The nodes whose outputs are wrong in a graph in which all nodes are apart."""
    if found is None or found.kind not in (WRONG, NAN):
        return []
    outputs = apart.module.graph.output_node().args[0]
    wrong = []
    for place in found.where:
        words = place.split()
        if words[:1] == ["output"] and isinstance(outputs, tuple):
            node = outputs[int(words[1])]
            wrong.append(_owner(recorded, getattr(node, "name", "")))
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
