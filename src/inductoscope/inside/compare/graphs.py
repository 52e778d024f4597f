"""Runs FX graphs node by node: in eager, in float64 and with perturbed rounding."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.node import map_arg

from inductoscope.inside.compare.reference import (
    SAMPLES,
    Float64,
    LazyFloat64,
    PerturbedRounding,
    RoundingInTiles,
)
from inductoscope.inside.compare.value_in_tiles import Noise
from inductoscope.inside.compare.values import (
    copy_values,
    generator_states,
    memory_of,
    passing_over_errors,
    same_generators,
    same_modes,
)

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def snapshot(module: GraphModule) -> GraphModule:
    """Copy the graph in its present state; the module's attributes are shared."""
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for old, new in zip(module.graph.nodes, graph.nodes, strict=False):
        new.meta = dict(old.meta)
    # Inside a compile torch creates lazy modules, compiled on their first call; Dynamo skips them.
    with _use_lazy_graph_module(False):
        return GraphModule(module, graph)


def as_function(module: GraphModule) -> Callable[..., Any]:
    """Return a function that runs the graph in an interpreter and returns its outputs."""

    def function(*inputs: Any) -> Any:
        return Interpreter(module).run(*inputs, enable_io_processing=False)

    return function


def graph_code(module: GraphModule) -> str:
    """Return the graph as Python code, which serves as its identity."""
    return str(module.graph.python_code("self").src)


def uninitialised_allocation(module: GraphModule) -> str:
    """Return the first operation that allocates uninitialised memory; empty if none."""
    names = (str(node.target) for node in module.graph.nodes if "empty" in str(node.target))
    return next(names, "")


def input_names(module: GraphModule) -> list[str]:
    return [node.name for node in module.graph.nodes if node.op == "placeholder"]


def named_inputs(module: GraphModule, values: Sequence[Any]) -> dict[str, Any]:
    """Map input names to values; C++ wrappers pass numbers as tensors, which are unpacked."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    return {
        node.name: value.item() if is_number(node) and isinstance(value, torch.Tensor) else value
        for node, value in zip(nodes, values, strict=False)
    }


def is_number(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat))


def bytes_of(node: Node) -> int:
    """Return the bytes of the tensor that a node computes, as far as the compiler knows it."""
    value = node.meta.get("example_value", node.meta.get("val"))
    if not isinstance(value, torch.Tensor) or value.is_meta:
        return 0
    try:
        return math.prod(map(_size, value.shape)) * value.element_size()
    except (TypeError, AttributeError):
        return 0  # A size that depends on values has no hint.


def inputs_for(module: GraphModule, known: Mapping[str, Any]) -> list[Any]:
    """Return a value for each graph input: known ones by name, otherwise random ones that fit."""
    generator = torch.Generator().manual_seed(0)
    return [
        known[node.name] if node.name in known else _invented(node, generator)
        for node in module.graph.nodes
        if node.op == "placeholder"
    ]


def _invented(node: Node, generator: torch.Generator) -> Any:
    form = node.meta.get("val", node.meta.get("example_value"))
    if not isinstance(form, torch.Tensor):
        return form.node.hint if isinstance(form, torch.SymInt) else form
    sizes = [_size(size) for size in form.shape]
    if form.dtype.is_floating_point:
        made = torch.randn(sizes, generator=generator, dtype=torch.float64, device="cpu")
    else:
        made = torch.randint(0, 2, sizes, generator=generator, device="cpu")
    return made.to(form.dtype).to(form.device)


def _size(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


@dataclass
class NodeValues:
    """The value of every node of a graph: in eager, in float64 and with perturbed rounding.

    The last two are computed on first use, which is never if everything is close to eager, from the
    generator states at construction. A run that fails leaves its values empty.
    """

    module: GraphModule
    inputs: Sequence[Any]
    # Values that override attributes of the module.
    held: Mapping[str, Any] = field(default_factory=dict)
    eager: dict[str, Any] = field(init=False)
    _generators: list[torch.Tensor] = field(default_factory=generator_states)

    def __post_init__(self) -> None:
        self.eager = values_in_eager(self.module, self.inputs, self.held)

    @cached_property
    def float64(self) -> dict[str, Any]:
        """The values of nodes that can be computed in float64."""
        with contextlib.suppress(Exception):
            wide = copy_values(self.inputs, dtype=torch.float64)
            return self._values(wide, Float64())
        return {}

    def value(self, name: str) -> Any:
        """Return a node's value in eager; None if it is not known."""
        return self.eager.get(name)

    def reference(self, name: str) -> Any:
        """Return a node's value in float64; None if it is not known."""
        return self.float64.get(name)

    def took_from(self, name: str, buffer: torch.Tensor) -> None:
        """A buffer was compared: nothing is released, as all values are kept."""

    @cached_property
    def _perturbed(self) -> list[dict[str, Any]]:
        return []

    def _values(self, inputs: Sequence[Any], mode: Any) -> dict[str, Any]:
        with same_generators(self._generators):
            return _all_values(self.module, inputs, mode, self.held)

    def samples(self, name: str, count: int = SAMPLES) -> list[torch.Tensor]:
        """Return a node's values from runs with perturbed rounding; each run is made once."""
        for seed in range(len(self._perturbed), count):
            self._perturbed.append({})
            with contextlib.suppress(Exception):
                mode = PerturbedRounding(seed)
                self._perturbed[seed] = self._values(copy_values(self.inputs), mode)
        every = (run.get(name) for run in self._perturbed[:count])
        return [value for value in every if isinstance(value, torch.Tensor)]


def values_in_eager(
    module: GraphModule, inputs: Sequence[Any], held: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """Return the value of every node in eager, by name."""
    return _all_values(module, copy_values(inputs), contextlib.nullcontext(), held)


def _all_values(
    module: GraphModule, inputs: Sequence[Any], mode: Any, held: Mapping[str, Any]
) -> dict[str, Any]:
    values: dict[str, Any] = {}

    class Keeping(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            values[n.name] = value.clone() if isinstance(value, torch.Tensor) else value
            return value

        def fetch_attr(self, target: str) -> Any:
            # A graph may mutate attributes of the module.
            value = held[target] if target in held else super().fetch_attr(target)
            return value.clone() if isinstance(value, torch.Tensor) else value

    with torch.no_grad(), same_generators(), same_modes(), mode:
        Keeping(module).run(*inputs, enable_io_processing=False)
    return values


# --- the same for graphs whose values do not fit into memory together -----------------------------


@dataclass(frozen=True)
class Aside:
    """A tensor that waits in main memory, because compiled code reuses the memory of its input."""

    copy: torch.Tensor
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> Aside:
        return cls(value.detach().to("cpu", copy=True), value.device)


class ValuesInStep(Interpreter):
    """The values of a graph in eager, computed no further than compiled code has come.

    Once a buffer is compared, it gets eager's value. So the next kernels read what eager reads, and
    are judged by the rounding of their own operations alone: of the nodes since compared ones. A
    value is released when no later comparison needs it.
    """

    def __init__(
        self,
        module: GraphModule,
        inputs: Sequence[Any],
        held: Mapping[str, Any],
        compared: Sequence[tuple[str, Sequence[Container[str]]]],
    ) -> None:
        """Take the inputs, and the node of each buffer to compare, with those its kernel reads.

        All others are computed inside of the kernel, whether or not they are stored as well.
        """
        super().__init__(module)
        self._held = held
        self._inputs = {memory_of(value) for value in inputs if isinstance(value, torch.Tensor)}
        self.args_iter = iter(inputs)
        nodes = [node for node in module.graph.nodes if node.op != "output"]
        self._waiting = deque(nodes)
        self._by_name = {node.name: node for node in nodes}
        self._order = {node: place for place, node in enumerate(nodes)}
        known = [self._by_name[name] for name, _ in compared if name in self._by_name]
        self._compared = set(known)
        self._read = dict(compared)
        self._since: dict[Node, tuple[list[Node], list[Node]]] = {}
        # How often a value is still needed: by nodes, and by comparisons.
        self._needed = Counter(read for node in nodes for read in node.all_input_nodes)
        for node in known:
            self._needed.update([node, *self._since_compared(node)[1]])
        # The noise of rounding in what was compared, by the form of it.
        self.known_noise: dict[Any, Noise] = {}
        # How many values this noise has explained.
        self.explained = 0
        # Compared nodes whose buffers could not get eager's value.
        self._different: set[Node] = set()
        self._generators = generator_states()

    def value(self, name: str) -> Any:
        """Return a node's value in eager; None if it is not known, or was released."""
        node = self._by_name.get(name)
        if node is None:
            return None
        with torch.no_grad(), same_generators(self._generators), same_modes():
            while self._waiting and self._order[self._waiting[0]] <= self._order[node]:
                following = self._waiting.popleft()
                for read in following.all_input_nodes:
                    if isinstance(waits := self.env[read], Aside):
                        self.env[read] = waits.copy.to(waits.device)
                self.env[following] = self.run_node(following)
                self._release(following, 0)
                for read in following.all_input_nodes:
                    self._release(read)
            self._generators = generator_states()
        return self.env.get(node)

    def fetch_attr(self, target: str) -> Any:
        return self._held[target] if target in self._held else super().fetch_attr(target)

    def _release(self, node: Node, count: int = 1) -> None:
        self._needed[node] -= count
        if self._needed[node] <= 0:
            self.env.pop(node, None)

    def _since_compared(self, node: Node) -> tuple[list[Node], list[Node]]:
        """Return the nodes to compute from compared values for this one, and these values."""
        if node in self._since:
            return self._since[node]
        within, given, waiting = {node}, dict[Node, None](), [node]
        of_kernels = self._read.get(node.name, ())
        while waiting:
            for read in waiting.pop().all_input_nodes:
                is_read = any(read.name in of_kernel for of_kernel in of_kernels)
                if is_read or read.op != "call_function":
                    given[read] = None
                elif read not in within:
                    within.add(read)
                    waiting.append(read)
        self._since[node] = sorted(within, key=self._order.__getitem__), list(given)
        return self._since[node]

    def took_from(self, name: str, buffer: torch.Tensor) -> None:
        """A buffer was compared: it gets eager's value, and what it alone needed is released."""
        node = self._by_name.get(name)
        if node is None:
            return
        value = self.env.get(node)
        if _is_in_place_of(value, buffer) and memory_of(buffer) not in self._inputs:
            buffer.copy_(value.reshape(buffer.shape))
        else:
            self._different.add(node)
        for read in (node, *self._since_compared(node)[1]):
            self._release(read)

    def reference(self, name: str) -> Any:
        """Return a node's value in float64, from the compared values; None if that fails."""
        return self._again(name, LazyFloat64())

    def samples(self, name: str) -> Iterator[torch.Tensor]:
        """Yield a node's values with perturbed rounding since the compared values."""
        for seed in range(SAMPLES):
            value = self._again(name, RoundingInTiles(seed))
            if isinstance(value, torch.Tensor):
                yield value

    def _again(self, name: str, mode: LazyFloat64 | RoundingInTiles) -> Any:
        within, given = self._since_compared(self._by_name[name])
        again = Interpreter(self.module)
        again.env = {node: self.env[node] for node in given if node in self.env}
        if isinstance(mode, RoundingInTiles):
            # The kernel has read what compiled code has rounded in its own way.
            moved = {node: mode.moved(again.env[node]) for node in given if node in self._different}
            again.env.update(moved)
        last_reader = {read: node for node in within for read in node.all_input_nodes}
        with passing_over_errors(), torch.no_grad(), same_generators(), mode:
            for node in within:
                again.env[node] = again.run_node(node)
                for read in node.all_input_nodes:
                    if last_reader[read] is node:
                        again.env.pop(read, None)
        return again.env.get(within[-1])

    def form_of(self, name: str) -> Any:
        """Return what equal kernels have in common: the operations, and the forms of values."""
        within, given = self._since_compared(self._by_name[name])
        value = self.env[within[-1]]
        read = (self.env.get(node) for node in given)
        is_moved = tuple(node in self._different for node in given)
        forms = [(v.shape, v.dtype) for v in (value, *read) if isinstance(v, torch.Tensor)]
        given_to = [map_arg((node.args, node.kwargs), lambda _: None) for node in within]
        return str([node.target for node in within]), str(given_to), tuple(forms), is_moved


_SOME_ROUNDINGS = 4


def _is_in_place_of(value: Any, buffer: torch.Tensor) -> bool:
    """Check whether a buffer holds a value in the same order; its shape may be another one."""
    if not isinstance(value, torch.Tensor) or value.dtype != buffer.dtype:
        return False
    if value.shape == buffer.shape:
        return True
    return value.numel() == buffer.numel() and _is_near(value.reshape(buffer.shape), buffer)


def _is_near(one: torch.Tensor, two: torch.Tensor) -> bool:
    if not one.dtype.is_floating_point:
        return torch.equal(one, two)
    share = _SOME_ROUNDINGS * torch.finfo(one.dtype).eps
    return torch.allclose(one, two, rtol=share, atol=share, equal_nan=True)
