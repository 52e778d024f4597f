"""Follows operations through every stage: Python line, FX, IR, scheduler, loop body, kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inductoscope.model.entities import Compile, InductorGraph, NativeCompile, Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.model.join import (
    GraphJoin,
    Steps,
    captured_graph,
    final_graph,
    inputs_of,
    lines_of_steps,
    why_codeless,
)
from inductoscope.model.kernels import compile_of_kernel
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.recording.events import Kernel, LoweredNode
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import Frame


@dataclass(frozen=True)
class KernelLines:
    """The lines of a generated kernel that implement an operation."""

    kernel: Kernel
    lines: tuple[tuple[int, str], ...]
    natives: tuple[NativeCompile, ...]


@dataclass(frozen=True)
class OperationTrace:
    """One operation of the final graph, at every level."""

    compile: Compile
    graph: InductorGraph
    captured: tuple[FxNode, ...]
    node: FxNode
    lowered: LoweredNode | None
    scheduled: tuple[ScheduledNode, ...]
    groups: tuple[ScheduledNode, ...]
    # The lines of loop bodies that implement it, by scheduler node.
    steps: Steps
    kernels: tuple[KernelLines, ...]
    # Why it has no code of its own; empty where it has some, or nothing is known.
    no_code: str = ""


Selector = Callable[[FxNode], bool]

# What torch puts before the name of an operation that does the same in another way.
_VARIANTS = "_|_safe_|_unsafe_|native_|_native_"


def by_operation(name: str) -> Selector:
    """Return a selector of nodes by name ('relu', 'relu_1') or by operation ('softmax').

    torch has variants of an operation, such as _softmax and _safe_softmax for softmax.
    """
    wanted = name.strip().lower()
    variant = re.compile(rf"(?:{_VARIANTS})?{re.escape(wanted)}")
    numbered = re.compile(rf"{variant.pattern}(_\d+)?")

    def select(node: FxNode) -> bool:
        if numbered.fullmatch(node.name.lower()) or node.target.lower() == wanted:
            return True
        return any(variant.fullmatch(word) for word in (node.operation.lower(), _bare(node.aten)))

    return select


def _bare(aten: str) -> str:
    parts = aten.split(".")
    return parts[1].lower() if len(parts) > 1 else aten.lower()


def by_source(place: str) -> Selector:
    """Return a selector of nodes by source line: 'file.py:12', or 'file.py' for the whole file."""
    file, _, line = place.rpartition(":")
    if not file or not line.isdecimal():
        file, line = place, ""

    def matches(frame: Frame) -> bool:
        same_file = frame.file == file or frame.file.endswith("/" + file.removeprefix("./"))
        return same_file and (not line or str(frame.line) == line.lstrip("0"))

    return lambda node: any(matches(frame) for frame in node.stack)


def trace(recording: Recording, select: Selector) -> Iterator[OperationTrace]:
    """Yield a trace of every operation that `select` accepts, over all compiled graphs."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            yield from _trace_graph(GraphJoin(recording, compile_, graph), select)


def _trace_graph(join: GraphJoin, select: Selector) -> Iterator[OperationTrace]:
    if join.final is None:
        return
    captured = captured_graph(join.recording, join.compile)
    chosen_before = {node.name for node in captured.calls if select(node)} if captured else set()
    for node in join.final.calls:
        if select(node) or chosen_before & set(node.origins):
            yield _trace_node(join, node, captured)


def _trace_node(join: GraphJoin, node: FxNode, captured: FxGraph | None) -> OperationTrace:
    leaves = join.leaves(node) or join.led_to(node)
    steps = join.steps(node, leaves)
    return OperationTrace(
        compile=join.compile,
        graph=join.graph,
        captured=_captured_nodes(captured, node),
        node=node,
        lowered=join.lowered.get(node.name),
        scheduled=tuple(leaves),
        groups=tuple(join.groups(leaves)),
        steps=steps,
        kernels=tuple(
            _kernel_lines(join.recording, kernel, steps) for kernel in join.kernels(leaves)
        ),
        no_code=why_codeless(join, node),
    )


def _captured_nodes(captured: FxGraph | None, node: FxNode) -> tuple[FxNode, ...]:
    """Return the nodes of Dynamo's graph that a node originates from."""
    if captured is None:
        return ()
    return tuple(
        found
        for name in node.origins
        if (found := captured.node(name)) is not None and found.op != "placeholder"
    )


def _kernel_lines(recording: Recording, kernel: Kernel, steps: Steps) -> KernelLines:
    source = recording.payload(kernel.payload)
    wanted = lines_of_steps(kernel, source, steps)
    lines = tuple(
        (number, text)
        for number, text in enumerate(source.splitlines(), start=1)
        if number in wanted
    )
    return KernelLines(kernel, lines, compile_of_kernel(recording, kernel))


# The parts of the compiler after which a graph is recorded, by the graph's stage.
_MAKERS = {
    stages.DYNAMO: "Dynamo",
    "pre-grad": "the pre-grad passes",
    "aot-inference": "AOTAutograd",
    "aot-joint": "AOTAutograd",
    "joint": "the joint-graph passes",
    "aot-forward": "the split into forward and backward",
    "aot-backward": "the split into forward and backward",
    "post-grad": "the post-grad passes",
}


def what_removed(recording: Recording, compile_: Compile, captured: FxNode) -> str:
    """Return the part of the compiler that removed an operation of Dynamo's; empty if unknown."""
    makers = [_MAKERS.get(state.stage, "") for state in compile_.graphs]
    holders = [
        maker
        for maker, state in zip(makers, compile_.graphs, strict=True)
        if _comes_from(read_graph(recording, state.payload), captured)
    ]
    later = makers[len(makers) - makers[::-1].index(holders[-1]) :] if holders else []
    return next(iter(later), "")


def _comes_from(graph: FxGraph | None, captured: FxNode) -> bool:
    nodes = graph.calls if graph is not None else ()
    return any(captured.name in (node.origins or (node.name,)) for node in nodes)


# Operations that write to an operand: torch's end with an underscore, but so does `and_` of Python.
_IN_PLACE = re.compile(r"(?!_?operator\.)(.*\.)?\w+_(\.\w+)?|.*\b(setitem|iadd|isub|imul|itruediv)")


def is_dead_code(graph: FxGraph, node: FxNode) -> bool:
    """Check whether no output of a graph depends on a node, which writes to no operand either."""
    if _IN_PLACE.fullmatch(node.target):
        return False
    needed: set[str] = set()
    for later in reversed(graph.nodes):
        if later.op == "output" or later.name in needed:
            needed.update(inputs_of(later))
    return node.name not in needed


def source_of_node(recording: Recording, compile_: Compile, graph_key: str, node: str) -> str:
    """Return the source line that a node of an Inductor graph originates from; empty if unknown."""
    if not node:
        return ""
    for graph in compile_.inductor:
        if graph.key == graph_key:
            final = read_graph(recording, final_graph(compile_, graph))
            found = final.node(node) if final else None
            return str(found.place) if found and found.place else ""
    return ""


def operations_of(
    recording: Recording, compile_: Compile, graph_key: str, scheduler_node: str
) -> list[str]:
    """Return the FX nodes inside a scheduler node; empty if it does not exist."""
    for graph in compile_.inductor:
        if graph.key != graph_key or not scheduler_node:
            continue
        every = read_schedule(recording, graph.scheduled_after)
        every += read_schedule(recording, graph.scheduled_before)
        for node in every:
            if node.name == scheduler_node:
                return list(dict.fromkeys(o for leaf in node.leaves for o in leaf.origins))
    return []
