"""A candidate: a graph, inputs, and how it is compiled. It is a value; an oracle judges it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule


@dataclass(frozen=True)
class Candidate:
    """A graph with inputs that shows a failure, or may show it."""

    module: GraphModule
    inputs: tuple[Any, ...]
    backward: bool = False
    dynamic: bool | None = None
    # Options of torch.compile, and settings of the compiler that the program made.
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    # Inputs of an earlier call, on which the graph was compiled: some failures need one.
    earlier: tuple[Any, ...] | None = None
    # Texts that make the inputs; empty for an input whose values are only in memory.
    recipes: tuple[str, ...] = ()

    @property
    def operations(self) -> list[torch.fx.Node]:
        """The nodes that compute something."""
        return [node for node in self.module.graph.nodes if is_operation(node)]

    @property
    def size(self) -> int:
        """How many operations there are; taking one of several results is none."""
        return sum(not is_unpacking(node) for node in self.operations)

    @property
    def draws_inductor_random_numbers(self) -> bool:
        """Whether it draws other numbers than eager, so that all but values can be compared."""
        return self.config.get("fallback_random") is False

    def with_inputs(self, inputs: tuple[Any, ...]) -> Candidate:
        """The same graph on other inputs."""
        return replace(self, inputs=inputs, recipes=())


def name_of(node: torch.fx.Node) -> str:
    """What a node calls, in a word."""
    if isinstance(node.target, str):
        return node.target
    return str(getattr(node.target, "__name__", node.target))


def is_unpacking(node: torch.fx.Node) -> bool:
    """Taking one result out of several: belongs to the node that made them."""
    if node.target is not operator.getitem or not isinstance(node.args[0], torch.fx.Node):
        return False
    value = node.args[0].meta.get("example_value", node.args[0].meta.get("val"))
    is_tensor = value is None or isinstance(value, torch.Tensor)
    return isinstance(node.args[1], int) and not is_tensor


def is_operation(node: torch.fx.Node) -> bool:
    """Whether a node computes something."""
    return node.op in ("call_function", "call_method", "call_module")


def has_transforms(candidate: Candidate) -> bool:
    """Whether the graph enters and leaves transforms such as vmap or grad, and so has to be whole.

    Running a part of it would leave this process inside of one.
    """
    modules = [str(getattr(node.target, "__module__", "")) for node in candidate.operations]
    return any("_functorch" in module for module in modules)
