"""A candidate: a graph, inputs, and how it is compiled. It is a value; an oracle judges it."""

from __future__ import annotations

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
    # Texts that make the inputs; empty for an input whose values are only in memory.
    recipes: tuple[str, ...] = ()

    @property
    def operations(self) -> list[torch.fx.Node]:
        """The nodes that compute something."""
        return [node for node in self.module.graph.nodes if is_operation(node)]

    def with_inputs(self, inputs: tuple[Any, ...]) -> Candidate:
        """The same graph on other inputs."""
        return replace(self, inputs=inputs, recipes=())


def is_operation(node: torch.fx.Node) -> bool:
    """Whether a node computes something."""
    return node.op in ("call_function", "call_method", "call_module")
