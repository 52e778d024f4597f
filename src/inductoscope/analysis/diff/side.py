"""One graph in one of the two runs, read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from inductoscope.analysis.diff.canonical import Renaming
from inductoscope.model.entities import Compile, InductorGraph, Process, Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.model.join import captured_graph, final_graph
from inductoscope.model.native import NativeIndex
from inductoscope.model.schedule import ScheduledNode, read_schedule


@dataclass(frozen=True)
class Side:
    """A graph that Inductor compiled; None where the compile has none."""

    recording: Recording
    compile: Compile
    graph: InductorGraph | None
    # One per recording: it reads every file that a native compiler was given.
    natives: NativeIndex

    @cached_property
    def _final_nodes(self) -> dict[str, FxNode]:
        return {node.name: node for node in self.final.nodes} if self.final else {}

    @cached_property
    def _captured_nodes(self) -> dict[str, FxNode]:
        return {node.name: node for node in self.captured.nodes} if self.captured else {}

    @cached_property
    def final(self) -> FxGraph | None:
        """The graph that was lowered."""
        if self.graph is None:
            return None
        return read_graph(self.recording, final_graph(self.compile, self.graph))

    @cached_property
    def captured(self) -> FxGraph | None:
        """The graph that Dynamo captured."""
        return captured_graph(self.recording, self.compile)

    @cached_property
    def before(self) -> tuple[ScheduledNode, ...]:
        """Single scheduler nodes, before any fusion."""
        digest = self.graph.scheduled_before if self.graph else ""
        nodes = read_schedule(self.recording, digest)
        return tuple(leaf for node in nodes for leaf in node.leaves)

    @cached_property
    def after(self) -> tuple[ScheduledNode, ...]:
        """Scheduler nodes after fusion, in the order of the generated program."""
        digest = self.graph.scheduled_after if self.graph else ""
        return read_schedule(self.recording, digest)

    def renaming(self) -> Renaming:
        """Knows inputs and buffers by their place in the graph and the schedule."""
        renaming = Renaming()
        nodes = self.final.nodes if self.final else ()
        renaming.know((n.name for n in nodes if n.op in ("placeholder", "get_attr")), "node")
        renaming.know((leaf.name for leaf in self.before), "op")
        renaming.know((b.name for leaf in self.before for b in leaf.buffers), "buf")
        kernels = self.graph.kernels if self.graph else ()
        renaming.know((k.name for k in kernels if k.language != "extern"), "kernel")
        return renaming

    @property
    def unnamed(self) -> tuple[str, ...]:
        """What `renaming` needs and the recording lacks."""
        known = {"the final graph": self.final, "the scheduler's nodes": self.before}
        return tuple(what for what, found in known.items() if not found)

    @property
    def process(self) -> Process | None:
        """The process that compiled it."""
        wanted = self.compile.process
        return next((p for p in self.recording.processes if p.stream == wanted), None)

    def operations(self, leaf: ScheduledNode) -> tuple[str, ...]:
        """The user's operations inside a scheduler node, as far back as they are known."""
        if self.final is None:
            return leaf.origins
        nodes = [self._final_nodes[name] for name in leaf.origins if name in self._final_nodes]
        return tuple(dict.fromkeys(word for node in nodes for word in self._words(node)))

    def _words(self, node: FxNode) -> list[str]:
        known = [self._captured_nodes[n] for n in node.origins if n in self._captured_nodes]
        return [n.operation for n in known if n.op != "placeholder"] or [node.operation]
