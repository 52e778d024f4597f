"""The memory of a step: the lifetime, label and maker of each block.

Names and times come from the run, the meaning of names from the recording. The plan of each
wrapper is shown with the measurements.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from inductoscope.model.entities import Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.profiling.kernel_work import GraphWork, recorded_graphs
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
from inductoscope.torch_facts.index_expressions import number_of, numbers_of
from inductoscope.torch_facts.python_wrappers import MissedReuse, extent, plan_of

# The largest difference in ns between the profiler's clock and the tool's.
_CLOCKS_APART = 50_000


@dataclass
class Block:
    """One allocation. Times are nanoseconds from the beginning of the step."""

    address: int
    bytes: int
    # None: allocated before the step, or freed after it.
    begin: int | None = None
    end: int | None = None
    # The torch operation that allocated the block.
    operation: str = ""
    # The holders before and after the step.
    before: HeldMemory | None = None
    after: HeldMemory | None = None
    # All names in order of time: a buffer may reuse the memory of another.
    names: list[NamedMemory] = field(default_factory=list)
    number: int = 0

    def is_there(self, at: int) -> bool:
        return (self.begin is None or self.begin <= at) and (self.end is None or at < self.end)


@dataclass(frozen=True)
class DeviceSteps:
    device: str
    step: TracedStep
    blocks: Sequence[Block]
    # Bytes at the beginning, and the part of them that is not in known blocks.
    base: int
    unknown: int
    peak: int
    # The time of the peak, from the beginning of the step.
    peak_at: int

    @property
    def at_peak(self) -> Sequence[Block]:
        found = [block for block in self.blocks if block.is_there(self.peak_at)]
        return sorted(found, key=lambda block: -block.bytes)

    @property
    def timeline(self) -> list[tuple[int, int, int]]:
        """All changes in order of time: the time, the number of the block, the change in bytes."""
        return sorted(
            (at, block.number, sign * block.bytes)
            for block in self.blocks
            for at, sign in ((block.begin, 1), (block.end, -1))
            if at is not None
        )


def devices_of(step: TracedStep) -> list[DeviceSteps]:
    """Return the memory of each device in a step; the one with most named memory comes first."""
    by_device: dict[str, list[AllocationEvent]] = {}
    for event in step.events:
        by_device.setdefault(event.device, []).append(event)
    found = [_device(step, device, events) for device, events in by_device.items()]
    return sorted(found, key=_named_bytes, reverse=True)


def _named_bytes(device: DeviceSteps) -> tuple[int, int]:
    named = sum(block.bytes for block in device.blocks if block.names and block.begin is not None)
    return named, device.peak


def _device(step: TracedStep, device: str, events: Sequence[AllocationEvent]) -> DeviceSteps:
    held = [each for each in step.before if each.device == device]
    in_use = {each.address: Block(each.address, each.bytes, before=each) for each in held}
    blocks = list(in_use.values())
    base = now = peak = step.bytes_before(events[0])
    peak_at = 0
    for event in events:
        at = max(0, event.at - step.begin)
        now += event.bytes
        block = in_use.pop(event.address, None)
        if block is None and event.bytes <= 0:
            # A block that is freed without an allocation existed before the step.
            block = Block(event.address, -event.bytes)
            blocks.append(block)
        if block is not None:
            block.end = at  # The free of a block was missed if its address is allocated again.
        if event.bytes > 0:
            block = Block(event.address, event.bytes, at, operation=event.operation)
            in_use[event.address] = block
            blocks.append(block)
        if now > peak:
            peak, peak_at = now, at
    after = {each.address: each for each in step.after if each.device == device}
    for address, block in in_use.items():
        block.after = after.get(address)
    blocks.sort(key=lambda block: block.begin or -1)
    for number, block in enumerate(blocks):
        block.number = number
    _note_names(blocks, step)
    known = sum(block.bytes for block in blocks if block.begin is None)
    return DeviceSteps(device, step, blocks, base, max(0, base - known), peak, peak_at)


def _note_names(blocks: Sequence[Block], step: TracedStep) -> None:
    by_address: dict[int, list[Block]] = {}
    for block in blocks:
        by_address.setdefault(block.address, []).append(block)
    for note in step.names:
        same, at = by_address.get(note.address, []), note.at - step.begin
        begins = [-1 if block.begin is None else block.begin for block in same]
        place = bisect_right(begins, at + _CLOCKS_APART) - 1
        if place > 0 and begins[place] > at and (same[place - 1].end or 0) > at:
            place -= 1  # The previous block is still in use, given the clocks' tolerance.
        if place >= 0:
            same[place].names.append(note)


# --- labels ---------------------------------------------------------------------------------------

SAVED, OUTPUT, TEMPORARY = "saved for backward", "output", "temporary"
# Memory allocated by a library's kernel for itself, and by an operation that was not compiled.
LIBRARY, EAGER = "library's own", "eager operation"
BACKWARD = "backward"


@dataclass(frozen=True)
class BlockLabel:
    kind: str
    # A name from the user's program, or a buffer of a graph.
    name: str = ""
    graph: str = ""
    operation: str = ""
    # The user's line.
    source: str = ""


class LabelledGraph(GraphWork):
    @property
    def title(self) -> str:
        return f"{self.compile.function} {self.compile.id} {self.graph.phase}".strip()

    @property
    def is_backward(self) -> bool:
        return self.graph.phase == BACKWARD

    @property
    def text(self) -> str:
        return self.recording.payload(self.graph.wrapper)

    @cached_property
    def _origins(self) -> Mapping[str, str]:
        """The FX node whose value each buffer holds."""
        return {
            buffer.name: buffer.origin or next(iter(leaf.origins), "")
            for scheduled in (*self.join.before, *self.join.after)
            for leaf in scheduled.leaves
            for buffer in leaf.buffers
        }

    def node_of(self, name: str) -> FxNode | None:
        """Return the FX node of a variable of the wrapper."""
        final = self.join.final
        return final.node(self._origins.get(name, name)) if final else None

    def bytes_of(self, name: str, sizes: Mapping[str, int]) -> int | None:
        room = self.memory.rooms.get(name)
        if room is None:
            return None
        if room.same_as or room.inside:
            return 0
        values = {**self.hints, **sizes}
        whole = number_of(room.bytes, values) if room.bytes else None
        if whole is not None:
            return whole
        itemsize = room.itemsize or self.widths.get(name)
        size, stride = (numbers_of(texts, values) for texts in (room.size, room.stride))
        if itemsize is None or size is None or stride is None:
            return None
        return extent(size, stride) * itemsize

    def recomputed(self) -> Iterator[dict[str, str]]:
        """Yield operations of AOTAutograd's forward graph that its backward graph repeats."""
        forward, backward = map(self._aot_graph, ("aot-forward", "aot-backward"))
        if forward is None or backward is None:
            return
        made = {node.name: node.target for node in forward.calls}
        for node in backward.calls:
            if made.get(node.name) == node.target:
                yield {"node": node.name, "operation": node.operation, "source": _place(node)}

    def _aot_graph(self, stage: str) -> FxGraph | None:
        found = [item.payload for item in self.compile.graphs if item.stage == stage]
        return read_graph(self.recording, found[-1]) if found else None


def _place(node: FxNode) -> str:
    return f"{node.place.file}:{node.place.line}" if node.place else ""


class BlockLabels:
    def __init__(self, step: TracedStep, graphs: Mapping[str, LabelledGraph]) -> None:
        self._step, self._graphs = step, graphs

    def label(self, block: Block) -> BlockLabel:
        """Label a block by its holder before the step, its name in a graph, or its operation."""
        before, after = block.before, block.after
        if before is not None and before.kind != HELD:
            return BlockLabel(before.kind, before.name, operation=block.operation)
        begin = None if block.begin is None else block.begin + self._step.begin
        maker = self._call_at(block.names[0]) if block.names else None
        # The block is an input of a graph that began later.
        if maker is not None and begin is not None and begin >= maker.begin:
            return self._of_graph(block, maker)
        if after is not None and after.kind not in (HELD, INPUT):
            return BlockLabel(after.kind, after.name, operation=block.operation)
        if begin is None:
            return BlockLabel(HELD, before.name if before else "")
        if block.names and not block.names[0].graph:
            first = block.names[0]
            return BlockLabel(EAGER, operation=first.name, source=first.place)
        for call in self._step.calls:
            if call.begin <= begin < call.end:
                graph = self._graphs.get(call.graph)
                title = graph.title if graph else ""
                return BlockLabel(LIBRARY, graph=title, operation=block.operation)
        name = block.names[0].name if block.names else ""
        return BlockLabel(EAGER, name, operation=block.operation)

    def _of_graph(self, block: Block, maker: WrapperCall) -> BlockLabel:
        """Label a block of a graph: its first name gives the maker, its last name the kind."""
        name, graph = block.names[0].name, self._graphs.get(maker.graph)
        node = graph.node_of(name) if graph else None
        return BlockLabel(
            self._kind(block, maker),
            name,
            graph.title if graph else "",
            node.operation if node else block.operation,
            _place(node) if node else "",
        )

    def _kind(self, block: Block, maker: WrapperCall) -> str:
        if block.address not in maker.returned:
            return TEMPORARY
        if block.end is not None and block.end + self._step.begin < maker.end:
            return TEMPORARY  # A returned block reuses its address.
        if self._is_backward(maker.graph):
            return GRADIENT
        later = {note.graph for note in block.names} - {maker.graph}
        return SAVED if any(map(self._is_backward, later)) else OUTPUT

    def _is_backward(self, graph: str) -> bool:
        return graph in self._graphs and self._graphs[graph].is_backward

    def _call_at(self, note: NamedMemory) -> WrapperCall | None:
        """Return the wrapper call in which a name was noted."""
        found = [
            call
            for call in self._step.calls
            if call.graph == note.graph and call.begin <= note.at <= (call.end or note.at)
        ]
        return found[-1] if found else None


# --- the profile of a run -------------------------------------------------------------------------

# Differences up to this many bytes are ignored.
_TINY = 4096


@dataclass(frozen=True)
class PlannedCall:
    graph: str
    phase: str
    # Seconds from the beginning of the step.
    begin: float
    end: float
    # The peak in bytes above the call's beginning; None if the plan cannot be read.
    predicted: int | None
    measured: int
    # Bytes at the peak that libraries allocated for themselves, which no plan includes.
    of_libraries: int = 0
    missed: tuple[MissedReuse, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the plan plus the libraries' bytes is within 1 % of the measured bytes."""
        if self.predicted is None:
            return False
        found = self.predicted + self.of_libraries
        return abs(found - self.measured) <= max(self.measured / 100, _TINY)


@dataclass(frozen=True)
class StepProfile:
    device: DeviceSteps
    labels: Mapping[int, BlockLabel]
    calls: tuple[PlannedCall, ...]
    # Operations of the forward pass that the backward pass recomputes.
    recomputed: tuple[Mapping[str, str], ...]
    # The peaks of all steps that were traced, by the number of the call.
    peaks: Mapping[int, int]

    @property
    def step(self) -> TracedStep:
        return self.device.step

    @property
    def has_backward(self) -> bool:
        return any(call.phase == BACKWARD for call in self.calls)

    @property
    def varies(self) -> bool:
        """Whether the peaks of this function's steps differ by more than 1 %."""
        found = self.peaks.values()
        return bool(found) and max(found) > 1.01 * min(found)

    @property
    def kinds(self) -> Counter[str]:
        """The bytes at the peak by kind."""
        found = Counter[str]()
        for block in self.device.at_peak:
            found[self.labels[block.number].kind] += block.bytes
        return found


def profiles_of(
    processes: Sequence[ProcessMemory], recording: Recording | None = None
) -> tuple[StepProfile, ...]:
    """Return the steps of a run, one per function, the highest peak first."""
    graphs = recorded_graphs(recording, LabelledGraph) if recording is not None else {}
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
    device, labels = devices_of(step)[0], BlockLabels(step, graphs)
    called = dict.fromkeys(call.graph for call in step.calls if call.graph in graphs)
    return StepProfile(
        device,
        {block.number: labels.label(block) for block in device.blocks},
        tuple(_planned(device, call, graphs.get(call.graph)) for call in step.calls),
        tuple(
            node
            for graph in called
            if graphs[graph].is_backward
            for node in graphs[graph].recomputed()
        ),
        peaks_of([process], step.function, device.device),
    )


def peaks_of(processes: Sequence[ProcessMemory], function: str, device: str) -> dict[int, int]:
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
        values = {**graph.hints, **call.sizes}
        own = frozenset(_owned_inputs(device, call))
        plan = plan_of(graph.text, values, lambda name: graph.bytes_of(name, call.sizes), own)
    return PlannedCall(
        graph.title if graph else call.graph,
        graph.graph.phase if graph else "",
        begin / 1e9,
        end / 1e9,
        plan.peak if plan is not None and not plan.unknown else None,
        *_measured(device, begin, end),
        plan.missed if plan is not None else (),
    )


def _owned_inputs(device: DeviceSteps, call: WrapperCall) -> Iterator[str]:
    """Yield inputs of a call that are freed during it: only the graph held them."""
    begin, end = call.begin - device.step.begin, call.end - device.step.begin
    for block in device.blocks:
        is_given = block.begin is None or block.begin < begin
        if is_given and block.end is not None and begin < block.end < end:
            for note in block.names:
                if note.graph == call.graph and call.begin <= note.at <= call.end:
                    yield note.name


def _measured(device: DeviceSteps, begin: int, end: int) -> tuple[int, int]:
    """Return the peak in bytes above the beginning of a call, and the libraries' part of it."""
    now = peak = libraries = of_libraries = 0
    for at, number, change in device.timeline:
        if not begin <= at < end:
            continue
        block = device.blocks[number]
        now += change
        if not block.names and block.begin is not None and block.begin >= begin:
            libraries += change
        if now > peak:
            peak, of_libraries = now, libraries
    return peak, of_libraries
