"""Finds the pair that a user means: by scheduler node, buffer, kernel, FX node or operation.

An operation belongs to the node that computes its result. Its name also appears in the origins of
later nodes, even of library calls that only read the result, so origins are the last resort.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import NoReturn

from inductoscope.analysis.fusion.ledger import LedgerRow, graph_ledger
from inductoscope.errors import UsageError
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.join import GraphJoin
from inductoscope.model.operation_trace import by_operation
from inductoscope.model.schedule import ScheduledNode

_MOST_LISTED = 8
_UNRELATED = (
    "They share no buffer, so torch does not consider them: it pairs nodes that use the same "
    "buffer (with aggressive_fusion, also nodes with equal loops)."
)


@dataclass(frozen=True)
class Meaning:
    """The scheduler nodes that a name stands for in one graph, and how it was resolved."""

    graph: str
    nodes: tuple[str, ...]
    # True for a kernel or a fused group: every node in it is meant.
    whole: bool = False
    # False if only origins identify the nodes.
    certain: bool = True


@dataclass(frozen=True)
class FoundPair:
    """The requested pair; `words` adds what is known, or says why there is no pair."""

    graph: str
    row: LedgerRow | None
    words: str = ""
    # The number of further pairs between the same two kernels.
    others: int = 0


def find_pair(
    recording: Recording,
    first: str,
    second: str,
    *,
    graph: str = "",
    bandwidth: float | None = None,
) -> FoundPair:
    """Find the pair called `first` and `second`; UsageError if it is unknown or ambiguous."""
    joins = [GraphJoin(recording, *item) for item in _graphs(recording, graph)]
    if not joins:
        _refuse_graph(recording, graph)
    meanings = [
        (join, _meaning(join, first), other)
        for join in joins
        if (other := _meaning(join, second)) is not None
    ]
    both = [(join, one, other) for join, one, other in meanings if one is not None]
    if not both:
        _refuse_unknown(joins, (first, second))
    found = [_found(*meaning, bandwidth) for meaning in both]
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
    join: GraphJoin, one: Meaning, other: Meaning, bandwidth: float | None
) -> list[FoundPair]:
    key, same = join.graph.key, set(one.nodes) & set(other.nodes)
    if set(one.nodes) == set(other.nodes) and (len(same) == 1 or one.whole):
        return [FoundPair(key, None, _same(same))]
    rows = [
        row
        for row in graph_ledger(join.recording, join.compile, join.graph, bandwidth=bandwidth)
        if (row.first in one.nodes and row.second in other.nodes)
        or (row.first in other.nodes and row.second in one.nodes)
    ]
    partly = _partly_same(same, certain=one.certain and other.certain)
    if not rows:
        return [FoundPair(key, None, partly or _UNRELATED)]
    if one.whole and other.whole:
        costliest = max(rows, key=lambda row: row.bytes or 0)
        return [FoundPair(key, costliest, others=len(rows) - 1)]
    return [FoundPair(key, row, partly) for row in rows]


def _same(nodes: set[str]) -> str:
    if len(nodes) > 1:
        return f"Both names mean the same kernel, of {_listed(nodes)}. Name two of these."
    return (
        f"Both names mean the same scheduler node ({_listed(nodes)}): lowering put them into one "
        "loop, before any fusion."
    )


def _partly_same(nodes: set[str], *, certain: bool) -> str:
    if not nodes:
        return ""
    if not certain:
        return f"torch names both as origins of {_listed(nodes)}, maybe only because it reads them"
    return f"both are in {_listed(nodes)}: one loop from the start, before any fusion"


def _listed(nodes: set[str]) -> str:
    names = sorted(nodes, key=lambda name: (len(name), name))
    return ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")


def _meaning(join: GraphJoin, name: str) -> Meaning | None:
    key, nodes = join.graph.key, [leaf for item in join.before for leaf in item.leaves]
    if named := [n.name for n in nodes if n.name == name or name in {b.name for b in n.buffers}]:
        return Meaning(key, tuple(named))
    kernels = [kernel.nodes for kernel in join.graph.kernels if kernel.name == name] or [
        tuple(leaf.name for leaf in group.leaves) for group in join.after if group.name == name
    ]
    if kernels:
        # A library function has the same name in every call.
        every = tuple(node for kernel in kernels for node in kernel)
        return Meaning(key, every, whole=len(kernels) == 1)
    wanted = _fx_nodes(join, nodes, name)
    found = [node for one in wanted for node in _computing(join, nodes, one)]
    holding = [node.name for node in nodes if not wanted.isdisjoint(node.origins)]
    every = tuple(dict.fromkeys(found or holding))
    return Meaning(key, every, certain=bool(found)) if every else None


def _fx_nodes(join: GraphJoin, nodes: Iterable[ScheduledNode], name: str) -> Set[str]:
    """Return the FX node with this name, or else the nodes of an operation, in order."""
    if any(name in node.origins for node in nodes):
        return {name: None}.keys()
    select = by_operation(name)
    calls = join.final.calls if join.final else ()
    return dict.fromkeys(node.name for node in calls if select(node)).keys()


def _computing(join: GraphJoin, nodes: Iterable[ScheduledNode], name: str) -> list[str]:
    """Return the nodes that end in an FX node, or else those whose loop bodies contain it."""
    holding = [node for node in nodes if name in node.origins]
    ending = [
        node.name
        for node in holding
        if node.origins[-1] == name or name in {buffer.origin for buffer in node.buffers}
    ]
    if ending or not holding or join.final is None:
        return ending
    return [n for node in join.final.calls if node.name == name for n in join.steps(node, holding)]


def _refuse_graph(recording: Recording, key: str) -> NoReturn:
    what = f"graph {key!r}" if key else "graph that Inductor compiled"
    known = ", ".join(item.key for item in recording.graphs) or "none"
    raise UsageError(f"There is no {what}. Graphs of this recording: {known}.")


def check_graph(recording: Recording, key: str) -> None:
    if key and not any(_graphs(recording, key)):
        _refuse_graph(recording, key)


def _refuse_unknown(joins: list[GraphJoin], names: tuple[str, str]) -> NoReturn:
    for name in names:
        if not any(_meaning(join, name) for join in joins):
            raise UsageError(
                f"Nothing is called {name!r}: no scheduler node, buffer, kernel, FX node or "
                "operation. 'inductoscope show --stage scheduler' lists them."
            )
    raise UsageError(f"{names[0]!r} and {names[1]!r} are in different graphs, so they cannot fuse.")


def _ambiguous(first: str, second: str, found: list[FoundPair]) -> str:
    lines = [
        f"{item.row.first} {item.row.second} in '{item.graph}'"
        if item.row
        else f"in '{item.graph}'"
        for item in found[:_MOST_LISTED]
    ]
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return (
        f"{first!r} with {second!r} can be {len(found)} pairs: {'; '.join(lines)}{more}. "
        "Name one by its scheduler nodes, and its graph with --graph."
    )
