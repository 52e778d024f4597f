"""The path of a wrong value through a compiled graph, from the culprit kernel to the fault.

The data flow is the one that the scheduler recorded. Only the first wrong buffer was found by a
comparison; the others on the trail are computed from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import FxNode
from inductoscope.model.join import GraphJoin
from inductoscope.model.schedule import ScheduledNode
from inductoscope.model.wrapper_lines import output_buffers, wrapper_lines
from inductoscope.torch_facts.package_wrappers import is_same_operator


@dataclass(frozen=True)
class TrailBuffer:
    """A buffer and the operation of the program whose value it holds."""

    name: str
    node: str = ""
    operation: str = ""
    source: str = ""
    # The kernel that wrote the buffer; empty for inputs and constants, or if unknown.
    made_by: str = ""


@dataclass(frozen=True)
class TrailStep:
    """A kernel on the trail, and the buffers through which it propagates the wrong value."""

    kernel: str
    # The position among the graph's calls, from 1; 0 if unknown.
    call: int
    # The buffers the kernel computes from each other, last one first; none if it fails earlier.
    buffers: tuple[TrailBuffer, ...] = ()
    # The buffers that the kernel reads and has not written itself.
    reads: tuple[TrailBuffer, ...] = ()


@dataclass(frozen=True)
class FaultTrail:
    """The steps from the fault back to the culprit kernel, which comes last."""

    compile: str
    graph: str
    # The number of kernels and operators that the graph calls.
    calls: int
    steps: tuple[TrailStep, ...]
    # Whether the fault shows in the first step: it writes an output, or fails.
    reaches_fault: bool = False
    # The fault, the error at the last step, and the evidence for it.
    fault: str = ""
    wrong: str = ""
    how: str = ""


@dataclass(frozen=True)
class GuiltyPlace:
    """The culprit kernel and buffer, by their names in the recorded graph."""

    kernel: str
    # The first wrong buffer; empty if the kernel fails before writing one.
    buffer: str = ""
    # Whether this kernel has overwritten the buffer of another kernel.
    overwrites: bool = False
    # The positions of the wrong outputs.
    outputs: tuple[int, ...] = ()
    # The kernel that finally fails.
    fails: str = ""


def fault_trail(recording: Recording, compile_id: str, guilty: GuiltyPlace) -> FaultTrail | None:
    """Return the trail in the graph with the guilty kernel; None unless exactly one has it."""
    found = [
        (compile_, graph)
        for compile_ in recording.compiles
        if compile_.id == compile_id
        for graph in compile_.inductor
        if _is_in(graph, guilty)
    ]
    if len(found) != 1:
        return None
    return _Graph(recording, *found[0]).trail(guilty)


def _is_in(graph: InductorGraph, guilty: GuiltyPlace) -> bool:
    return any(is_same_operator(kernel.name, guilty.kernel) for kernel in graph.kernels)


class _Graph:
    """A graph's buffers with the scheduler nodes that write and read each of them."""

    def __init__(self, recording: Recording, compile_: Compile, graph: InductorGraph) -> None:
        self._join = GraphJoin(recording, compile_, graph)
        self._leaves = [leaf for node in self._join.after for leaf in node.leaves]
        self._makers = {b.name: leaf for leaf in self._leaves for b in leaf.buffers}
        self._buffers = {b.name: b for leaf in self._leaves for b in leaf.buffers}
        self._numbers = {
            name: number
            for number, kernel in enumerate(graph.kernels, start=1)
            for name in kernel.nodes
        }
        self._readers: dict[str, list[ScheduledNode]] = {}
        for leaf in self._leaves:
            for name in leaf.reads:
                self._readers.setdefault(name, []).append(leaf)
        lines = wrapper_lines(recording.payload(graph.wrapper), graph.kernels)
        self._outputs = output_buffers(lines)

    def trail(self, guilty: GuiltyPlace) -> FaultTrail | None:
        """Return the trail; None if the recorded graph lacks the culprit."""
        graph = self._join.graph
        last = self._guilty_call(guilty)
        if last is None:
            return None
        steps: tuple[TrailStep, ...] = (self._step(last, ()),)
        reaches = is_same_operator(self._kernel_name(last), guilty.fails)
        if guilty.buffer:
            way = self._way(guilty, last)
            made_by = [(last if name == guilty.buffer else self._call(name), name) for name in way]
            grouped = groupby(reversed(made_by), key=lambda item: item[0])
            steps = tuple(self._step(call, [name for _, name in item]) for call, item in grouped)
            reaches = way[-1] in {*self._ends(guilty)}
        return FaultTrail(self._join.compile.id, graph.key, len(graph.kernels), steps, reaches)

    def _guilty_call(self, guilty: GuiltyPlace) -> int | None:
        """Return the position of the guilty call, from 1; None if it is missing or ambiguous."""
        calls = [
            number
            for number, kernel in enumerate(self._join.graph.kernels, start=1)
            if is_same_operator(kernel.name, guilty.kernel)
        ]
        if guilty.buffer and guilty.buffer not in self._makers:
            return None
        if guilty.buffer and not guilty.overwrites:
            maker = self._call(guilty.buffer)
            return maker if maker in calls else None
        return calls[0] if len(calls) == 1 else None

    def _way(self, guilty: GuiltyPlace, call: int) -> list[str]:
        """Return the shortest chain of buffers from the first wrong one to the fault."""
        before: dict[str, str] = {guilty.buffer: ""}
        waiting = deque(before)
        while waiting:
            name = waiting.popleft()
            for reader in self._readers.get(name, ()):
                if guilty.overwrites and self._call_of(reader) <= call:
                    continue  # This kernel read the buffer before the overwrite.
                for buffer in reader.buffers:
                    if buffer.name not in before:
                        before[buffer.name] = name
                        waiting.append(buffer.name)
        end = next((b for b in self._ends(guilty) if b in before), guilty.buffer)
        way = [end]
        while before[way[-1]]:
            way.append(before[way[-1]])
        return way[::-1]

    def _ends(self, guilty: GuiltyPlace) -> Iterator[str]:
        """Yield the buffers where the fault shows: made by the failing kernel, or wrong outputs."""
        if guilty.fails:
            for name in self._makers:
                if is_same_operator(self._kernel_name(self._call(name)), guilty.fails):
                    yield name
            return
        yield from (self._outputs[n] for n in guilty.outputs if n in self._outputs)

    def _step(self, call: int, names: Sequence[str]) -> TrailStep:
        leaves = [leaf for leaf in self._leaves if self._call_of(leaf) == call]
        # For a kernel with many buffers, only the inputs of those on the trail matter.
        makers = [self._makers[name] for name in names if self._call(name) == call] or leaves
        own = {buffer.name for leaf in leaves for buffer in leaf.buffers}
        reads = dict.fromkeys(n for leaf in makers for n in leaf.reads if n not in own)
        return TrailStep(
            kernel=self._kernel_name(call) or (makers[0].name if makers else ""),
            call=call,
            buffers=tuple(map(self._described, names)),
            reads=tuple(map(self._described, reads)),
        )

    def _kernel_name(self, call: int) -> str:
        return self._join.graph.kernels[call - 1].name if call else ""

    def _call(self, name: str) -> int:
        return self._call_of(self._makers[name])

    def _call_of(self, leaf: ScheduledNode) -> int:
        """Return the position of a node's call; an unpacked result belongs to its producer's."""
        if leaf.name in self._numbers:
            return self._numbers[leaf.name]
        makers = [self._makers[name] for name in leaf.reads if name in self._makers]
        return self._numbers.get(makers[0].name, 0) if len(makers) == 1 else 0

    def _described(self, name: str) -> TrailBuffer:
        buffer, maker = self._buffers.get(name), self._makers.get(name)
        if buffer is None or maker is None:
            return TrailBuffer(name)
        origin = self._node(buffer.origin or next(iter(maker.origins[-1:]), ""))
        node, place = (self._computing(origin), origin.place) if origin else (None, None)
        return TrailBuffer(
            name=name,
            node=node.name if node else "",
            operation=node.target if node else "",
            source=str(place) if place else "",
            made_by=self._kernel_name(self._call(name)),
        )

    def _node(self, name: str) -> FxNode | None:
        return self._join.final.node(name) if self._join.final else None

    def _computing(self, node: FxNode) -> FxNode:
        """Return the node itself; for `getitem`, which has no code, the one that it unpacks."""
        if node.operation != "getitem":
            return node
        return self._node(node.args.strip("(%").partition(",")[0].strip()) or node
