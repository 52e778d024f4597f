"""Triton kernels that the user wrote, as text: their definitions, and calls of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Graph, Node

from inductoscope.doctor.repro.source_parts import SourceParts
from inductoscope.doctor.search.user_kernels import (
    constants_of,
    function_of,
    is_user_kernel,
    kernel_of,
)
from inductoscope.errors import ToolFailure

Text = Callable[[Any], str]


def kernel_name(node: Node) -> str:
    """The name under which a script defines the kernel that a node calls."""
    return str(function_of(kernel_of(node)).__name__)


def kernel_definitions(graph: Graph) -> str:
    """The kernels that a graph calls, with what they use; raises `ToolFailure` if it cannot."""
    kernels = {kernel_name(node): kernel_of(node) for node in graph.nodes if is_user_kernel(node)}
    if not kernels:
        return ""
    parts = SourceParts()
    for kernel in kernels.values():
        parts.add_kernel(function_of(kernel))
    return parts.text


def kernel_call(node: Node, text: Text) -> str:
    """The call as the user would write it; `text` writes an argument."""
    if node.kwargs.get("tma_descriptor_metadata"):
        raise ToolFailure(f"the kernel {kernel_name(node)} gets TMA descriptors")
    given: Any = node.kwargs["kwargs"]
    arguments = {**given, **constants_of(node)}
    written = ", ".join(f"{name}={text(value)}" for name, value in arguments.items())
    return f"{kernel_name(node)}[{_grid(node, text)}]({written})"


def _grid(node: Node, text: Text) -> str:
    """The grid; an autotuned kernel has one for each of its configurations."""
    grids: Any = node.kwargs["grid"]
    texts = [text(tuple(grid)) for grid in grids]
    if len(set(texts)) == 1:
        return texts[0]
    choices: Sequence[Any] = getattr(kernel_of(node), "configs", ())
    if len(choices) != len(texts):
        raise ToolFailure(f"the kernel {kernel_name(node)} has grids that cannot be told apart")
    names = sorted(choices[0].kwargs)
    keys = [tuple(choice.kwargs[name] for name in names) for choice in choices]
    table = ", ".join(f"{key!r}: {grid}" for key, grid in zip(keys, texts, strict=True))
    chosen = ", ".join(f"meta[{name!r}]" for name in names)
    return f"lambda meta: {{{table}}}[({chosen},)]"
