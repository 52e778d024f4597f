"""Runs FX graphs node by node: in eager, in float64 and with perturbed rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from inductoscope.inside.compare.reference import SAMPLES, Float64, PerturbedRounding
from inductoscope.inside.compare.values import (
    copy_values,
    generator_states,
    same_generators,
    same_transforms,
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

    with torch.no_grad(), same_generators(), same_transforms(), mode:
        Keeping(module).run(*inputs, enable_io_processing=False)
    return values
