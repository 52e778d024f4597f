"""A candidate: a graph, its inputs, and how it is compiled. A value that an oracle judges."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.capture.program_settings import MarkedSize
from inductoscope.vocabulary.flows import JUST_IN_TIME


@dataclass(frozen=True)
class Candidate:
    """A graph with inputs that shows a failure, or may show it."""

    module: GraphModule
    inputs: tuple[Any, ...]
    backward: bool = False
    dynamic: bool | None = None
    # Options of torch.compile, and settings of the compiler that the program changed.
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    # Sizes that the program has marked as dynamic.
    marks: tuple[MarkedSize, ...] = ()
    # Inputs of an earlier call, for which the graph was compiled: some failures need that.
    earlier: tuple[Any, ...] | None = None
    # Code that makes each input; empty for an input that cannot be written down.
    recipes: tuple[str, ...] = ()
    earlier_recipes: tuple[str, ...] = ()
    # Differences in how results lie in memory that count as a failure: stride, sharing.
    counts: tuple[str, ...] = ()
    # The device on which the tensors belong, where they are only kept in main memory; and the
    # inputs and attributes that belong in main memory all the same.
    device: str = ""
    on_cpu: frozenset[str] = frozenset()
    # How it reaches Inductor, and the inputs that a package holds as constants.
    flow: str = JUST_IN_TIME
    constants: frozenset[str] = frozenset()
    # Whether it needs memory that holds NaN around inputs and buffers, and in new ones.
    guarded: bool = False

    @property
    def operations(self) -> list[torch.fx.Node]:
        """The nodes that compute something."""
        return [node for node in self.module.graph.nodes if is_operation(node)]

    @property
    def size(self) -> int:
        """The number of operations; unpacking several results does not count."""
        return sum(not is_unpacking(node) for node in self.operations)

    @property
    def draws_inductor_random_numbers(self) -> bool:
        """Whether it draws other random numbers than eager, so that values cannot be compared."""
        return self.config.get("fallback_random") is False

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        """The inputs of every call, in order."""
        return [self.inputs] if self.earlier is None else [self.earlier, self.inputs]

    def with_calls_changed(self, change: Callable[[tuple[Any, ...]], Iterable[Any]]) -> Candidate:
        """The same change made to the inputs of every call, so that they fit together."""
        calls = [tuple(change(inputs)) for inputs in self.calls]
        earlier = calls[0] if self.earlier is not None else None
        return replace(self, inputs=calls[-1], earlier=earlier, recipes=(), earlier_recipes=())


def name_of(node: torch.fx.Node) -> str:
    """The name of what a node calls."""
    if isinstance(node.target, str):
        return node.target
    return str(getattr(node.target, "__name__", node.target))


def is_unpacking(node: torch.fx.Node) -> bool:
    """Whether a node takes one of several results; it belongs to the node that computed them."""
    if node.target is not operator.getitem or not isinstance(node.args[0], torch.fx.Node):
        return False
    value = node.args[0].meta.get("example_value", node.args[0].meta.get("val"))
    is_tensor = value is None or isinstance(value, torch.Tensor)
    return isinstance(node.args[1], int) and not is_tensor


def is_operation(node: torch.fx.Node) -> bool:
    """Whether a node computes something."""
    return node.op in ("call_function", "call_method", "call_module")


def has_transforms(candidate: Candidate) -> bool:
    """Whether the graph enters and leaves transforms such as vmap or grad, so cannot be divided.

    Running a part of it could leave this process inside a transform.
    """
    modules = [str(getattr(node.target, "__module__", "")) for node in candidate.operations]
    return any("_functorch" in module for module in modules)
