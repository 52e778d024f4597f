"""What the page says of one graph in places that are about all of them.

Made where the graph's own chunks are made, from the same join, and small enough to be kept of all
graphs: nothing of a graph is read twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from inductoscope.analysis.fusion.ledger import graph_ledger
from inductoscope.analysis.fusion.row import LedgerRow, Outcome
from inductoscope.model.entities import Kernel
from inductoscope.model.join import GraphJoin
from inductoscope.model.modules import Module
from inductoscope.profiling.kernels.work import GraphWork
from inductoscope.views.page.chunk_contract import NamedThing
from inductoscope.views.page.names import named_things
from inductoscope.views.page.profile_contract import SharedTable

# Outermost first.
Modules = tuple[Module, ...]


@dataclass(frozen=True, eq=False, repr=False)
class CallSummary:
    """One call of a kernel in a wrapper."""

    # The bytes that it has to move at least; None where that is not known.
    moved: int | None
    operations: str
    lines: int
    # Of the operations that it computes, where they are part of a module.
    modules: tuple[Modules, ...]


@dataclass(frozen=True, eq=False, repr=False)
class GraphSummary:
    """One graph, for the tables of all graphs."""

    # In the order of the wrapper.
    calls: tuple[CallSummary, ...]
    # How many operations are part of each.
    modules: dict[Modules, int]
    named: tuple[NamedThing, ...]
    ledger: SharedTable[LedgerRow]
    outcomes: Counter[Outcome]


def summarise(number: int, join: GraphJoin) -> GraphSummary:
    """The graph with this number."""
    rows = tuple(graph_ledger(join.recording, join.compile, join.graph))
    owners = _owners(join)
    work = GraphWork(join)
    return GraphSummary(
        calls=tuple(
            CallSummary(
                moved=work.moved(kernel),
                operations=", ".join(_operations(join, kernel)),
                lines=join.text(kernel.digest).count("\n"),
                modules=tuple(owners.get(id(kernel), ())),
            )
            for kernel in join.graph.kernels
        ),
        modules=dict(Counter(node.modules for node in (join.final.calls if join.final else ()))),
        named=tuple(named_things(number, join)),
        ledger=SharedTable.of(LedgerRow, rows),
        outcomes=Counter(row.outcome for row in rows),
    )


def _owners(join: GraphJoin) -> dict[int, dict[Modules, None]]:
    """The modules that each kernel computes something of; sums of gradients are of none."""
    found: dict[int, dict[Modules, None]] = {}
    for node in join.final.calls if join.final else ():
        if node.modules:
            for kernel in join.kernels(join.leaves(node)):
                found.setdefault(id(kernel), {})[node.modules] = None
    return found


def _operations(join: GraphJoin, kernel: Kernel) -> Iterable[str]:
    """What a kernel computes; torch also lists what led to it, and only that may be known."""
    computed = [name for node in kernel.nodes for name in join.computed.get(node, ())]
    return dict.fromkeys(computed) or kernel.origins
