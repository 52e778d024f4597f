"""Triton kernels of the user: graphs refer to them by index into a table of torch's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.fx import Graph, GraphModule, Node

from inductoscope.errors import ToolFailure

_KERNEL, _CONSTANTS = "kernel_idx", "constant_args_idx"


# The module of a kernel, and its qualified name there.
KernelReference = tuple[str, str]


def kernels_in(graph: Graph) -> dict[int, KernelReference]:
    """Return the kernels that a graph calls, by their index in the table."""
    return {n: _reference(_table().id_to_kernel[n]) for n in _indices(graph, _KERNEL)}


def calls_user_kernels(graph: Graph) -> bool:
    """Check whether a graph calls a user's Triton kernel, which gets sizes as numbers."""
    return any(map(is_user_kernel, graph.nodes))


def is_user_kernel(node: Node) -> bool:
    return isinstance(node.kwargs.get(_KERNEL), int)


def constants_in(graph: Graph) -> dict[int, dict[str, Any]]:
    """Return the constant arguments of kernel calls, by their index in the table."""
    return {n: dict(_table().constant_args[n]) for n in _indices(graph, _CONSTANTS)}


def _indices(graph: Graph, name: str) -> list[int]:
    numbers = [node.kwargs.get(name) for node in graph.nodes]
    return [number for number in numbers if isinstance(number, int)]


def kernel_of(node: Node) -> Any:
    return _table().id_to_kernel[node.kwargs[_KERNEL]]


def constants_of(node: Node) -> dict[str, Any]:
    return dict(_table().constant_args[node.kwargs[_CONSTANTS]])


def register_kernels(
    kernels: Mapping[int, KernelReference], constants: Mapping[int, dict[str, Any]]
) -> None:
    """Register kernels at the indices that a graph of another process uses.

    This process was copied earlier, so its table is a prefix of the other process's table.
    """
    if not kernels:
        return
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table as table

    for number, reference in kernels.items():
        kernel = _resolve(reference)
        table.id_to_kernel[number] = kernel
        table.kernel_to_id[kernel] = number
    table.constant_args.update(constants)


@contextlib.contextmanager
def keeping_kernels() -> Iterator[None]:
    """Preserve the kernel table inside the block, while torch is reset."""
    table = _table()
    names = ("id_to_kernel", "kernel_to_id", "constant_args") if table is not None else ()
    kept = {name: dict(getattr(table, name)) for name in names}
    yield
    for name, entries in kept.items():
        getattr(table, name).update(entries)


def with_kernels_launched(module: GraphModule) -> GraphModule:
    """Return the graph with its kernels launched as in user code.

    Dynamo cannot trace the higher-order operator for such a launch: it breaks the graph there.
    """
    if not any(map(_can_be_launched, module.graph.nodes)):
        return module
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in list(graph.nodes):
        if _can_be_launched(node):
            with graph.inserting_before(node):
                given: Any = node.kwargs["kwargs"]
                graph.call_function(_launcher(node), (node.kwargs["grid"],), dict(given))
            graph.erase_node(node)
    return GraphModule(module, graph)


def _can_be_launched(node: Node) -> bool:
    """Check for a launch as in user code; an exported launch returns copies instead."""
    return (
        is_user_kernel(node) and not node.users and not node.kwargs.get("tma_descriptor_metadata")
    )


def _launcher(node: Node) -> Callable[..., None]:
    """Return a function that launches the kernel; autotuned, it has a grid per configuration."""
    kernel, constants = kernel_of(node), constants_of(node)
    choices = [choice.kwargs for choice in getattr(kernel, "configs", ())]
    names = sorted(choices[0]) if choices else []
    numbers = {tuple(each[name] for name in names): n for n, each in enumerate(choices)}

    def launch(grids: Any, /, **given: Any) -> None:
        kernel[grids[0]](**given, **constants)

    def launch_tuned(grids: Any, /, **given: Any) -> None:
        def chosen(meta: Any) -> Any:
            return grids[numbers[tuple([meta[name] for name in names])]]

        kernel[chosen](**given, **constants)

    grids: Any = node.kwargs["grid"]
    return launch_tuned if len(grids) > 1 and len(grids) == len(choices) else launch


def function_of(kernel: Any) -> Any:
    """Return the Python function inside a kernel's decorators."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _reference(kernel: Any) -> KernelReference:
    function = function_of(kernel)
    return function.__module__, function.__qualname__


def _resolve(reference: KernelReference) -> Any:
    module, path = reference
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise ToolFailure(
            f"the Triton kernel {path} was defined after the program began to use the GPU"
        )
    return found


def _table() -> Any:
    module = sys.modules.get("torch._higher_order_ops.triton_kernel_wrap")
    return getattr(module, "kernel_side_table", None)
