"""What a block of memory is, such as a weight or a temporary, and who made it.

Names and times come from the run, the meaning of names from the recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from inductoscope.analysis.fusion.sizes import type_width
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.model.join import GraphJoin
from inductoscope.model.memory import GraphMemory, Room, read_memory
from inductoscope.profiling.memory.blocks import Block, DeviceSteps
from inductoscope.profiling.memory.observed import (
    GRADIENT,
    HELD,
    INPUT,
    NamedMemory,
    WrapperCall,
)
from inductoscope.profiling.memory.sizes import extent, number_of, numbers_of

SAVED, OUTPUT, TEMPORARY = "saved for backward", "output", "temporary"
# Allocated by a library's kernel for itself, and by an operation that was not compiled.
LIBRARY, EAGER = "library's own", "eager operation"
BACKWARD = "backward"


@dataclass(frozen=True)
class BlockLabel:
    """What a block is, and who made it."""

    kind: str
    # A name that the user knows, or the buffer of a graph.
    name: str = ""
    graph: str = ""
    operation: str = ""
    # The user's line.
    source: str = ""


@dataclass(frozen=True)
class RecomputedNode:
    """An operation of the forward pass that the backward pass computes again."""

    node: str
    operation: str
    source: str


class LabelledGraph:
    """A recorded graph, looked up by the names in its wrapper."""

    def __init__(self, recording: Recording, compile_: Compile, graph: InductorGraph) -> None:
        self.recording, self.compile, self.graph = recording, compile_, graph
        self._join = GraphJoin(recording, compile_, graph)

    @property
    def title(self) -> str:
        """The compile and the phase, as other views name it."""
        return f"{self.compile.function} {self.compile.id} {self.graph.phase}".strip()

    @cached_property
    def text(self) -> str:
        """The wrapper."""
        return self.recording.payload(self.graph.wrapper)

    @cached_property
    def memory(self) -> GraphMemory:
        """The room of every buffer."""
        return read_memory(self.recording, self.compile, self.graph)

    @cached_property
    def _nodes(self) -> Mapping[str, FxNode]:
        return {node.name: node for node in self._join.final.nodes} if self._join.final else {}

    @cached_property
    def _origins(self) -> Mapping[str, str]:
        """The FX node whose value a buffer holds."""
        return {
            buffer.name: buffer.origin or next(iter(leaf.origins), "")
            for scheduled in (*self._join.before, *self._join.after)
            for leaf in scheduled.leaves
            for buffer in leaf.buffers
        }

    @cached_property
    def _dtypes(self) -> Mapping[str, str]:
        found = {
            buffer.name: buffer.dtype
            for scheduled in self._join.after
            for leaf in scheduled.leaves
            for buffer in leaf.buffers
        }
        inputs = {
            name: str(node.value.get("dtype", ""))
            for name, node in self._nodes.items()
            if node.op == "placeholder" and isinstance(node.value, dict)
        }
        return {**inputs, **found}

    def node_of(self, name: str) -> FxNode | None:
        """The FX node that a variable of the wrapper stands for."""
        return self._nodes.get(self._origins.get(name, name))

    def bytes_of(self, name: str, sizes: Mapping[str, int]) -> int | None:
        """The bytes of a variable of the wrapper; None where they are not known."""
        room = self.memory.rooms.get(name)
        if room is None:
            return None
        if room.same_as or room.inside:
            return 0
        return self._room_bytes(room, self._dtypes.get(name, ""), sizes)

    def _room_bytes(self, room: Room, dtype: str, sizes: Mapping[str, int]) -> int | None:
        values = {**self.hints, **sizes}
        whole = number_of(room.bytes, values) if room.bytes else None
        if whole is not None:
            return whole
        itemsize = room.itemsize or type_width(dtype)
        size, stride = (numbers_of(texts, values) for texts in (room.size, room.stride))
        if itemsize is None or size is None or stride is None:
            return None
        return extent(size, stride) * itemsize

    @cached_property
    def hints(self) -> Mapping[str, int]:
        """The sizes that the graph was compiled with."""
        values = {name: symbol.value for name, symbol in self.memory.symbols.items()}
        return {name: int(text) for name, text in values.items() if text.lstrip("-").isdecimal()}


def recorded_graphs(recording: Recording) -> dict[str, LabelledGraph]:
    """Every graph of a recording, by the file of its wrapper."""
    return {
        graph.wrapper_path: LabelledGraph(recording, compile_, graph)
        for compile_ in recording.compiles
        for graph in compile_.inductor
        if graph.wrapper_path
    }


class BlockLabels:
    """Says of the blocks of a step what they are."""

    def __init__(self, device: DeviceSteps, graphs: Mapping[str, LabelledGraph]) -> None:
        self._graphs = graphs
        self._calls = device.step.calls
        self._begin = device.step.begin

    def label(self, block: Block) -> BlockLabel:
        """What a block is: by who held it before, by its name in a graph, else by its operation."""
        if block.before is not None and block.before.kind != HELD:
            return self._held(block, block.before.kind, block.before.name)
        named = [note for note in block.names if note.graph]
        if named and self._is_made_in_graph(block, named[0]):
            return self._of_graph(block, named)
        if block.after is not None and block.after.kind not in (HELD, INPUT):
            return self._held(block, block.after.kind, block.after.name)
        if block.begin is None:
            return BlockLabel(HELD, block.before.name if block.before else "")
        notes = [note for note in block.names if not note.graph]
        if notes:
            first = notes[0]
            return BlockLabel(EAGER, "", "", first.name, first.place)
        call = self._call_around(block.begin + self._begin)
        if call is not None:
            graph = self._graphs.get(call.graph)
            return BlockLabel(LIBRARY, "", graph.title if graph else "", block.operation)
        return BlockLabel(EAGER, named[0].name if named else "", "", block.operation)

    def _is_made_in_graph(self, block: Block, first: NamedMemory) -> bool:
        """Whether a graph allocated it, rather than being given it."""
        call = self._call_at(first)
        return (
            block.begin is not None
            and call is not None
            and (block.begin + self._begin >= call.begin)
        )

    def _call_around(self, at: int) -> WrapperCall | None:
        """The call of a wrapper that runs at this time."""
        running = (call for call in self._calls if call.begin <= at < call.end)
        return next(running, None)

    def _held(self, block: Block, kind: str, name: str) -> BlockLabel:
        return BlockLabel(kind, name, "", block.operation)

    def _of_graph(self, block: Block, named: Sequence[NamedMemory]) -> BlockLabel:
        """The first name says who made it; the last one what it is now."""
        first = named[0]
        graph = self._graphs.get(first.graph)
        node = graph.node_of(first.name) if graph else None
        place = node.place if node else None
        return BlockLabel(
            self._kind(block, first, named),
            first.name,
            graph.title if graph else "",
            node.operation if node else block.operation,
            f"{place.file}:{place.line}" if place else "",
        )

    def _kind(self, block: Block, first: NamedMemory, named: Sequence[NamedMemory]) -> str:
        made_by = self._call_at(first)
        maker = self._graphs.get(first.graph)
        is_backward = maker is not None and maker.graph.phase == BACKWARD
        if made_by is None or block.address not in made_by.returned:
            return TEMPORARY
        if block.end is not None and block.end + self._begin < made_by.end:
            return TEMPORARY  # Its address was used again by the one that is returned.
        if is_backward:
            return GRADIENT
        later = (self._graphs.get(note.graph) for note in named if note.graph != first.graph)
        is_saved = any(graph is not None and graph.graph.phase == BACKWARD for graph in later)
        return SAVED if is_saved else OUTPUT

    def _call_at(self, note: NamedMemory) -> WrapperCall | None:
        """The call of a wrapper in which a name was noted."""
        found = [
            call
            for call in self._calls
            if call.graph == note.graph and call.begin <= note.at <= (call.end or note.at)
        ]
        return found[-1] if found else None


def recomputed_nodes(graph: LabelledGraph) -> Iterator[RecomputedNode]:
    """Operations that are in the forward graph of AOTAutograd and in its backward graph, too."""
    forward, backward = (_aot_graph(graph, stage) for stage in ("aot-forward", "aot-backward"))
    if forward is None or backward is None:
        return
    made = {node.name: node.target for node in forward.calls}
    for node in backward.calls:
        if made.get(node.name) == node.target:
            place = node.place
            yield RecomputedNode(
                node.name, node.operation, f"{place.file}:{place.line}" if place else ""
            )


def _aot_graph(graph: LabelledGraph, stage: str) -> FxGraph | None:
    found = [item.digest for item in graph.compile.graphs if item.stage == stage]
    return read_graph(graph.recording, found[-1]) if found else None
