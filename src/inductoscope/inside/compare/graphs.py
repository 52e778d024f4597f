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
    """A copy of the graph as it is now; the attributes of its module are shared."""
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for old, new in zip(module.graph.nodes, graph.nodes, strict=False):
        new.meta = dict(old.meta)
    # Inside a compile torch makes lazy modules, finished on their first call; Dynamo skips those.
    with _use_lazy_graph_module(False):
        return GraphModule(module, graph)


def as_function(module: GraphModule) -> Callable[..., Any]:
    """The graph as a function that returns its outputs, run by an interpreter."""

    def function(*inputs: Any) -> Any:
        return Interpreter(module).run(*inputs, enable_io_processing=False)

    return function


def graph_code(module: GraphModule) -> str:
    """The graph as Python code, by which it is known again."""
    return str(module.graph.python_code("self").src)


def uninitialised_allocation(module: GraphModule) -> str:
    """The first operation that allocates memory without initialising it; empty if none does."""
    names = (str(node.target) for node in module.graph.nodes if "empty" in str(node.target))
    return next(names, "")


def input_names(module: GraphModule) -> list[str]:
    """The names of the graph's inputs, in order."""
    return [node.name for node in module.graph.nodes if node.op == "placeholder"]


def named_inputs(module: GraphModule, values: Sequence[Any]) -> dict[str, Any]:
    """Values for the graph's inputs, in order, by name. C++ code gets numbers as tensors."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    return {
        node.name: value.item() if is_number(node) and isinstance(value, torch.Tensor) else value
        for node, value in zip(nodes, values, strict=False)
    }


def is_number(node: Node) -> bool:
    """Whether an input of a graph is a number."""
    return isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat))


def inputs_for(module: GraphModule, known: Mapping[str, Any]) -> list[Any]:
    """Values for the graph's inputs: known ones by name, otherwise random ones that fit."""
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

    The last two are computed when they are first asked for, which they are not where everything is
    close to eager; with the random numbers of the time at which this was made. A way that fails
    stays empty.
    """

    module: GraphModule
    inputs: Sequence[Any]
    # Values for attributes of the module that are not what the module has.
    held: Mapping[str, Any] = field(default_factory=dict)
    eager: dict[str, Any] = field(init=False)
    _generators: list[torch.Tensor] = field(default_factory=generator_states)

    def __post_init__(self) -> None:
        self.eager = values_in_eager(self.module, self.inputs, self.held)

    @cached_property
    def float64(self) -> dict[str, Any]:
        """Of each node that can be computed in float64."""
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
        """The values of a node in runs with perturbed rounding, of which each is made once."""
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
    """The value of every node in eager, by name."""
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
            # A graph may write to what the module holds.
            value = held[target] if target in held else super().fetch_attr(target)
            return value.clone() if isinstance(value, torch.Tensor) else value

    with torch.no_grad(), same_generators(), same_transforms(), mode:
        Keeping(module).run(*inputs, enable_io_processing=False)
    return values
