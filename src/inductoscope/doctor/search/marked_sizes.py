"""Sizes that the program has marked: dynamic, within bounds, or unbacked.

What the compiler may assume of a size decides what code it generates, so a smaller candidate keeps
the marks of the inputs that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.capture.program_settings import MarkedSize, marks_of
from inductoscope.doctor.compare.graphs import input_names

TORCH_NAMES = {
    "torch._dynamo.decorators": (),
}


def marked_sizes(module: GraphModule, arguments: Sequence[Any]) -> tuple[MarkedSize, ...]:
    """The marks that the arguments of a call carry."""
    names = input_names(module)
    return tuple(
        mark
        for name, value in zip(names, arguments, strict=False)
        if isinstance(value, torch.Tensor)
        for mark in marks_of(name, value)
    )


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
