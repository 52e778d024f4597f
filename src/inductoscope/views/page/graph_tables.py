"""Tables over all graphs, built from one summary per graph: kernels, names, modules, fusion.

A summary is made together with the graph's own chunks, from the same join, and is small enough to
be kept for all graphs, so that no graph is read twice.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inductoscope.analysis.fusion.ledger import (
    NEVER,
    REFUSED,
    Condition,
    LedgerRow,
    Outcome,
    conditions,
    graph_ledger,
)
from inductoscope.model.entities import Compile, InductorGraph, NativeCompile
from inductoscope.model.join import GraphJoin
from inductoscope.model.kernels import LIBRARY, NativeIndex, generated
from inductoscope.profiling.kernel_work import GraphWork
from inductoscope.recording.events import Kernel
from inductoscope.recording.values import members, texts
from inductoscope.torch_facts.frames import Frame
from inductoscope.torch_facts.printed_graphs import Module
from inductoscope.views.page.contract import (
    KernelRow,
    ModuleKernel,
    ModuleTree,
    NamedThing,
    PageModule,
    PageTable,
    SharedTable,
)
from inductoscope.views.page.graph_chunks import kernel_id

# The modules of an operation, outermost first.
Modules = tuple[Module, ...]


@dataclass(frozen=True, eq=False, repr=False)
class CallSummary:
    # The minimum bytes that the call moves; None if unknown.
    moved: int | None
    operations: str
    lines: int
    # The modules of the operations that the kernel computes, if they have any.
    modules: tuple[Modules, ...]


@dataclass(frozen=True, eq=False, repr=False)
class GraphSummary:
    # The calls in wrapper order.
    calls: tuple[CallSummary, ...]
    # The number of operations in each module.
    modules: dict[Modules, int]
    named: tuple[NamedThing, ...]
    ledger: SharedTable[LedgerRow]
    outcomes: Counter[Outcome]
    # Each with its costliest loss only.
    conditions: tuple[Condition, ...]


def summarise(number: int, join: GraphJoin) -> GraphSummary:
    rows = tuple(graph_ledger(join.recording, join.compile, join.graph))
    owners = _owners(join)
    work = GraphWork(join)
    return GraphSummary(
        calls=tuple(
            CallSummary(
                moved=work.moved(kernel),
                operations=", ".join(_operations(join, kernel)),
                lines=join.text(kernel.payload).count("\n"),
                modules=tuple(owners.get(id(kernel), ())),
            )
            for kernel in join.graph.kernels
        ),
        modules=dict(Counter(node.modules for node in (join.final.calls if join.final else ()))),
        named=tuple(named_things(number, join)),
        ledger=SharedTable.of(LedgerRow, rows),
        outcomes=Counter(row.outcome for row in rows),
        conditions=tuple(
            replace(found, losses=found.losses[:1])
            for outcome in (REFUSED, NEVER)
            for found in conditions(rows, outcome)
        ),
    )


def _owners(join: GraphJoin) -> dict[int, dict[Modules, None]]:
    """Return the modules that each kernel computes part of; gradient sums belong to none."""
    found: dict[int, dict[Modules, None]] = {}
    for node in join.final.calls if join.final else ():
        if node.modules:
            for kernel in join.kernels(join.leaves(node)):
                found.setdefault(id(kernel), {})[node.modules] = None
    return found


def _operations(join: GraphJoin, kernel: Kernel) -> Iterable[str]:
    """Return the operations that a kernel computes; fall back to the origins that torch lists."""
    computed = [name for node in kernel.nodes for name in join.computed.get(node, ())]
    return dict.fromkeys(computed) or kernel.origins


# --- The table of kernels: each once, however often it is called, and every library call ----------


def kernel_rows(
    graphs: Sequence[InductorGraph], summaries: Sequence[GraphSummary], natives: NativeIndex
) -> Iterator[KernelRow]:
    """Yield the kernels of all graphs. A native compile counts where it was first requested."""
    counted: set[int] = set()
    for number, (graph, summary) in enumerate(zip(graphs, summaries, strict=True)):
        calls: dict[str, list[CallSummary]] = {}
        for kernel, call in zip(graph.kernels, summary.calls, strict=True):
            calls.setdefault(kernel.name, []).append(call)
        for kernel in generated(graph):
            known = natives.of(kernel)
            fresh = tuple(native for native in known if id(native) not in counted)
            counted.update(map(id, fresh))
            yield _kernel(number, kernel, _made(known, fresh), calls[kernel.name], fresh)
        for kernel, call in zip(graph.kernels, summary.calls, strict=True):
            if kernel.language == LIBRARY:
                yield _kernel(number, kernel, "library call", [call], ())


def costliest(joins: Iterable[GraphJoin], count: int) -> list[Kernel]:
    """Return the C++ kernels that move the most bytes; kernels of unknown size come last."""
    found: dict[str, tuple[int, Kernel]] = {}
    for join in joins:
        kernels = [kernel for kernel in join.graph.kernels if kernel.language == "C++"]
        if not kernels:
            continue  # Counting bytes would decode the graph.
        work = GraphWork(join)
        for kernel in kernels:
            before, first = found.get(kernel.payload, (0, kernel))
            found[kernel.payload] = before + (work.moved(kernel) or 0), first
    ordered = sorted(found.values(), key=lambda pair: -pair[0])
    return [kernel for _, kernel in ordered[:count]]


def _made(natives: tuple[NativeCompile, ...], fresh: tuple[NativeCompile, ...]) -> str:
    if any(not native.cache_hit for native in fresh):
        return "compiled"
    if natives and not fresh:
        return "reused"
    return "from a cache" if natives else ""


def _kernel(
    number: int,
    kernel: Kernel,
    made: str,
    calls: list[CallSummary],
    natives: tuple[NativeCompile, ...],
) -> KernelRow:
    seconds = _sum(native.seconds for native in natives)
    return KernelRow.showing(
        kernel,
        id=kernel_id(kernel),
        made=made,
        calls=len(calls),
        graph=number,
        operations=calls[0].operations,
        lines=calls[0].lines,
        bytes=_sum(call.moved for call in calls) or None,
        seconds=None if seconds is None else round(seconds, 3),
        registers=_most(native.registers for native in natives),
        spills=_most(native.spills for native in natives),
        shared=_most(native.shared for native in natives),
    )


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)


# --- Everything that has a name, for the search: operations, buffers, nodes, source lines ---------

# Operations of one source line that a link leads to.
_MOST = 40


def named_things(number: int, join: GraphJoin) -> Iterator[NamedThing]:
    """Yield everything searchable in a graph; `number` is its position in the index."""
    # Every frame of an operation's stack, in the program and in its libraries.
    lines: dict[tuple[str, int], tuple[Frame, list[str]]] = {}
    for node in join.final.calls if join.final else ():
        told = [node.target, node.aten if node.aten not in node.target else ""]
        told += [_place(node.place), node.place.code] if node.place else []
        note = " · ".join(filter(None, told))
        yield NamedThing("operation", node.name, note, number, (node.name,))
        for frame in node.stack:
            lines.setdefault((frame.file, frame.line), (frame, []))[1].append(node.name)
    for frame, names in lines.values():
        yield NamedThing("source", _place(frame), frame.code, number, tuple(names[:_MOST]))
    for leaf in (leaf for item in join.before for leaf in item.leaves):
        computed = ", ".join(join.computed.get(leaf.name, ()))
        yield NamedThing("node", leaf.name, f"{leaf.kind} {computed}".strip(), number, ())
    for name, entry in members(join.recording.data(join.graph.buffers)).items():
        found = members(entry)
        note = str(found.get("origin") or "") or ", ".join(texts(found.get("origins")))
        yield NamedThing("buffer", str(name), note, number, ())


def _place(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


# --- The model as a tree of modules, each kernel at the innermost module that holds all of it -----

Graphs = Sequence[tuple[Compile, InductorGraph]]
# Seconds of all measured calls, by the number of a graph and the place of a call in its wrapper.
Seconds = Mapping[tuple[int, int], float]


def module_tree(graphs: Graphs, summaries: Sequence[GraphSummary], seconds: Seconds) -> ModuleTree:
    tree = GrowingTree()
    # For each module a kernel once: its name, and of each call the bytes and seconds.
    called: dict[tuple[_Node, int, str], tuple[str, list[_Cost]]] = {}
    for number, ((compile_, graph), summary) in enumerate(zip(graphs, summaries, strict=True)):
        nodes = {
            modules: tree.note(tree.root(compile_), modules, number, count)
            for modules, count in summary.modules.items()
        }
        for at, (kernel, call) in enumerate(zip(graph.kernels, summary.calls, strict=True)):
            owner = _common([nodes[modules] for modules in call.modules]) or tree.root(compile_)
            _, costs = called.setdefault((owner, number, kernel_id(kernel)), (kernel.name, []))
            costs.append((call.moved, seconds.get((number, at))))
    kernels = [
        ModuleKernel(
            module=owner.row,
            graph=graph,
            id=name,
            name=kernel,
            calls=len(costs),
            bytes=_sum(moved for moved, _ in costs),
            seconds=_sum(spent for _, spent in costs),
        )
        for (owner, graph, name), (kernel, costs) in called.items()
    ]
    return ModuleTree(
        modules=PageTable.of(PageModule, map(module_row, tree.nodes)),
        kernels=PageTable.of(ModuleKernel, kernels),
    )


# The bytes that a call has to move, and its seconds; None where that is not known.
_Cost = tuple[int | None, float | None]


def _sum(values: Iterable[Any]) -> Any:
    """Sum the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass(eq=False)
class _Node:
    """A module, or a compiled function above all of its modules."""

    row: int
    path: str
    label: str
    kind: str
    parent: _Node | None = None
    operations: int = 0
    graphs: set[int] = field(default_factory=set)
    parts: dict[str, _Node] = field(default_factory=dict)

    @property
    def line(self) -> list[_Node]:
        return [*(self.parent.line if self.parent else ()), self]

    @property
    def structure(self) -> tuple[object, ...]:
        """The structure of a module with numbers in names ignored: equal for repeated layers."""
        inner = tuple(part.structure for part in self.parts.values())
        return (re.sub(r"\d+", "#", self.label), self.kind, inner)


class GrowingTree:
    """A tree of modules under construction, by compiled function and module path."""

    def __init__(self) -> None:
        self._roots: dict[tuple[str, str], _Node] = {}
        # Modules come before their parts.
        self.nodes: list[_Node] = []

    def _add(self, *about: Any) -> _Node:
        node = _Node(len(self.nodes), *about)
        self.nodes.append(node)
        return node

    def root(self, compile_: Compile) -> _Node:
        """Return the root of a compiled function, which its recompiles share."""
        function = compile_.resumed or compile_.function
        place = f"{os.path.basename(compile_.file)}:{compile_.line}" if compile_.file else ""
        key = (function, place)
        if key not in self._roots:
            self._roots[key] = self._add("", function or compile_.id, place)
        return self._roots[key]

    def note(self, root: _Node, modules: Sequence[Module], graph: int, count: int = 1) -> _Node:
        """Add `count` operations of a graph to the innermost of these modules, and return it."""
        node = root
        for module in modules:
            if module.path == node.path:
                continue  # The outermost module is the compiled one.
            known = node.parts.get(module.path)
            if known is None:
                label = module.path.removeprefix(f"{node.path}." if node.path else "")
                known = node.parts[module.path] = self._add(module.path, label, module.kind, node)
            node = known
        for above in node.line:
            above.operations += count
            above.graphs.add(graph)
        return node


def _common(nodes: Sequence[_Node]) -> _Node | None:
    """Return the innermost common module; None if there is none."""
    found: _Node | None = None
    for level in zip(*(node.line for node in nodes), strict=False):
        if any(node is not level[0] for node in level):
            break
        found = level[0]
    return found


def module_row(node: _Node) -> PageModule:
    beside = node.parent.parts.values() if node.parent else ()
    alike = [other for other in beside if other.structure == node.structure]
    return PageModule.showing(
        node,
        parent=node.parent.row if node.parent else None,
        graphs=tuple(sorted(node.graphs)),
        alike=alike[0].row if len(alike) > 1 else None,
    )
