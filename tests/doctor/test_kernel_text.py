"""A reproducer whose graph calls Triton kernels that the user wrote defines and calls them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import (
    kernel_side_table,
    triton_kernel_wrapper_mutation,
)
from torch.fx import Graph, GraphModule

from inductoscope.errors import ToolFailure
from inductoscope.inside.repro.python_text import function_text
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.shrink_passes import CONSTANTS, SHAPES
from inductoscope.inside.search.user_kernels import (
    calls_user_kernels,
    keeping_kernels,
    with_kernels_launched,
)

SCALE = tl.constexpr(2.0)
UNWRITTEN = object()


@triton.jit
def scaled(value):  # type: ignore[no-untyped-def]
    return value * SCALE


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (128, 256)], key=["n"])
@triton.jit
def double(ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(ptr + i, scaled(tl.load(ptr + i, mask=i < n)), mask=i < n)


@triton.jit
def uses_an_object(ptr):  # type: ignore[no-untyped-def]
    tl.store(ptr, UNWRITTEN)


def graph_calling(kernel: Any, grid: list[Any], **more: Any) -> GraphModule:
    """What Dynamo makes of `y = x.clone(); kernel[grid](y, n=1000); return y * 2`."""
    graph = Graph()
    copy = graph.call_method("clone", (graph.placeholder("x"),))
    call = {
        "kernel_idx": kernel_side_table.add_kernel(kernel),
        "constant_args_idx": kernel_side_table.add_constant_args({"n": 1000}),
        "grid": grid,
        "tma_descriptor_metadata": {},
        "kwargs": {"ptr": copy},
    }
    graph.call_function(triton_kernel_wrapper_mutation, (), {**call, **more})
    graph.output((graph.call_function(torch.mul, (copy, 2)),))
    return GraphModule(torch.nn.Module(), graph)


def test_the_script_defines_the_kernel_with_all_that_it_uses() -> None:
    text, _ = function_text(graph_calling(double, [(8, 1, 1), (4, 1, 1)]))
    compile(text, "<repro>", "exec")
    definitions, _, function = text.partition("def fn(x):")
    for part in ("import triton", "SCALE = ", "@triton.autotune", "def double(", "def scaled("):
        assert part in definitions, part
    assert "(128,): (8, 1, 1), (256,): (4, 1, 1)" in function, "a grid for each configuration"
    assert "(ptr=clone, n=1000)" in function


def test_a_kernel_whose_surroundings_cannot_be_written_down_is_refused_with_the_reason() -> None:
    with pytest.raises(ToolFailure):
        function_text(graph_calling(uses_an_object, [(1, 1, 1)]))
    with pytest.raises(ToolFailure, match="TMA"):
        function_text(graph_calling(double, [(8, 1, 1)], tma_descriptor_metadata={"ptr": 1}))


def test_its_grid_and_sizes_stay_as_they_are_while_the_graph_is_made_smaller() -> None:
    """The kernel gets `n` as a number: with a smaller tensor it would run past its end."""
    candidate = Candidate(graph_calling(double, [(8, 1, 1), (4, 1, 1)]), (torch.ones(1000),))
    assert not SHAPES.applies(candidate)
    assert CONSTANTS.measure(candidate) == 0


class PythonKernel:
    """Launches as a Triton kernel does, and runs without a GPU."""

    def __init__(self, *configs: triton.Config) -> None:
        self.configs = list(configs)
        self.grids: list[Any] = []

    def __getitem__(self, grid: Any) -> Any:
        def run(*, ptr: torch.Tensor, n: int) -> None:
            assert n == 1000
            self.grids += [grid(c.kwargs) for c in self.configs] if callable(grid) else [grid]
            ptr.mul_(3)

        return run


def test_candidates_launch_kernels_as_their_user_does() -> None:
    """Dynamo would break the graph at the node that stands for the launch."""
    kernel = PythonKernel()
    module = with_kernels_launched(graph_calling(kernel, [(4, 1, 1)]))
    assert not calls_user_kernels(module.graph)
    assert module(torch.ones(2))[0].tolist() == [6, 6]
    assert kernel.grids == [(4, 1, 1)]


def test_an_autotuned_kernel_keeps_the_grid_of_each_configuration() -> None:
    kernel = PythonKernel(*(triton.Config({"BLOCK": size}) for size in (128, 256)))
    with_kernels_launched(graph_calling(kernel, [(8, 1, 1), (4, 1, 1)]))(torch.ones(2))
    assert kernel.grids == [(8, 1, 1), (4, 1, 1)]


def test_a_graph_without_such_kernels_stays_as_it_is() -> None:
    module = torch.fx.symbolic_trace(lambda x: torch.sin(x))
    assert with_kernels_launched(module) is module


def test_kernels_outlive_a_reset_of_dynamo() -> None:
    number = kernel_side_table.add_kernel(double)
    with keeping_kernels():
        torch._dynamo.reset()
    assert kernel_side_table.get_kernel(number) is double
