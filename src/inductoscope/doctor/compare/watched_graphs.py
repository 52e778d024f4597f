"""What is known of a lowered graph, and whether a buffer holds what its node computes.

A buffer whose IR has an origin node must hold the value of that node, which an interpreter computes
from the same graph on the same inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.compare.bug_or_rounding import is_close, judge_tensor
from inductoscope.doctor.compare.graphs import NodeValues, snapshot
from inductoscope.doctor.compare.rounding import FEW_SAMPLES_FIRST

TORCH_NAMES = {
    "torch._inductor.dependencies": ("WeakDep",),
}


@dataclass(frozen=True)
class KernelDivergence:
    """The first buffer that does not hold what its origin node computes."""

    kernel: str
    buffer: str
    node: str
    text: str
    # Names of the FX nodes that went into the buffer.
    origins: tuple[str, ...]
    graph: WatchedGraph
    # Those, and the nodes that went into other buffers of the kernel.
    kernel_origins: tuple[str, ...] = ()
    # Whether the buffer was right, and the kernel has changed it though it must not.
    is_overwritten: bool = False
    # The buffer of the kernel that has the same memory.
    shares_memory_with: str = ""


@dataclass
class WatchedGraph:
    """A lowered graph: where each buffer comes from, and on what the graph was called."""

    module: GraphModule
    origins: dict[str, tuple[str | None, tuple[str, ...]]]
    lowered: Any
    # Buffers that are written again later, with the nodes that do it.
    rewritten: dict[str, set[str]] = field(default_factory=dict)
    # For each buffer, those that are computed from it.
    readers: dict[str, set[str]] = field(default_factory=dict)
    # For each buffer, those that are computed together; some of them are never in memory.
    together: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # The types that the lowered graph gives to buffers.
    planned: dict[str, torch.dtype] = field(default_factory=dict)
    # Constants of the generated code, with the attributes of the module that they come from.
    constants: dict[str, str] = field(default_factory=dict)
    # Inputs and constants that the graph writes to.
    written: tuple[str, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict)
    expected: NodeValues | None = None
    checked: dict[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {node.name: place for place, node in enumerate(self.module.graph.nodes)}

    def place_of(self, buffer: str) -> int:
        """Where in the graph the node of a buffer is; at the end if it has none."""
        origin, _ = self.origins.get(buffer, (None, ()))
        return self._places.get(origin or "", len(self._places))

    def nodes_in(self, buffers: Iterable[str]) -> tuple[str, ...]:
        """The names of all nodes that went into these buffers."""
        every = [self.origins[name][1] for name in buffers if name in self.origins]
        return tuple(dict.fromkeys(node for nodes in every for node in nodes))

    def nodes_with(self, buffer: str, made: Iterable[str]) -> tuple[str, ...]:
        """The same of a kernel that has made or written this buffer, and has made those."""
        others = (name for each in (buffer, *made) for name in self.together.get(each, (each,)))
        written = self.rewritten.get(buffer, ())
        return tuple(dict.fromkeys((*written, *self.nodes_in(dict.fromkeys(others)))))

    def forget(self) -> None:
        """Let go of all values."""
        self.inputs, self.expected, self.checked = {}, None, {}


def described(lowered: Any) -> WatchedGraph:
    """What has to be known of a lowered graph to watch its kernels."""
    origins: dict[str, tuple[str | None, tuple[str, ...]]] = {}
    planned = {}
    rewritten = _rewritten(lowered)
    constants = dict(lowered.allocated_constant_name)
    written = {*lowered.graph_inputs, *constants} & set(rewritten)
    for name, buffer in lowered.name_to_buffer.items():
        origin = buffer.get_origin_node()
        every = tuple(node.name for node in getattr(buffer, "origins", ()))
        origins[name] = (None if origin is None else origin.name, every)
        dtype = getattr(getattr(buffer, "layout", None), "dtype", None)
        if dtype is not None:
            planned[name] = dtype
        # What is written to an input has a buffer of its own in the lowered graph.
        for target in written & set(_mutated_by(buffer)):
            origins[target] = origins[name]
    return WatchedGraph(
        snapshot(lowered.module),
        origins,
        lowered,
        rewritten=rewritten,
        readers=_readers(lowered),
        together=_together(lowered),
        planned=planned,
        constants=constants,
        written=tuple(sorted(written)),
    )


def _rewritten(lowered: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for operation in lowered.operations:
        writers = {node.name for node in getattr(operation, "origins", ())}
        for name in _mutated_by(operation):
            found.setdefault(name, set()).update(writers)
    return found


def _scheduled(lowered: Any) -> Sequence[Any]:
    """The scheduler's nodes after fusion."""
    nodes: Sequence[Any] = getattr(getattr(lowered, "scheduler", None), "nodes", ())
    return nodes


def _together(lowered: Any) -> dict[str, tuple[str, ...]]:
    kernels = [tuple(node.get_buffer_names()) for node in _scheduled(lowered)]
    return {name: names for names in kernels for name in names}


def _readers(lowered: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in _scheduled(lowered):
        for read in node.read_writes.reads:
            if not _is_only_for_order(read):
                found.setdefault(read.name, set()).update(node.get_buffer_names())
    return found


def _is_only_for_order(read: Any) -> bool:
    """Whether one operation has to follow another without reading its result."""
    from torch._inductor.dependencies import WeakDep

    return isinstance(read, WeakDep) and getattr(read, "is_fake", True)


def _mutated_by(operation: Any) -> list[str]:
    # Not every kind of operation says so; one that does not is compared like any other.
    with contextlib.suppress(AttributeError, NotImplementedError):
        return list(operation.get_mutation_names())
    return []


def divergence_of(
    graph: WatchedGraph, kernel: str, name: str, value: torch.Tensor
) -> KernelDivergence | None:
    origin, origins = graph.origins.get(name, (None, ()))
    expected = graph.expected
    if origin is None or expected is None:
        return None
    eager = expected.eager.get(origin)
    if not isinstance(eager, torch.Tensor) or eager.numel() != value.numel():
        return None
    value = value.detach()
    planned = planned_dtype(graph, name, value)
    if planned != value.dtype:
        text = f"{name} is {value.dtype}, and the lowered graph takes it for {planned}"
        return KernelDivergence(kernel, name, origin, text, origins, graph)
    if eager.dtype != value.dtype:
        text = f"{name} is {value.dtype}, its node {origin} is {eager.dtype}"
        return KernelDivergence(kernel, name, origin, text, origins, graph)
    if eager.shape != value.shape:
        value = value.reshape(eager.shape)
        if _same_in_some_order(eager, value):
            return None
    if is_close(eager, value) or _holds_later_value(graph, name, value):
        return None
    reference = expected.float64.get(origin)
    reference = reference if isinstance(reference, torch.Tensor) else None
    for count in FEW_SAMPLES_FIRST:
        samples = expected.samples(origin, count)
        difference, is_wrong = judge_tensor(name, eager, value, reference, samples)
        if not is_wrong:
            return None
    since_right = _since_right_values(graph, origins)
    return KernelDivergence(kernel, name, origin, difference.text, since_right, graph)


def _since_right_values(graph: WatchedGraph, origins: Sequence[str]) -> tuple[str, ...]:
    """The nodes between values that were right and these.

    A buffer names its own node. Its kernel may have computed others before that, whose values it
    kept to itself.
    """
    nodes = {node.name: node for node in graph.module.graph.nodes}
    right = {graph.origins[name][0] for name in graph.checked if name in graph.origins}
    found = dict.fromkeys(name for name in origins if name in nodes)
    waiting = [*found]
    while waiting:
        for read in nodes[waiting.pop()].all_input_nodes:
            is_open = read.op == "call_function" and read.name not in right
            if is_open and read.name not in found:
                found[read.name] = None
                waiting.append(read.name)
    return tuple(found)


def _holds_later_value(graph: WatchedGraph, name: str, value: torch.Tensor) -> bool:
    """Whether a buffer holds the value of a later node that the same kernel wrote into it."""
    values = graph.expected.eager if graph.expected is not None else {}
    later = [values.get(node) for node in graph.rewritten.get(name, ())]
    return any(
        isinstance(item, torch.Tensor)
        and (item.numel(), item.dtype) == (value.numel(), value.dtype)
        and is_close(item.reshape(-1), value.reshape(-1))
        for item in later
    )


def planned_dtype(graph: WatchedGraph, buffer: str, like: torch.Tensor) -> torch.dtype:
    """The type of a buffer in the lowered graph; that of `like` if it has none there."""
    return graph.planned.get(buffer, like.dtype)


def _same_in_some_order(one: torch.Tensor, two: torch.Tensor) -> bool:
    """A buffer may hold a node's values in another order."""
    if one.dtype.is_complex:
        return False
    mine, other = one.flatten().double().sort().values, two.flatten().double().sort().values
    return torch.allclose(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True)
