"""The memory profile of a run: steps with their peaks, blocks with what they are, plans beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inductoscope.model.entities import Recording
from inductoscope.profiling.memory.blocks import Block, DeviceSteps, devices_of, timeline
from inductoscope.profiling.memory.labels import (
    BACKWARD,
    BlockLabel,
    BlockLabels,
    LabelledGraph,
    RecomputedNode,
    recomputed_nodes,
    recorded_graphs,
)
from inductoscope.profiling.memory.observed import ProcessMemory, TracedStep, WrapperCall
from inductoscope.profiling.memory.plan import GraphPlan, plan_of

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
        """What was traced."""
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
    peaks = {
        peak.number: peak.peaks[device.device]
        for peak in process.peaks
        if peak.function == step.function and device.device in peak.peaks
    }
    return StepProfile(
        device,
        {block.number: labels.label(block) for block in device.blocks},
        calls,
        tuple(node for graph in again for node in recomputed_nodes(graph)),
        peaks,
    )


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
