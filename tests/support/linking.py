"""Links the panes of a graph in Python: what the browser must find, which does it for a reader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.model.fx import FxGraph, FxNode
from inductoscope.model.join import GraphJoin, Steps, captured_digest, lines_of_steps, why_codeless
from inductoscope.model.kernels import LIBRARY
from inductoscope.model.schedule import ScheduledNode
from inductoscope.recording.events import Kernel
from inductoscope.torch_facts.frames import Frame
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.contract import LineNumber, LinkedPanes, Operation, PagePane
from inductoscope.views.page.graph_chunks import TITLES, Pane, StagePanes, aot_digest
from inductoscope.views.report.stage_views import node_texts


def linked_panes(recording: Recording, number: int = 0) -> LinkedPanes:
    """The linked panes of the graph with this number."""
    every = [(compile_, graph) for compile_ in recording.compiles for graph in compile_.inductor]
    sources = Contents(recording).chunks[f"sources-{number}"]()
    graph = LinkedGraph(GraphJoin(recording, *every[number]))
    return LinkedPanes(
        panes=graph.views(sources.missing),
        operations=graph.operations(),
        kernels=sources.kernels,
    )


class LinkedPane(Pane):
    """A pane with the numbers beside its lines, and the lines of each key."""

    def __init__(self, language: str, full: Pane | None = None) -> None:
        super().__init__(*((full.lines, full.blocks) if full else ()))
        self.language = language
        self.numbers: dict[int, int] = {}

    @cached_property
    def places(self) -> dict[Hashable, list[LineNumber]]:
        """The lines of each key, once the pane is full."""
        found: dict[Hashable, list[LineNumber]] = defaultdict(list)
        first = 1
        for keys, count in self.blocks:
            for key in keys:
                found[key] += map(LineNumber, range(first, first + count))
            first += count
        return found


class LinkedGraph:
    """The panes of one graph, built one after another from the recording."""

    def __init__(self, join: GraphJoin) -> None:
        self._join = join
        self._captured = join.read(captured_digest(join.compile))
        stages = StagePanes(join)
        self.kernels = stages.kernels
        self.panes = {name: LinkedPane("fx") for name in TITLES}
        self.panes["python"].language = "python"
        for name, pane in stages.panes.items():
            self.panes[name] = LinkedPane(stages.language(name), pane)
        wrapper = self.panes["wrapper"]
        first_line = stages.wrapper.first_line
        wrapper.numbers = {at: first_line + at for at in range(len(wrapper.lines))}
        self._fill_graph("dynamo", self._captured)
        self._fill_graph("aot", join.read(aot_digest(join.compile, join.graph.phase)))
        self._fill_graph("post-grad", join.final)
        self._fill_python()

    def _fill_graph(self, name: str, graph: FxGraph | None) -> None:
        pane = self.panes[name]
        for node, text in zip(graph.nodes, node_texts(graph), strict=True) if graph else ():
            pane.add(text, node.name)

    def _fill_python(self) -> None:
        places: dict[str, dict[int, Frame]] = {}
        for graph in (self._captured, self._join.final):
            for node in graph.calls if graph else ():
                if node.place is not None:
                    places.setdefault(node.place.file, {})[node.place.line] = node.place
        pane = self.panes["python"]
        for file, lines in places.items():
            pane.add(f"# {file}")
            for number in sorted(lines):
                pane.numbers[len(pane.lines)] = number
                pane.add(lines[number].code, (file, number))

    def operations(self) -> tuple[Operation, ...]:
        """Every operation of the final graph with its lines in each pane."""
        final = self._join.final
        nodes = final.calls if final else ()
        return tuple(self._operation(node) for node in nodes)

    def _operation(self, node: FxNode) -> Operation:
        leaves, led_to = self._join.leaves(node), self._join.led_to(node)
        steps = self._join.steps(node, leaves)
        kernels = self._join.kernels(leaves)
        others = [kernel for kernel in self._join.kernels(led_to) if kernel not in kernels]
        place = node.place
        keys: dict[str, Sequence[Any]] = {
            "python": [(place.file, place.line)] if place else [],
            "dynamo": node.origins,
            "aot": [node.name] if self._is_in_aot(node) else node.origins,
            "post-grad": [node.name],
            "ir": [node.name],
            "scheduler": [leaf.name for leaf in leaves],
            "fused": [leaf.name for leaf in leaves],
            "wrapper": [kernel.nodes for kernel in kernels],
        }
        leads: dict[str, Sequence[Any]] = {
            "scheduler": [leaf.name for leaf in led_to],
            "fused": [leaf.name for leaf in led_to],
            "wrapper": [kernel.nodes for kernel in others],
        }
        whole = [kernel for kernel in kernels if _is_whole(kernel, leaves)]
        looped = {
            LineNumber(self._first_steps[owner] + step.number)
            for owner, found in steps.items()
            for step in found
        }
        own = self._lines_of_steps(kernels, steps).union(*map(self._whole_lines, whole))
        called = set().union(*(self._whole_lines(k) for k in others if k.language == LIBRARY))
        return Operation(
            name=node.name,
            label=node.target,
            module=node.modules[-1].path if node.modules else "",
            no_code=why_codeless(self._join, node),
            lines=self._lines_by_pane(keys, {"loop-body": looped, "kernel": own}),
            leads=self._lines_by_pane(leads, {"kernel": called}),
        )

    def _lines_by_pane(
        self, keys: Mapping[str, Sequence[Any]], known: Mapping[str, set[LineNumber]]
    ) -> dict[str, tuple[LineNumber, ...]]:
        lines = {name: self._lines(name, wanted) for name, wanted in keys.items() if wanted}
        lines |= {name: tuple(sorted(found)) for name, found in known.items() if found}
        return {name: found for name, found in lines.items() if found}

    def _is_in_aot(self, node: FxNode) -> bool:
        return bool(self.panes["aot"].places.get(node.name))

    def _lines_of_steps(self, kernels: list[Kernel], steps: Steps) -> set[LineNumber]:
        return {
            LineNumber(first + number)
            for kernel in kernels
            for number in lines_of_steps(kernel, self._join.text(kernel.payload), steps)
            for first, last in self._kernel_places[kernel.payload]
            if first < first + number <= last
        }

    def _whole_lines(self, kernel: Kernel) -> set[LineNumber]:
        """All of a kernel that was not written for the lines of loop bodies."""
        of_loops = {number for _, _, number in kernel.numbered}
        return {
            LineNumber(line)
            for first, last in self._calls.get((kernel.name, kernel.nodes), ())
            for line in range(first, last + 1)
            if line == first or line - first not in of_loops
        }

    @cached_property
    def _first_steps(self) -> dict[Any, int]:
        """The line that the loop body of each node begins at."""
        return {leaf: lines[0] for leaf, lines in self.panes["loop-body"].places.items()}

    @cached_property
    def _kernel_places(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for kernel, first, last in self.kernels:
            found[kernel.payload].append((first, last))
        return found

    @cached_property
    def _calls(self) -> dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]]:
        found: dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]] = defaultdict(list)
        for kernel, first, last in self.kernels:
            found[kernel.name, kernel.nodes].append((first, last))
        return found

    def _lines(self, name: str, keys: Sequence[Any]) -> tuple[LineNumber, ...]:
        places = self.panes[name].places
        if len(keys) == 1:  # Its lines are in order, and each is there once.
            return tuple(places.get(keys[0], ()))
        return tuple(sorted({line for key in keys for line in places.get(key, ())}))

    def views(self, missing: dict[str, str]) -> tuple[PagePane, ...]:
        """The panes as data; `missing` says why a pane is empty."""
        return tuple(self._view(name, pane, missing) for name, pane in self.panes.items())

    def _view(self, name: str, pane: LinkedPane, missing: dict[str, str]) -> PagePane:
        return PagePane(
            id=name,
            title=TITLES[name],
            language=pane.language,
            text="\n".join(pane.lines),
            numbers=tuple(map(pane.numbers.get, range(len(pane.lines)))) if pane.numbers else None,
            missing="" if pane.lines else missing.get(name, "Nothing was recorded here."),
        )


def _is_whole(kernel: Kernel, leaves: list[ScheduledNode]) -> bool:
    """Whether a kernel is a library call, or a template, for one of these nodes."""
    is_template = any(leaf.name in kernel.nodes and not leaf.body for leaf in leaves)
    return kernel.language == LIBRARY or is_template
