"""The memory of a step: when each block is allocated and freed, what it is, and who made it.

Names and times come from the run, the meaning of names from the recording. Beside what was measured
stands the plan of each wrapper.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.model.join import GraphJoin
from inductoscope.model.memory import GraphMemory, Room, read_memory
from inductoscope.profiling.memory_trace import (
    GRADIENT,
    HELD,
    INPUT,
    AllocationEvent,
    HeldMemory,
    NamedMemory,
    ProcessMemory,
    TracedStep,
    WrapperCall,
)
from inductoscope.torch_facts.index_expressions import number_of, numbers_of, type_width
from inductoscope.torch_facts.python_wrappers import GraphPlan, extent, plan_of

# The profiler's clock and ours agree within this.
_CLOCKS_APART = 50_000


@dataclass(frozen=True)
class Block:
    """One allocation. Times are nanoseconds from the beginning of the step."""

    number: int
    address: int
    bytes: int
    # None: it was there before the step began, or is there after it has ended.
    begin: int | None = None
    end: int | None = None
    # The operation of torch in which it was allocated.
    operation: str = ""
    # Every name that it had in turn: a buffer may take over the memory of another.
    names: tuple[NamedMemory, ...] = ()
    # What holds it before the step, and after it.
    before: HeldMemory | None = None
    after: HeldMemory | None = None

    def is_there(self, at: int) -> bool:
        """Whether it is in use at this time."""
        return (self.begin is None or self.begin <= at) and (self.end is None or at < self.end)


@dataclass(frozen=True)
class DeviceSteps:
    """The memory of one device in one step."""

    device: str
    step: TracedStep
    blocks: tuple[Block, ...]
    # Bytes at the beginning, and of these the bytes of blocks that are not known one by one.
    base: int
    unknown: int
    peak: int
    # When the peak is reached, from the beginning of the step.
    peak_at: int

    @property
    def at_peak(self) -> tuple[Block, ...]:
        """The blocks in use at the peak, the largest first."""
        found = [block for block in self.blocks if block.is_there(self.peak_at)]
        return tuple(sorted(found, key=lambda block: -block.bytes))


def devices_of(step: TracedStep) -> tuple[DeviceSteps, ...]:
    """The memory of each device in a step; that with most named memory comes first."""
    by_device: dict[str, list[AllocationEvent]] = {}
    for event in step.events:
        by_device.setdefault(event.device, []).append(event)
    found = [_device(step, device, events) for device, events in by_device.items()]
    return tuple(sorted(found, key=_named_bytes, reverse=True))


def _named_bytes(device: DeviceSteps) -> tuple[int, int]:
    named = sum(block.bytes for block in device.blocks if block.names and block.begin is not None)
    return named, device.peak


@dataclass
class _Lives:
    """The blocks of a device, as far as they have been followed."""

    finished: list[Block] = field(default_factory=list)
    open: dict[int, Block] = field(default_factory=dict)

    def allocated(self, event: AllocationEvent, at: int) -> None:
        """Memory is handed out; what was at its address must have gone unseen."""
        self.freed(event.address, -1, at)
        block = Block(0, event.address, event.bytes, at, operation=event.operation)
        self.open[event.address] = block

    def freed(self, address: int, size: int, at: int) -> None:
        """Memory is given back; what was never seen was there before the step."""
        block = self.open.pop(address, None)
        if block is None and size >= 0:
            block = Block(0, address, size)
        if block is not None:
            self.finished.append(replace(block, end=at))


def _device(step: TracedStep, device: str, events: Sequence[AllocationEvent]) -> DeviceSteps:
    lives = _Lives()
    held = [block for block in step.before if block.device == device]
    for block in held:
        lives.open[block.address] = Block(0, block.address, block.bytes, before=block)
    base = now = peak = step.bytes_before(events[0])
    peak_at = 0
    for event in events:
        at = max(0, event.at - step.begin)
        now += event.bytes
        if event.bytes > 0:
            lives.allocated(event, at)
        else:
            lives.freed(event.address, -event.bytes, at)
        if now > peak:
            peak, peak_at = now, at
    every = sorted([*lives.finished, *lives.open.values()], key=lambda block: block.begin or -1)
    numbered = [replace(block, number=number) for number, block in enumerate(every)]
    named = tuple(_with_holders(_with_names(numbered, step), step, device))
    known = sum(block.bytes for block in named if block.begin is None)
    return DeviceSteps(device, step, named, base, max(0, base - known), peak, peak_at)


def _with_names(blocks: Sequence[Block], step: TracedStep) -> list[Block]:
    """Each block with the names that its address had while it was in use."""
    by_address: dict[int, list[Block]] = {}
    for block in blocks:
        by_address.setdefault(block.address, []).append(block)
    names: dict[int, list[NamedMemory]] = {}
    for note in step.names:
        found = _at(by_address.get(note.address, ()), note.at - step.begin)
        if found is not None:
            names.setdefault(found.number, []).append(note)
    return [replace(block, names=tuple(names.get(block.number, ()))) for block in blocks]


def _at(blocks: Sequence[Block], at: int) -> Block | None:
    """The block at an address at some time: the last one that was allocated before it."""
    begins = [-1 if block.begin is None else block.begin for block in blocks]
    place = bisect_right(begins, at + _CLOCKS_APART) - 1
    if place > 0 and begins[place] > at and _is_just_freed(blocks[place - 1], at):
        place -= 1
    return blocks[place] if place >= 0 else None


def _is_just_freed(block: Block, at: int) -> bool:
    return block.end is not None and block.end > at


def _with_holders(blocks: Sequence[Block], step: TracedStep, device: str) -> Iterator[Block]:
    after = {block.address: block for block in step.after if block.device == device}
    for block in blocks:
        yield replace(block, after=after.get(block.address) if block.end is None else None)


def timeline(device: DeviceSteps) -> list[tuple[int, int, int]]:
    """Every change in the order of time: when, the number of the block, bytes gained or lost."""
    changes = [
        (at, block.number, sign * block.bytes)
        for block in device.blocks
        for at, sign in ((block.begin, 1), (block.end, -1))
        if at is not None
    ]
    return sorted(changes)


# --- labels ---------------------------------------------------------------------------------------

SAVED, OUTPUT, TEMPORARY = "saved for backward", "output", "temporary"
# Allocated by a library's kernel for itself, and by an operation that was not compiled.
LIBRARY, EAGER = "library's own", "eager operation"
BACKWARD = "backward"


@dataclass(frozen=True)
class BlockLabel:
    """The kind of a block, and who made it."""

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
    def hints(self) -> Mapping[str, int]:
        """The sizes that the graph was compiled with."""
        return self.memory.hints

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
        """The label of a block: by its holder before, its name in a graph, else its operation."""
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
    found = [item.payload for item in graph.compile.graphs if item.stage == stage]
    return read_graph(graph.recording, found[-1]) if found else None


# --- the profile of a run -------------------------------------------------------------------------

# A difference of so many bytes matters to nobody.
_TINY = 4096


@dataclass(frozen=True)
class PlannedCall:
    """One call of a graph: the memory that its wrapper plans for, and what was measured."""

    graph: str
    phase: str
    # Seconds from the beginning of the step.
    begin: float
    end: float
    # Bytes above those at its beginning, at its highest; None where the plan cannot be read.
    predicted: int | None
    measured: int
    # Bytes at that moment which libraries allocated for themselves: no plan knows of them.
    of_libraries: int = 0
    plan: GraphPlan | None = None

    @property
    def agrees(self) -> bool:
        """Whether the plan, and what libraries took, is within 1 % of what was measured."""
        if self.predicted is None:
            return False
        found = self.predicted + self.of_libraries
        return abs(found - self.measured) <= max(self.measured / 100, _TINY)


@dataclass(frozen=True)
class StepProfile:
    """The memory of a device from one call of a compiled function to the next."""

    device: DeviceSteps
    labels: Mapping[int, BlockLabel]
    calls: tuple[PlannedCall, ...] = ()
    recomputed: tuple[RecomputedNode, ...] = ()
    # The peaks of all steps that were traced, by the number of the call.
    peaks: Mapping[int, int] | None = None

    @property
    def step(self) -> TracedStep:
        """The step that was traced."""
        return self.device.step

    @property
    def has_backward(self) -> bool:
        """Whether a backward graph ran in it."""
        return any(call.phase == BACKWARD for call in self.calls)

    @property
    def varies(self) -> bool:
        """Whether steps of this function differ by more than a hundredth in their peaks."""
        found = (self.peaks or {}).values()
        return bool(found) and max(found) > 1.01 * min(found)

    def bytes_at_peak(self, kind: str) -> int:
        """Bytes of one kind at the peak."""
        blocks = self.device.at_peak
        return sum(block.bytes for block in blocks if self.labels[block.number].kind == kind)


def profiles_of(
    processes: Sequence[ProcessMemory], recording: Recording | None = None
) -> tuple[StepProfile, ...]:
    """The steps of a run, one per function, that with the highest peak first."""
    graphs = recorded_graphs(recording) if recording is not None else {}
    found = [
        _profile(step, process, graphs)
        for process in processes
        for step in process.steps
        if step.events
    ]
    return tuple(sorted(found, key=lambda profile: -profile.device.peak))


def _profile(
    step: TracedStep, process: ProcessMemory, graphs: Mapping[str, LabelledGraph]
) -> StepProfile:
    device = devices_of(step)[0]
    labels = BlockLabels(device, graphs)
    calls = tuple(_planned(device, call, graphs.get(call.graph)) for call in step.calls)
    backward = [
        graphs[call.graph]
        for call in step.calls
        if call.graph in graphs and graphs[call.graph].graph.phase == BACKWARD
    ]
    again = {id(graph): graph for graph in backward}.values()
    return StepProfile(
        device,
        {block.number: labels.label(block) for block in device.blocks},
        calls,
        tuple(node for graph in again for node in recomputed_nodes(graph)),
        peaks_of([process], step.function, device.device),
    )


def peaks_of(processes: Sequence[ProcessMemory], function: str, device: str) -> dict[int, int]:
    """The peaks of the steps of a function on a device, by the number of the call."""
    return {
        peak.number: peak.peaks[device]
        for process in processes
        for peak in process.peaks
        if peak.function == function and device in peak.peaks
    }


def _planned(device: DeviceSteps, call: WrapperCall, graph: LabelledGraph | None) -> PlannedCall:
    begin = call.begin - device.step.begin
    end = (call.end or device.step.end) - device.step.begin
    plan = None
    if graph is not None:
        own = frozenset(_owned_inputs(device, call))
        plan = plan_of(
            graph.text,
            {**graph.hints, **call.sizes},
            lambda name: graph.bytes_of(name, call.sizes),
            own,
        )
    return PlannedCall(
        graph.title if graph else call.graph,
        graph.graph.phase if graph else "",
        begin / 1e9,
        end / 1e9,
        plan.peak if plan is not None and not plan.unknown else None,
        *_measured(device, begin, end),
        plan,
    )


def _owned_inputs(device: DeviceSteps, call: WrapperCall) -> Iterator[str]:
    """Inputs of a call whose memory is free when it ends: nobody but the graph held them."""
    begin, end = call.begin - device.step.begin, call.end - device.step.begin
    for block in device.blocks:
        if _is_given_and_freed(block, begin, end):
            yield from (
                note.name
                for note in block.names
                if note.graph == call.graph and call.begin <= note.at <= call.end
            )


def _is_given_and_freed(block: Block, begin: int, end: int) -> bool:
    is_given = block.begin is None or block.begin < begin
    return is_given and block.end is not None and begin < block.end < end


def _measured(device: DeviceSteps, begin: int, end: int) -> tuple[int, int]:
    """Bytes above those at the beginning of a call, at its highest, and those of libraries."""
    now = peak = libraries = of_libraries = 0
    for at, number, change in timeline(device):
        if not begin <= at < end:
            continue
        block = device.blocks[number]
        now += change
        if not block.names and block.begin is not None and block.begin >= begin:
            libraries += change
        if now > peak:
            peak, of_libraries = now, libraries
    return peak, of_libraries
