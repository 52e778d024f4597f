"""Sizes that the program has marked: dynamic, within bounds, or unbacked.

What the compiler may assume of a size decides what code it generates, so a smaller candidate keeps
the marks of the inputs that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.compare.graphs import input_names

TORCH_NAMES = {
    "torch._dynamo.decorators": ("mark_dynamic", "mark_unbacked", "maybe_mark_dynamic"),
}


@dataclass(frozen=True)
class MarkedSize:
    """One dimension of an input of the graph, and the function of torch that marked it."""

    input: str
    dimension: int
    function: str
    least: int | None = None
    most: int | None = None

    @property
    def bounds(self) -> dict[str, int]:
        """The bounds as that function takes them."""
        given = {"min": self.least, "max": self.most}
        return {name: bound for name, bound in given.items() if bound is not None}


def marked_sizes(module: GraphModule, arguments: Sequence[Any]) -> tuple[MarkedSize, ...]:
    """The marks that the arguments of a call carry."""
    names = input_names(module)
    return tuple(
        mark
        for name, value in zip(names, arguments, strict=False)
        if isinstance(value, torch.Tensor)
        for mark in _marks_of(name, value)
    )


def _marks_of(name: str, value: torch.Tensor) -> Iterator[MarkedSize]:
    ranges = {item.dim: item for item in getattr(value, "_dynamo_dynamic_range", ())}
    for dimension in sorted(getattr(value, "_dynamo_dynamic_indices", ())):
        least = getattr(ranges.get(dimension), "min", None)
        most = getattr(ranges.get(dimension), "max", None)
        yield MarkedSize(name, dimension, "mark_dynamic", least, most)
    bounds = getattr(value, "_dynamo_unbacked_bounds", {})
    for dimension in sorted(getattr(value, "_dynamo_unbacked_indices", ())):
        yield MarkedSize(name, dimension, "mark_unbacked", *bounds.get(dimension, ()))
    for dimension in sorted(getattr(value, "_dynamo_weak_dynamic_indices", ())):
        yield MarkedSize(name, dimension, "maybe_mark_dynamic")


def marking(
    module: GraphModule, marks: Sequence[MarkedSize], function: Callable[..., Any]
) -> Callable[..., Any]:
    """`function`, whose arguments are marked before it is called."""
    if not marks:
        return function
    from torch._dynamo import decorators

    numbered = list(marked_inputs(module, marks))

    def call(*arguments: Any) -> Any:
        for number, mark in numbered:
            mark_size = getattr(decorators, mark.function)
            mark_size(arguments[number], mark.dimension, **mark.bounds)
        return function(*arguments)

    return call


def marked_inputs(
    module: GraphModule, marks: Sequence[MarkedSize]
) -> Iterator[tuple[int, MarkedSize]]:
    """The marks of inputs that the graph has, with the number of the input."""
    names = input_names(module)
    return ((names.index(mark.input), mark) for mark in marks if mark.input in names)
