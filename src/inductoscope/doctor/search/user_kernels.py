"""Triton kernels that the user wrote: graphs refer to them by their place in a table of torch's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, Node

from inductoscope.errors import ToolFailure

TORCH_NAMES = {
    "torch._higher_order_ops.triton_kernel_wrap": (
        "kernel_side_table.constant_args",
        "kernel_side_table.id_to_kernel",
        "kernel_side_table.kernel_to_id",
    ),
}

_KERNEL, _CONSTANTS = "kernel_idx", "constant_args_idx"


@dataclass(frozen=True)
class KernelReference:
    """A kernel by the name under which its module has it."""

    module: str
    name: str


def kernels_in(graph: Graph) -> dict[int, KernelReference]:
    """The kernels that a graph calls, by their place in the table."""
    table = _table()
    found = {}
    for node in graph.nodes:
        number = node.kwargs.get(_KERNEL)
        if table is not None and isinstance(number, int):
            found[number] = _reference(table.id_to_kernel[number])
    return found


def calls_user_kernels(graph: Graph) -> bool:
    """Whether a graph calls such a kernel, which gets sizes as plain numbers."""
    return any(map(is_user_kernel, graph.nodes))


def is_user_kernel(node: Node) -> bool:
    """Whether a node is the call of such a kernel."""
    return isinstance(node.kwargs.get(_KERNEL), int)


def constants_in(graph: Graph) -> dict[int, dict[str, Any]]:
    """The constant arguments of those calls, by their place in the table."""
    table = _table()
    numbers = [node.kwargs.get(_CONSTANTS) for node in graph.nodes]
    return {n: dict(table.constant_args[n]) for n in numbers if table and isinstance(n, int)}


def kernel_of(node: Node) -> Any:
    """The kernel that a node calls."""
    return _table().id_to_kernel[node.kwargs[_KERNEL]]


def constants_of(node: Node) -> dict[str, Any]:
    """The constant arguments of a call."""
    return dict(_table().constant_args[node.kwargs[_CONSTANTS]])


def register_kernels(
    kernels: Mapping[int, KernelReference], constants: Mapping[int, dict[str, Any]]
) -> None:
    """Put kernels where a graph of another process expects them.

    This process is a copy from before, so its table is the beginning of the other one's.
    """
    if not kernels:
        return
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table as table

    for number, reference in kernels.items():
        kernel = _resolve(reference)
        table.id_to_kernel[number] = kernel
        table.kernel_to_id[kernel] = number
    table.constant_args.update(constants)


def function_of(kernel: Any) -> Any:
    """The Python function of a kernel, inside its decorators."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _reference(kernel: Any) -> KernelReference:
    function = function_of(kernel)
    return KernelReference(function.__module__, function.__qualname__)


def _resolve(reference: KernelReference) -> Any:
    found: Any = sys.modules.get(reference.module)
    for name in reference.name.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise ToolFailure(
            f"the Triton kernel {reference.name} was defined after the program began to use the GPU"
        )
    return found


def _table() -> Any:
    module = sys.modules.get("torch._higher_order_ops.triton_kernel_wrap")
    return getattr(module, "kernel_side_table", None)
