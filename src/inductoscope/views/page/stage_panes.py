"""The panes of one graph that hold no graph of torch.fx: IR, scheduler, loop bodies, kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

from inductoscope.model.counts import LIBRARY, generated, library_calls
from inductoscope.model.entities import Kernel
from inductoscope.model.join import GraphJoin
from inductoscope.model.wrapper_lines import wrapper_lines
from inductoscope.views.page.chunk_contract import LineNumber
from inductoscope.views.report.operation import ir_text, scheduled_view, scheduler_text

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
TITLES = {
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

# Panes that hold a graph of torch.fx, or lines of the program.
FROM_GRAPHS = ("python", "dynamo", "aot", "post-grad")


@dataclass
class Pane:
    """The lines of a pane, in blocks that belong to the same keys.

    A key is anything with its own lines: a node, a scheduler node, a line of the program.
    """

    lines: list[str] = field(default_factory=list)
    # Shown beside lines, by the place of the line.
    numbers: dict[int, int] = field(default_factory=dict)
    # The keys of each block, and how many lines it has.
    blocks: list[tuple[tuple[Hashable, ...], int]] = field(default_factory=list)

    def add(self, text: str, *keys: Hashable, number: int | None = None) -> None:
        """Append one or more lines of text that belong to `keys`."""
        self.add_lines(text.split("\n"), *keys, number=number)

    def add_lines(self, lines: list[str], *keys: Hashable, number: int | None = None) -> None:
        """The same of lines that have been told apart."""
        if number is not None:
            self.numbers[len(self.lines)] = number
        self.lines += lines
        self.blocks.append((keys, len(lines)))

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


class StagePanes:
    """The panes of one graph, those of graphs still empty."""

    def __init__(self, join: GraphJoin) -> None:
        self._join = join
        self.wrapper = wrapper_lines(join.recording.payload(join.graph.wrapper), join.graph.kernels)
        self.panes = {name: Pane() for name in LANGUAGES}
        # With the first and the last line of each in its pane; the first names it.
        self.kernels: list[tuple[Kernel, int, int]] = []
        self._fill_ir()
        self._fill_scheduler()
        self._fill_kernels()
        self._fill_wrapper()

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
                    bodies.add(f"# {leaf.name}")
                    bodies.add(body, leaf.name)

    def _fill_kernels(self) -> None:
        pane = self.panes["kernel"]
        for kernel in (*generated(self._join.graph), *library_calls(self._join.graph)):
            first = len(pane.lines) + 1
            text = self._join.text(kernel.digest)
            head = f"{'//' if kernel.language == 'C++' else '#'} {kernel_id(kernel)}"
            pane.add_lines([head, *text.splitlines()])
            self.kernels.append((kernel, first, len(pane.lines)))

    def _fill_wrapper(self) -> None:
        """The part that calls kernels; the kernels have a separate pane."""
        pane, calls = self.panes["wrapper"], self.wrapper
        for at, line in enumerate(calls.lines):
            keys = dict.fromkeys(kernel.nodes for kernel in calls.kernels.get(at, ()))
            pane.add(line, *keys, number=calls.first_line + at)

    def language(self, name: str) -> str:
        """The language of a pane: kernels and their calls are in several."""
        if name == "wrapper":
            return self.wrapper.language
        is_triton = any(kernel.language == "Triton" for kernel, _, _ in self.kernels)
        return "triton" if name == "kernel" and is_triton else LANGUAGES[name]


def kernel_id(kernel: Kernel) -> str:
    """A name that tells a kernel from all others of its graph, and a library call from the next."""
    if kernel.language != LIBRARY or not kernel.writes:
        return kernel.name
    return f"{kernel.name} → {kernel.writes[0]}"
