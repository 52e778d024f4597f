"""Reads what the program's own backward pass gives a compiled graph, and gets from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

_COMPILED = "CompiledFunctionBackward"


@dataclass
class Tap:
    """A hook on the backward pass of one call; it fires once, and changes nothing."""

    # Outputs by number, and where in the node's arguments their cotangents are; inputs likewise.
    outputs: list[tuple[int, int]]
    inputs: list[tuple[int, int]]
    cotangents: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    _handle: Any = None

    def remove(self) -> None:
        """Take the hook away."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def listen(self, node: Any, then: Callable[[Tap], None]) -> None:
        """Call `then` once the backward pass of the node is through."""

        def hook(gradients: Sequence[Any], cotangents: Sequence[Any]) -> None:
            self.remove()
            if self._read(gradients, cotangents):
                then(self)

        self._handle = node.register_hook(hook)

    def _read(self, gradients: Sequence[Any], cotangents: Sequence[Any]) -> bool:
        """Whether every cotangent belongs to an output that is known; only then gradients follow
        from them."""
        if torch.compiler.is_compiling():
            return False
        known = {place for _, place in self.outputs}
        for place, value in enumerate(cotangents):
            if place not in known and isinstance(value, torch.Tensor) and bool(value.any()):
                return False
        self.cotangents = [
            (number, cotangents[place].detach())
            for number, place in self.outputs
            if isinstance(cotangents[place], torch.Tensor)
        ]
        self.gradients = {
            number: gradients[place].detach()
            for number, place in self.inputs
            if isinstance(gradients[place], torch.Tensor)
        }
        return bool(self.gradients)


def tap_backward(
    outputs: Sequence[Any], arguments: Sequence[Any], then: Callable[[Tap], None]
) -> Tap | None:
    """Have `then` called when the backward pass of a call is through; None if it has none."""
    nodes = [value.grad_fn for value in outputs if isinstance(value, torch.Tensor)]
    node = next((node for node in nodes if node is not None and node.name() == _COMPILED), None)
    if node is None:
        return None
    tap = Tap(
        [
            (number, value.output_nr)
            for number, value in enumerate(outputs)
            if isinstance(value, torch.Tensor) and value.grad_fn is node
        ],
        list(_places_of(arguments, node.next_functions)),
    )
    tap.listen(node, then)
    return tap


def _places_of(arguments: Sequence[Any], edges: Sequence[Any]) -> Any:
    """Each argument that gets a gradient, with its place among the edges of the node."""
    for number, value in enumerate(arguments):
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            continue
        wanted = get_gradient_edge(value)
        for place, (node, output) in enumerate(edges):
            if node is wanted.node and output == wanted.output_nr:
                yield number, place
                break
