"""Joins the stages of one graph: scheduler nodes, loop lines and kernel lines of each FX node.

No lookup walks the whole graph, so that all nodes of a large graph can be traced.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import Any

from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.recording.events import Kernel, LoweredNode
from inductoscope.recording.values import members
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.loop_bodies import (
    Step,
    matching_steps,
    own_expressions,
    steps_called,
    steps_of,
)

_NAME = re.compile(r"[A-Za-z_]\w*")

# Loop body lines of an operation, by scheduler node.
Steps = dict[str, tuple[Step, ...]]


class GraphJoin:
    """One Inductor graph joined with its recorded stages, which are decoded on demand."""

    def __init__(self, recording: Recording, compile_: Compile, graph: InductorGraph) -> None:
        self.recording, self.compile, self.graph = recording, compile_, graph
        self._known_leaves: dict[str, tuple[list[ScheduledNode], list[ScheduledNode]]] = {}

    @cached_property
    def final(self) -> FxGraph | None:
        return self.read(final_graph(self.compile, self.graph))

    def read(self, digest: str) -> FxGraph | None:
        """Decode an FX graph; consecutive passes share graphs, so the result is cached."""
        return read_graph(self.recording, digest)

    @cached_property
    def before(self) -> tuple[ScheduledNode, ...]:
        return read_schedule(self.recording, self.graph.scheduled_before)

    @cached_property
    def after(self) -> tuple[ScheduledNode, ...]:
        return read_schedule(self.recording, self.graph.scheduled_after)

    @cached_property
    def lowered(self) -> dict[str, LoweredNode]:
        return {item.node: item for item in reversed(self.graph.lowered)}

    @cached_property
    def _leaves_by_origin(self) -> dict[str, list[ScheduledNode]]:
        """Scheduler nodes by operation, including operations that torch omits from `origins`."""
        found: dict[str, list[ScheduledNode]] = defaultdict(list)
        for leaf in (leaf for item in self.before for leaf in item.leaves):
            for name in dict.fromkeys((*leaf.origins, *self._computes(leaf))):
                found[name].append(leaf)
        return found

    def _computes(self, leaf: ScheduledNode) -> Mapping[str, tuple[str, ...]]:
        """Return the loop body lines of each operation in a scheduler node, after fusion."""
        final = self._final_leaves.get(leaf.name)
        return {} if final is None else final.computes

    @cached_property
    def says_whose_lines_are(self) -> bool:
        """Whether the recording says which operation each line of a loop body belongs to."""
        return any(leaf.computes for leaf in self._final_leaves.values())

    @cached_property
    def _groups(self) -> dict[str, ScheduledNode]:
        return {leaf.name: item for item in self.after for leaf in item.leaves}

    @cached_property
    def _final_leaves(self) -> dict[str, ScheduledNode]:
        return {leaf.name: leaf for item in self.after for leaf in item.leaves}

    @cached_property
    def _kernels_by_node(self) -> dict[str, list[Kernel]]:
        found: dict[str, list[Kernel]] = defaultdict(list)
        for kernel in self.graph.kernels:
            for name in kernel.nodes:
                found[name].append(kernel)
        return found

    @cached_property
    def _functions(self) -> dict[str, str]:
        return {name: _inner(item) for name, item in self.lowered.items()}

    def text(self, digest: str) -> str:
        return self.recording.payload(digest)

    def leaves(self, node: FxNode) -> list[ScheduledNode]:
        """Return the scheduler nodes that compute an operation, before fusion.

        Their loop bodies have lines of the operation, or one of their buffers holds its result.
        """
        return self._divided(node)[0]

    def led_to(self, node: FxNode) -> list[ScheduledNode]:
        """Return the scheduler nodes that list an operation as origin without computing it.

        torch lists an operation as an origin of the nodes that read its result, and a view, which
        computes nothing, as an origin of the nodes that read through it.
        """
        return self._divided(node)[1]

    def _divided(self, node: FxNode) -> tuple[list[ScheduledNode], list[ScheduledNode]]:
        """Split the scheduler nodes that list an operation as origin: computing it, or not."""
        if node.name not in self._known_leaves:
            divided: tuple[list[ScheduledNode], list[ScheduledNode]] = ([], [])
            for leaf in self._leaves_by_origin.get(node.name, ()):
                divided[0 if self._is_in(leaf, node) else 1].append(leaf)
            self._known_leaves[node.name] = divided
        return self._known_leaves[node.name]

    def _is_in(self, leaf: ScheduledNode, node: FxNode) -> bool:
        computes = self._computes(leaf)
        if computes:
            return node.name in computes
        if not leaf.body and leaf.name in self._made(node):
            return True
        return bool(self._stored_for(node, leaf) or (leaf.body and self.steps(node, [leaf])))

    def _made(self, node: FxNode) -> list[str]:
        lowered = self.lowered.get(node.name)
        return [str(made.get("name", "")) for made in lowered.made] if lowered else []

    @cached_property
    def computed(self) -> dict[str, tuple[str, ...]]:
        """The operations that each scheduler node computes, in graph order."""
        found: dict[str, list[str]] = defaultdict(list)
        for node in self.final.calls if self.final else ():
            for leaf in self.leaves(node):
                found[leaf.name].append(node.name)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def groups(self, leaves: list[ScheduledNode]) -> list[ScheduledNode]:
        found = {id(g): g for leaf in leaves if (g := self._groups.get(leaf.name)) is not None}
        return list(found.values())

    def kernels(self, leaves: list[ScheduledNode]) -> list[Kernel]:
        found = {id(k): k for leaf in leaves for k in self._kernels_by_node.get(leaf.name, ())}
        return list(found.values())

    def steps(self, node: FxNode, leaves: list[ScheduledNode]) -> Steps:
        found: Steps = {}
        for name in dict.fromkeys(leaf.name for leaf in leaves):
            leaf = self._final_leaves.get(name)
            if leaf is not None and leaf.computes:
                found[name] = steps_called(self.text(leaf.body), leaf.computes.get(node.name, ()))
            elif leaf is not None and leaf.body:
                found[name] = self._matching_steps(node, leaf)
        return {name: steps for name, steps in found.items() if steps}

    def _matching_steps(self, node: FxNode, leaf: ScheduledNode) -> tuple[Step, ...]:
        """Infer an operation's loop body lines from its computation, for old recordings."""
        stores = self._stored_for(node, leaf)
        ends_here = bool(stores) and leaf.loops.endswith("Reduction")
        own = self._own_expressions(node)
        return matching_steps(self.text(leaf.body), own, stores=stores, reduces=ends_here)

    def _stored_for(self, node: FxNode, leaf: ScheduledNode) -> list[str]:
        """Return the buffers of a scheduler node that hold values of an operation.

        These hold its result, one of its results, or an intermediate that it alone reads: the sum
        of squares of a variance is no result of any operation.
        """
        results = {node.name, *self._parts.get(node.name, ())}
        return [
            buffer.name
            for buffer in leaf.buffers
            if buffer.origin in results
            or (not buffer.origin and f"load({buffer.name})" in self._own_expressions(node))
        ]

    @cached_property
    def _parts(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for node in self._nodes.values():
            if node.target == "getitem":
                found[inputs_of(node)[0] if inputs_of(node) else ""].append(node.name)
        return found

    def _own_expressions(self, node: FxNode) -> frozenset[str]:
        return own_expressions(self._functions.get(node.name, ""), list(self._below(node)))

    def _below(self, node: FxNode) -> Iterator[str]:
        """Yield the functions of an operation's inputs, looking through views."""
        seen, left = {node.name}, inputs_of(node)
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if self._functions.get(name):
                yield self._functions[name]
            elif name in self._nodes:
                left += inputs_of(self._nodes[name])

    @cached_property
    def _nodes(self) -> dict[str, FxNode]:
        return {node.name: node for node in self.final.nodes} if self.final else {}


def lines_of_steps(kernel: Kernel, source: str, steps: Steps) -> set[int]:
    known = numbers_by_step(kernel, source)
    return {
        number
        for owner, found in steps.items()
        for step in found
        for number in known.get((owner, step.name), ())
    }


def numbers_by_step(kernel: Kernel, source: str) -> Mapping[tuple[str, str], Sequence[int]]:
    return kernel.numbers_by_step if kernel.numbered else _found_by_text(kernel.lines, source)


@lru_cache(maxsize=512)
def _found_by_text(
    lines: tuple[tuple[str, str, str], ...], source: str
) -> dict[tuple[str, str], list[int]]:
    """Map loop body lines to kernel lines by text, as old recordings have no line numbers."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(source.splitlines(), start=1):
        numbers[text.strip()].append(number)
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for owner, operation, text in lines:
        if len(numbers.get(text, ())) == 1:
            found[owner, operation].append(numbers[text][0])
    return found


def compiled_graphs(recording: Recording) -> Iterator[tuple[Compile, InductorGraph]]:
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            yield compile_, graph


def final_graph(compile_: Compile, graph: InductorGraph) -> str:
    """Return the digest of the graph after the post-grad passes; empty if not recorded."""
    for item in reversed(compile_.graphs):
        if item.stage == "post-grad" and item.graph == graph.key:
            return item.payload
    return ""


def captured_graph(recording: Recording, compile_: Compile) -> FxGraph | None:
    """Return the graph that Dynamo captured from the user's frame; None if not recorded."""
    return read_graph(recording, captured_digest(compile_))


def captured_digest(compile_: Compile) -> str:
    """Return the digest of the graph that Dynamo captured; empty if not recorded."""
    return next((g.payload for g in reversed(compile_.graphs) if g.stage == stages.DYNAMO), "")


def inputs_of(node: FxNode) -> list[str]:
    return sorted(set(_NAME.findall(f"{node.args} {node.kwargs}")) - {node.name})


def _inner(lowered: LoweredNode) -> str:
    items = lowered.ir if isinstance(lowered.ir, list) else [lowered.ir]
    return "\n".join(str(i.get("inner", "")) for i in items if isinstance(i, dict))


# --- Why an operation has no code of its own, so that nobody searches for it in the kernels -------

_RUN_GRAPHS = ("Conditional", "Switch", "WhileLoop", "InvokeSubgraph")


def why_codeless(join: GraphJoin, node: FxNode) -> str:
    """Explain why an operation has no code of its own; empty if it has some, or if unknown."""
    lowered = join.lowered.get(node.name)
    if lowered is None or not join.after:
        return ""
    leaves = join.leaves(node)
    if leaves:
        runs_graph = any(made.get("class") in _RUN_GRAPHS for made in lowered.made)
        is_run = runs_graph and not join.kernels(leaves)
        return "it runs another graph, which has kernels of its own" if is_run else ""
    if node.target == "getitem":
        return f"one of the results of {inputs_of(node)[0]}" if inputs_of(node) else ""
    results = _results(lowered)
    kinds = {str(members(result).get("class", "")) for result in results}
    if kinds and all(kind.endswith("View") for kind in kinds):
        return "a view: it only changes how memory is addressed"
    if lowered.made:
        return ""
    if any(_same_as(result, join, inputs_of(node)) for result in results):
        return "it returns its input as it is"
    if kinds and not any(members(result).get("ranges") for result in results):
        return "a number: no kernel computes it"
    return _of_loops(node, results) if join.says_whose_lines_are else ""


def _results(lowered: LoweredNode) -> list[Any]:
    return lowered.ir if isinstance(lowered.ir, list) else [lowered.ir]


def _same_as(result: Any, join: GraphJoin, inputs: list[str]) -> bool:
    """Check whether a lowering created nothing: its result is the lowering of an input."""
    buffer = members(result).get("buffer")
    known = [one for name in inputs if name in join.lowered for one in _results(join.lowered[name])]
    return result in known or (buffer is not None and buffer in inputs)


def _of_loops(node: FxNode, results: list[Any]) -> str:
    steps = [step for one in results for step in steps_of(str(members(one).get("inner", "")))]
    if not any("load" in step.expression for step in steps):
        return "worked out while compiling: a constant, or part of an address" if steps else ""
    if node.operation == "clone":
        return "a copy that is not made: what reads it reads its input"
    return "torch worked it out, or no kernel needs its value"


# --- The line of the user's program that a kernel, or a part of it, comes from --------------------


@dataclass(frozen=True)
class KernelPlace:
    """A kernel with its graph and compile, to look up its operations and source lines."""

    compile: Compile
    graph: InductorGraph
    kernel: Kernel
    # Decodes the graph that was lowered.
    lowered: Callable[[], FxGraph | None]

    @cached_property
    def operations(self) -> tuple[FxNode, ...]:
        """The FX nodes in the kernel's origins; decodes the FX graph."""
        final = self.lowered()
        found = (final.node(name) for name in self.kernel.origins) if final else ()
        return tuple(node for node in found if node is not None)

    def line(self, operation: str = "") -> tuple[str, str]:
        """Return source line and text of `operation`, else of the kernel's last operation."""
        named = [node for node in self.operations if operation and operation in node.operation]
        for node in (*named, *reversed(self.operations)):
            if node.place is not None:
                return str(node.place), node.place.code
        return self.compile.place, ""


def kernel_places(recording: Recording, language: str) -> Iterator[KernelPlace]:
    """Yield all kernels in a language; identical ones of recompiled graphs are yielded once."""
    seen: set[str] = set()
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            wanted = [k for k in graph.kernels if k.language == language and k.payload not in seen]
            # The large graph is decoded once for all its kernels.
            lowered = cache(partial(read_graph, recording, final_graph(compile_, graph)))
            for kernel in wanted:
                seen.add(kernel.payload)
                yield KernelPlace(compile_, graph, kernel, lowered)


def place_of(
    recording: Recording, compile_: Compile, graph: InductorGraph, operations: Iterable[str]
) -> tuple[str, str]:
    """Return the source line of the last of these operations that has one, and its text."""
    final = read_graph(recording, final_graph(compile_, graph))
    nodes = {node.name: node for node in (final.nodes if final else ())}
    for name in reversed(list(operations)):
        if name in nodes and (place := nodes[name].place) is not None:
            return str(place), place.code
    return compile_.place, ""
