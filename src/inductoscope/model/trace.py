"""Follows operations through every stage: Python line, FX, IR, scheduler, loop body, kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inductoscope.model.entities import (
    Compile,
    InductorGraph,
    Kernel,
    LoweredNode,
    NativeCompile,
    Recording,
)
from inductoscope.model.fx import Frame, FxGraph, FxNode, read_graph
from inductoscope.model.loops import matching_steps, own_expressions
from inductoscope.model.native import compile_of_kernel
from inductoscope.model.schedule import ScheduledNode, read_schedule


@dataclass(frozen=True)
class LoopLines:
    """The lines of one scheduler node's loop body that an operation became."""

    node: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class KernelLines:
    """The lines of a generated kernel that an operation became."""

    kernel: Kernel
    lines: tuple[tuple[int, str], ...]
    natives: tuple[NativeCompile, ...]


@dataclass(frozen=True)
class OperationTrace:
    """One operation of the final graph, at every level."""

    compile: Compile
    graph: InductorGraph
    place: Frame | None
    captured: tuple[FxNode, ...]
    node: FxNode
    lowered: LoweredNode | None
    scheduled: tuple[ScheduledNode, ...]
    groups: tuple[ScheduledNode, ...]
    loop_lines: tuple[LoopLines, ...]
    kernels: tuple[KernelLines, ...]


Selector = Callable[[FxNode], bool]


def by_operation(name: str) -> Selector:
    """Selects nodes by name ('relu', 'relu_1') or by operation ('softmax')."""
    wanted = name.strip().lower()
    numbered = re.compile(re.escape(wanted) + r"(_\d+)?")

    def select(node: FxNode) -> bool:
        words = {node.operation.lower(), _bare(node.aten), node.target.lower()}
        return (
            bool(numbered.fullmatch(node.name.lower()))
            or wanted in words
            or (f"_{wanted}" in words)
        )

    return select


def _bare(aten: str) -> str:
    parts = aten.split(".")
    return parts[1].lower() if len(parts) > 1 else aten.lower()


def by_source(place: str) -> Selector:
    """Selects nodes by a line of the user's program: 'file.py:12', or 'file.py' for all of it."""
    file, _, line = place.rpartition(":")
    if not file or not line.isdecimal():
        file, line = place, ""

    def matches(frame: Frame) -> bool:
        same_file = frame.file == file or frame.file.endswith("/" + file.removeprefix("./"))
        return same_file and (not line or str(frame.line) == line.lstrip("0"))

    return lambda node: any(matches(frame) for frame in node.stack)


def trace(recording: Recording, select: Selector) -> Iterator[OperationTrace]:
    """Every operation that `select` chooses, in every graph that was compiled."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            yield from _trace_graph(recording, compile_, graph, select)


def _trace_graph(
    recording: Recording, compile_: Compile, graph: InductorGraph, select: Selector
) -> Iterator[OperationTrace]:
    final = read_graph(recording, final_graph(compile_, graph))
    if final is None:
        return
    captured = captured_graph(recording, compile_)
    chosen_before = {node.name for node in captured.calls if select(node)} if captured else set()
    before = read_schedule(recording, graph.scheduled_before)
    after = read_schedule(recording, graph.scheduled_after)
    for node in final.calls:
        if select(node) or chosen_before & set(node.origins):
            yield _trace_node(recording, compile_, graph, final, node, before, after, captured)


def final_graph(compile_: Compile, graph: InductorGraph) -> str:
    """The digest of the graph that was lowered: after the post-grad passes."""
    for item in reversed(compile_.graphs):
        if item.stage == "post-grad" and item.key == graph.key:
            return item.digest
    return ""


def captured_graph(recording: Recording, compile_: Compile) -> FxGraph | None:
    """The graph that Dynamo took from the user's frame."""
    for item in reversed(compile_.graphs):
        if item.stage == "dynamo":
            return read_graph(recording, item.digest)
    return None


def _trace_node(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    final: FxGraph,
    node: FxNode,
    before: tuple[ScheduledNode, ...],
    after: tuple[ScheduledNode, ...],
    captured: FxGraph | None,
) -> OperationTrace:
    lowered = next((item for item in graph.lowered if item.node == node.name), None)
    leaves = [leaf for item in before for leaf in item.leaves if node.name in leaf.origins]
    names = {leaf.name for leaf in leaves}
    groups = [item for item in after if names & {leaf.name for leaf in item.leaves}]
    steps = _loop_steps(recording, graph, final, node, groups, names)
    return OperationTrace(
        compile=compile_,
        graph=graph,
        place=node.place,
        captured=_captured_nodes(captured, node),
        node=node,
        lowered=lowered,
        scheduled=tuple(leaves),
        groups=tuple(groups),
        loop_lines=tuple(
            LoopLines(name, tuple(text for _, text in lines)) for name, lines in steps.items()
        ),
        kernels=tuple(
            _kernel_lines(recording, kernel, steps)
            for kernel in graph.kernels
            if names & set(kernel.nodes)
        ),
    )


def _captured_nodes(captured: FxGraph | None, node: FxNode) -> tuple[FxNode, ...]:
    """The operations of Dynamo's graph that a node goes back to."""
    if captured is None:
        return ()
    return tuple(
        found
        for name in node.origins
        if (found := captured.node(name)) is not None and found.op != "placeholder"
    )


def _loop_steps(
    recording: Recording,
    graph: InductorGraph,
    final: FxGraph,
    node: FxNode,
    groups: list[ScheduledNode],
    names: set[str],
) -> dict[str, list[tuple[str, str]]]:
    """Per scheduler node: (operation in the loop body, its line) that `node` contributed."""
    own = _own_expressions(graph, final, node)
    found: dict[str, list[tuple[str, str]]] = {}
    for group in groups:
        for leaf in group.leaves:
            if leaf.name not in names:
                continue
            stored = [buffer.name for buffer in leaf.buffers if buffer.origin == node.name]
            ends_here = bool(stored) and leaf.loops.endswith("Reduction")
            steps = matching_steps(
                recording.payload(leaf.body), own, stores=stored, reduces=ends_here
            )
            if steps:
                found[leaf.name] = [(step.name, step.text) for step in steps]
    return found


def _own_expressions(graph: InductorGraph, final: FxGraph, node: FxNode) -> frozenset[str]:
    functions = {item.node: _inner(item) for item in graph.lowered}
    inputs = set(re.findall(r"[A-Za-z_]\w*", node.args + " " + node.kwargs))
    below = [functions[name] for name in inputs if name in functions and name != node.name]
    return own_expressions(functions.get(node.name, ""), below)


def _inner(lowered: LoweredNode) -> str:
    items = lowered.ir if isinstance(lowered.ir, list) else [lowered.ir]
    return "\n".join(str(i.get("inner", "")) for i in items if isinstance(i, dict))


def _kernel_lines(
    recording: Recording, kernel: Kernel, steps: dict[str, list[tuple[str, str]]]
) -> KernelLines:
    wanted = {
        line
        for owner, operation, line in kernel.lines
        if any(operation == name for name, _ in steps.get(owner, ()))
    }
    source = recording.payload(kernel.digest).splitlines()
    lines = tuple(
        (number, text) for number, text in enumerate(source, start=1) if text.strip() in wanted
    )
    return KernelLines(kernel, lines, compile_of_kernel(recording, kernel))


def source_of_node(recording: Recording, compile_: Compile, graph_key: str, node: str) -> str:
    """The user's line that a node of an Inductor graph goes back to; empty where unknown."""
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
    """The FX nodes inside a scheduler node; empty where there is no such node."""
    for graph in compile_.inductor:
        if graph.key != graph_key or not scheduler_node:
            continue
        every = read_schedule(recording, graph.scheduled_after)
        every += read_schedule(recording, graph.scheduled_before)
        for node in every:
            if node.name == scheduler_node:
                return list(dict.fromkeys(o for leaf in node.leaves for o in leaf.origins))
    return []
