"""The linked panes of one graph: every level as lines, and which lines each operation is on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from inductoscope.model.codeless import why_codeless
from inductoscope.model.counts import LIBRARY, generated, library_calls
from inductoscope.model.entities import Kernel
from inductoscope.model.fx import FxGraph, FxNode
from inductoscope.model.join import GraphJoin, Steps, captured_digest, lines_of_steps
from inductoscope.model.schedule import ScheduledNode
from inductoscope.model.wrapper_lines import wrapper_lines
from inductoscope.views.page.chunk_contract import LineNumber, Operation, PagePane
from inductoscope.views.report.graph_stages import node_texts
from inductoscope.views.report.operation import ir_text, scheduled_view, scheduler_text
from inductoscope.vocabulary.frames import Frame

# The language of each pane, in the order in which they are shown.
LANGUAGES = {
    "python": "python",
    "dynamo": "fx",
    "aot": "fx",
    "post-grad": "fx",
    "ir": "ir",
    "scheduler": "scheduler",
    "fused": "scheduler",
    "loop-body": "loop",
    "kernel": "cpp",
    "wrapper": "python",
}
_TITLES = {
    "python": "Python",
    "dynamo": "Dynamo graph",
    "aot": "AOT graph",
    "post-grad": "Post-grad graph",
    "ir": "Inductor IR",
    "scheduler": "Scheduler",
    "fused": "After fusion",
    "loop-body": "Loop bodies",
    "kernel": "Kernels",
    "wrapper": "Kernel calls",
}


@dataclass
class Pane:
    """The lines of a pane, and the lines that each key is on."""

    lines: list[str] = field(default_factory=list)
    # Shown beside lines, by the place of the line.
    numbers: dict[int, int] = field(default_factory=dict)
    # A key is anything with its own lines: a node, a step of a loop body, a line of the program.
    places: dict[Any, list[LineNumber]] = field(default_factory=lambda: defaultdict(list))

    def add(self, text: str, *keys: Any, number: int | None = None) -> None:
        """Append one or more lines of text that belong to `keys`."""
        first = len(self.lines) + 1
        self.lines += text.split("\n")
        if number is not None:
            self.numbers[first - 1] = number
        for key in keys:
            self.places[key] += map(LineNumber, range(first, len(self.lines) + 1))


class LinkedGraph:
    """The panes of one graph, built one after another from the recording."""

    def __init__(self, join: GraphJoin) -> None:
        self._join = join
        self._captured = join.read(captured_digest(join.compile))
        self._aot = _aot_graph(join)
        self._wrapper = wrapper_lines(
            join.recording.payload(join.graph.wrapper), join.graph.kernels
        )
        self.panes = {name: Pane() for name in LANGUAGES}
        # With the first and the last line of each in its pane; the first names it.
        self.kernels: list[tuple[Kernel, int, int]] = []
        self._kernel_places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        # The line that the loop body of each node begins at.
        self._first_steps: dict[str, int] = {}
        self._fill()

    def _fill(self) -> None:
        self._fill_graph("dynamo", self._captured)
        self._fill_graph("aot", self._aot)
        self._fill_graph("post-grad", self._join.final)
        self._fill_python()
        self._fill_ir()
        self._fill_scheduler()
        self._fill_kernels()
        self._fill_wrapper()

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
                pane.add(lines[number].code, (file, number), number=number)

    def _fill_ir(self) -> None:
        for item in self._join.graph.lowered:
            nodes = item.ir if isinstance(item.ir, list) else [item.ir]
            text = "\n".join(ir_text(node) for node in nodes if isinstance(node, dict))
            head = f"# {item.node} = {item.target}"
            if item.fallback:
                head += "  (falls back to the eager kernel)"
            self.panes["ir"].add(f"{head}\n{text}" if text else head, item.node)

    def _fill_scheduler(self) -> None:
        pane, fused, bodies = (self.panes[n] for n in ("scheduler", "fused", "loop-body"))
        for item in self._join.before:
            for leaf in item.leaves:
                pane.add(scheduler_text(scheduled_view(leaf)), leaf.name)
        for item in self._join.after:
            fused.add(f"{item.name}: {item.kind}")
            for leaf in item.leaves:
                fused.add("  " + scheduler_text(scheduled_view(leaf)), leaf.name)
                body = self._join.text(leaf.body)
                if body:
                    bodies.lines.append(f"# {leaf.name}")
                    self._first_steps[leaf.name] = len(bodies.lines) + 1
                    bodies.lines += body.split("\n")

    def _fill_kernels(self) -> None:
        pane = self.panes["kernel"]
        for kernel in (*generated(self._join.graph), *library_calls(self._join.graph)):
            first = len(pane.lines) + 1
            text = self._join.text(kernel.digest)
            head = f"{'//' if kernel.language == 'C++' else '#'} {kernel_id(kernel)}"
            pane.lines += [head, *text.splitlines()]
            self._kernel_places[kernel.digest].append((first, len(pane.lines)))
            self.kernels.append((kernel, first, len(pane.lines)))

    def _fill_wrapper(self) -> None:
        """The part that calls kernels; the kernels have a separate pane."""
        pane, calls = self.panes["wrapper"], self._wrapper
        for at, line in enumerate(calls.lines):
            keys = dict.fromkeys(kernel.nodes for kernel in calls.kernels.get(at, ()))
            pane.add(line, *keys, number=calls.first_line + at)

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
            for number in lines_of_steps(kernel, self._join.text(kernel.digest), steps)
            for first, last in self._kernel_places[kernel.digest]
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

    def _view(self, name: str, pane: Pane, missing: dict[str, str]) -> PagePane:
        return PagePane(
            id=name,
            title=_TITLES[name],
            language=self._language(name),
            text="\n".join(pane.lines),
            numbers=tuple(map(pane.numbers.get, range(len(pane.lines)))) if pane.numbers else None,
            missing="" if pane.lines else missing.get(name, "Nothing was recorded here."),
        )

    def _language(self, name: str) -> str:
        if name == "wrapper":
            return self._wrapper.language
        is_triton = any(kernel.language == "Triton" for kernel, _, _ in self.kernels)
        return "triton" if name == "kernel" and is_triton else LANGUAGES[name]


def kernel_id(kernel: Kernel) -> str:
    """A name that tells a kernel from all others of its graph, and a library call from the next."""
    if kernel.language != LIBRARY or not kernel.writes:
        return kernel.name
    return f"{kernel.name} → {kernel.writes[0]}"


def _is_whole(kernel: Kernel, leaves: list[ScheduledNode]) -> bool:
    """Whether a kernel is a library call, or a template, for one of these nodes."""
    is_template = any(leaf.name in kernel.nodes and not leaf.body for leaf in leaves)
    return kernel.language == LIBRARY or is_template


def _aot_graph(join: GraphJoin) -> FxGraph | None:
    """The graph from AOTAutograd: forward, backward or inference."""
    phase = join.graph.phase
    for wanted in (f"aot-{phase}", "aot-inference", "aot-joint"):
        for item in reversed(join.compile.graphs):
            if item.stage == wanted:
                return join.read(item.digest)
    return None
