"""The model as a tree of modules, each kernel at the innermost module that holds all of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.model.entities import Compile, InductorGraph, Kernel
from inductoscope.model.modules import Module
from inductoscope.views.page.graph_summary import GraphSummary
from inductoscope.views.page.profile_contract import (
    ModuleKernel,
    ModuleTree,
    PageModule,
    PageTable,
)
from inductoscope.views.page.stage_panes import kernel_id

Graphs = Sequence[tuple[Compile, InductorGraph]]
# Seconds of all measured calls, by the number of a graph and the place of a call in its wrapper.
Seconds = Mapping[tuple[int, int], float]


def module_tree(graphs: Graphs, summaries: Sequence[GraphSummary], seconds: Seconds) -> ModuleTree:
    """All modules that operations of graphs are part of, and the kernels of these graphs."""
    tree = GrowingTree()
    calls: list[_OwnedCall] = []
    for number, ((compile_, graph), summary) in enumerate(zip(graphs, summaries, strict=True)):
        nodes = {
            modules: tree.note(tree.root(compile_), modules, number, count)
            for modules, count in summary.modules.items()
        }
        for at, (kernel, call) in enumerate(zip(graph.kernels, summary.calls, strict=True)):
            owner = _common([nodes[modules] for modules in call.modules]) or tree.root(compile_)
            spent = seconds.get((number, at))
            calls.append(_OwnedCall(owner, number, kernel, call.moved, spent))
    places = tree.places()
    return ModuleTree(
        modules=PageTable.of(PageModule, tree.rows()),
        kernels=PageTable.of(ModuleKernel, _kernels(calls, places)),
    )


@dataclass(eq=False)
class _Node:
    """A module, or a compiled function above all of its modules."""

    path: str
    label: str
    kind: str
    parent: _Node | None = None
    operations: int = 0
    graphs: set[int] = field(default_factory=set)
    parts: dict[str, _Node] = field(default_factory=dict)

    @property
    def line(self) -> list[_Node]:
        """From the outermost module down to this one."""
        return [*(self.parent.line if self.parent else ()), self]

    @property
    def structure(self) -> tuple[object, ...]:
        """What modules that are made alike have in common: numbers in names do not count."""
        inner = tuple(part.structure for part in self.parts.values())
        return (re.sub(r"\d+", "#", self.label), self.kind, inner)


class GrowingTree:
    """Modules by compiled function and path."""

    def __init__(self) -> None:
        self._roots: dict[tuple[str, str], _Node] = {}

    def root(self, compile_: Compile) -> _Node:
        """The compiled function; one that was compiled again is the same."""
        function = compile_.resumed or compile_.function
        place = f"{os.path.basename(compile_.file)}:{compile_.line}" if compile_.file else ""
        key = (function, place)
        if key not in self._roots:
            self._roots[key] = _Node("", function or compile_.id, place)
        return self._roots[key]

    def note(self, root: _Node, modules: Sequence[Module], graph: int, count: int = 1) -> _Node:
        """So many operations of a graph are part of these modules; returns the innermost."""
        node = root
        for module in modules:
            if module.path == node.path:
                continue  # The outermost module is what was compiled.
            known = node.parts.get(module.path)
            if known is None:
                label = module.path.removeprefix(f"{node.path}." if node.path else "")
                known = node.parts[module.path] = _Node(module.path, label, module.kind, node)
            node = known
        for above in node.line:
            above.operations += count
            above.graphs.add(graph)
        return node

    def places(self) -> dict[_Node, int]:
        """The row of every module; it comes after the one that it is a part of."""
        return {node: number for number, node in enumerate(self._nodes())}

    def rows(self) -> list[PageModule]:
        """The modules as the page has them."""
        places = self.places()
        return [_module(node, places) for node in places]

    def _nodes(self) -> Iterator[_Node]:
        waiting = list(reversed(self._roots.values()))
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.parts.values()))


def _common(nodes: Sequence[_Node]) -> _Node | None:
    """The innermost module that holds all of these."""
    found: _Node | None = None
    for level in zip(*(node.line for node in nodes), strict=False):
        if any(node is not level[0] for node in level):
            break
        found = level[0]
    return found


def _module(node: _Node, places: Mapping[_Node, int]) -> PageModule:
    beside = node.parent.parts.values() if node.parent else ()
    alike = [other for other in beside if other.structure == node.structure]
    return PageModule(
        path=node.path,
        label=node.label,
        kind=node.kind,
        parent=places[node.parent] if node.parent else None,
        operations=node.operations,
        graphs=tuple(sorted(node.graphs)),
        alike=places[alike[0]] if len(alike) > 1 else None,
    )


@dataclass(frozen=True, eq=False)
class _OwnedCall:
    """A line of a wrapper that calls a kernel, and the module that it is at."""

    owner: _Node
    graph: int
    kernel: Kernel
    bytes: int | None
    seconds: float | None


def _kernels(calls: Sequence[_OwnedCall], places: Mapping[_Node, int]) -> Iterator[ModuleKernel]:
    """A kernel once for each module that calls it."""
    found: dict[tuple[_Node, int, str], list[_OwnedCall]] = {}
    for call in calls:
        found.setdefault((call.owner, call.graph, kernel_id(call.kernel)), []).append(call)
    for (owner, graph, name), same in found.items():
        moved = [call.bytes for call in same if call.bytes is not None]
        took = [call.seconds for call in same if call.seconds is not None]
        yield ModuleKernel(
            module=places[owner],
            graph=graph,
            id=name,
            name=same[0].kernel.name,
            calls=len(same),
            bytes=sum(moved) if moved else None,
            seconds=sum(took) if took else None,
        )
