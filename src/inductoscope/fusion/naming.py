"""Finds the pair that a user means: by scheduler node, buffer, kernel, FX node or operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inductoscope.errors import UsageError
from inductoscope.fusion.ledger import LedgerRow, graph_ledger
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import final_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.model.trace import by_operation

_MOST_LISTED = 8


@dataclass(frozen=True)
class Meaning:
    """What a name stands for in one graph: scheduler nodes, and how it was understood."""

    graph: str
    nodes: tuple[str, ...]
    # 'whole' for a kernel or a fused group, of which every node is meant.
    whole: bool = False


@dataclass(frozen=True)
class Found:
    """The pair that was asked about; without a row, `words` says what became of the two."""

    graph: str
    row: LedgerRow | None
    words: str = ""
    # Further pairs between the same two kernels.
    others: int = 0


def find_pair(recording: Recording, first: str, second: str, *, graph: str = "") -> Found:
    """The pair called `first` and `second`; UsageError where it is unknown or ambiguous."""
    meanings = [
        (compile_, item, _meaning(recording, compile_, item, first), other)
        for compile_, item in _graphs(recording, graph)
        if (other := _meaning(recording, compile_, item, second)) is not None
    ]
    both = [(c, g, one, other) for c, g, one, other in meanings if one is not None]
    if not both:
        _refuse_unknown(recording, (first, second), graph)
    found = [_found(recording, *meaning) for meaning in both]
    pairs = [item for items in found for item in items]
    with_row = [item for item in pairs if item.row is not None]
    chosen = with_row or pairs
    if len(chosen) > 1:
        raise UsageError(_ambiguous(first, second, chosen))
    return chosen[0]


def _graphs(recording: Recording, key: str) -> Iterator[tuple[Compile, InductorGraph]]:
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            if not key or graph.key == key or graph.phase == key or compile_.id == key:
                yield compile_, graph


def _found(
    recording: Recording, compile_: Compile, graph: InductorGraph, one: Meaning, other: Meaning
) -> list[Found]:
    same = set(one.nodes) & set(other.nodes)
    if same in (set(one.nodes), set(other.nodes)):
        words = (
            f"Both stand for the same scheduler node ({', '.join(sorted(same))}): what is inside "
            "of one was put into one loop when the graph was lowered, before any fusion."
        )
        return [Found(graph.key, None, words)]
    rows = [
        row
        for row in graph_ledger(recording, compile_, graph)
        if (row.first in one.nodes and row.second in other.nodes)
        or (row.first in other.nodes and row.second in one.nodes)
    ]
    if not rows:
        words = (
            "They use no common buffer, so torch makes no candidate of them: it pairs nodes that "
            "use the same buffer (with aggressive_fusion also nodes with equal loops)."
        )
        return [Found(graph.key, None, words)]
    if one.whole and other.whole:
        costliest = max(rows, key=lambda row: row.bytes or 0)
        return [Found(graph.key, costliest, others=len(rows) - 1)]
    return [Found(graph.key, row) for row in rows]


def _meaning(
    recording: Recording, compile_: Compile, graph: InductorGraph, name: str
) -> Meaning | None:
    nodes = [n for item in read_schedule(recording, graph.scheduled_before) for n in item.leaves]
    if found := _by_node(nodes, name):
        return Meaning(graph.key, tuple(found))
    if kernels := _by_kernel(recording, graph, name):
        # A library function is called by the same name again and again.
        every = tuple(node for kernel in kernels for node in kernel)
        return Meaning(graph.key, every, whole=len(kernels) == 1)
    found = _by_origin(nodes, name) or _by_operation(recording, compile_, graph, nodes, name)
    return Meaning(graph.key, tuple(found)) if found else None


def _by_node(nodes: Iterable[ScheduledNode], name: str) -> list[str]:
    return [n.name for n in nodes if n.name == name or name in {b.name for b in n.buffers}]


def _by_kernel(recording: Recording, graph: InductorGraph, name: str) -> list[tuple[str, ...]]:
    """The nodes of each kernel, or of each group, that is called so."""
    kernels = [kernel.nodes for kernel in graph.kernels if kernel.name == name]
    after = read_schedule(recording, graph.scheduled_after)
    groups = [tuple(leaf.name for leaf in g.leaves) for g in after if g.name == name]
    return kernels or groups


def _by_origin(nodes: Iterable[ScheduledNode], name: str) -> list[str]:
    """Nodes that end in an FX node, or else that hold it."""
    holding = [node for node in nodes if name in node.origins]
    ending = [n.name for n in holding if name in {b.origin for b in n.buffers}]
    return ending or [node.name for node in holding]


def _by_operation(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    nodes: list[ScheduledNode],
    name: str,
) -> list[str]:
    final = read_graph(recording, final_graph(compile_, graph))
    select = by_operation(name)
    wanted = [node.name for node in final.calls if select(node)] if final else []
    return list(dict.fromkeys(found for node in wanted for found in _by_origin(nodes, node)))


def _refuse_unknown(recording: Recording, names: tuple[str, str], graph: str) -> None:
    graphs = list(_graphs(recording, graph))
    if not graphs:
        known = ", ".join(item.key for item in recording.graphs) or "none"
        raise UsageError(f"There is no graph {graph!r}. Graphs of this recording: {known}.")
    for name in names:
        if not any(_meaning(recording, c, g, name) for c, g in graphs):
            raise UsageError(
                f"Nothing is called {name!r}: no scheduler node, buffer, kernel, FX node or "
                "operation. 'inductoscope show --stage scheduler' lists them."
            )
    raise UsageError(f"{names[0]!r} and {names[1]!r} are in different graphs, never in one kernel.")


def _ambiguous(first: str, second: str, found: list[Found]) -> str:
    lines = [_option(item) for item in found[:_MOST_LISTED]]
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return (
        f"{first!r} with {second!r} can be {len(found)} pairs: {'; '.join(lines)}{more}. "
        "Name one by its scheduler nodes, and its graph with --graph."
    )


def _option(found: Found) -> str:
    row = found.row
    return f"{row.first} {row.second} in '{found.graph}'" if row else f"in '{found.graph}'"
