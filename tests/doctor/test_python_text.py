"""A graph as the text of a function: as a person would have written it, and with its results."""

from __future__ import annotations

import itertools
import math
import operator
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import (
    kernel_side_table,
    triton_kernel_wrapper_mutation,
)
from torch.fx import Graph, GraphModule, Interpreter

from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.values import copy_values
from inductoscope.inside.repro.python_text import function_text
from inductoscope.inside.repro.source_text import literal
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.shrink import CONSTANTS, SHAPES
from inductoscope.inside.search.user_kernels import (
    calls_user_kernels,
    keeping_kernels,
    with_kernels_launched,
)
from support.graphs import captured, numbers

Function = Callable[..., Any]

NUMBERS = itertools.count()


def run_text(module: GraphModule) -> Function:
    """The function that the text of a graph defines.

    Its operators get a namespace of their own: defining one anew frees the operator that the
    graph, and every later test, still calls.
    """
    text, parameters = function_text(module)
    text = re.sub(r"\btext_tests\b", f"text_tests_{next(NUMBERS)}", text)
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, "<fn>", "exec"), space)
    function: Function = space["fn"]
    assert function.__code__.co_varnames[: len(parameters)] == tuple(parameters)
    return function


def body(module: GraphModule) -> list[str]:
    return [line.strip() for line in function_text(module)[0].splitlines()[1:]]


def assert_text_computes_the_same(module: GraphModule, *inputs: Any) -> None:
    """Outputs, and what is left in the inputs."""
    mine, theirs = copy_values(inputs), copy_values(inputs)
    got = run_text(module)(*mine)
    # Node by node: the code that FX itself generates for a graph is such a text too.
    expected = Interpreter(module).run(*theirs)
    if isinstance(expected, tuple) and len(expected) == 1:
        (expected,) = expected
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


# --- a graph as a function ------------------------------------------------------------------------


def operators(x: torch.Tensor) -> torch.Tensor:
    y = (2 - x) * (x + 1) / 3 // 0.5
    y = -y % 4 @ x
    return y**2


def comparisons(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    small, large = x < 0, x >= 1
    return ~small & large | (x == 0) ^ (x != 2), (x > 0) & (x <= 3)


def methods(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=-1, keepdim=True).expand(-1, 5).to(torch.float64).mul(2).type_as(x)


def slices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x[0], x[1:], x[..., ::2], x[:, None, -1], x[[0, 2]], x[x > 0], x[1:2, 0:1], x[(0,)]


def writes(x: torch.Tensor) -> torch.Tensor:
    x[0] = 1.0
    x[1:, ::2] = x[:1, ::2] * 2
    x[x > 3] = 0
    x += 1
    y = x * 2
    y.add_(x)
    y -= 1
    return y


def keywords(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (1, 2), mode="constant", value=-1.5)
    scaled = torch.nn.functional.layer_norm(padded, [7], eps=1e-3)
    return torch.add(scaled, padded, alpha=2)


def constants(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    filled = x.masked_fill(x > 0, -torch.inf).masked_fill(x < -1, torch.nan)
    made = torch.full((2,), torch.inf, dtype=torch.bfloat16, device=torch.device("cpu"))
    return filled, made, torch.tensor([1, 2], dtype=torch.int8), torch.arange(3, dtype=torch.half)


def several_results(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    largest, places = x.max(dim=1)
    first, *_, last = torch.split(x, [1, 2, 1], dim=1)
    return largest + first[:, 0], places, last


def names_of_python(lambda_: torch.Tensor, fn: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    torch = lambda_ + fn
    return torch * inputs


@pytest.mark.parametrize(
    "function",
    [operators, comparisons, methods, slices, writes, keywords, constants, several_results],
    ids=lambda function: function.__name__,
)
def test_the_text_computes_what_the_graph_computes(function: Function) -> None:
    x = numbers(4, 4)
    assert_text_computes_the_same(captured(function, x), x)


def test_names_that_mean_something_else_are_changed() -> None:
    inputs = [numbers(3), numbers(3) + 1, numbers(3) + 2]
    module = captured(names_of_python, *inputs)
    assert_text_computes_the_same(module, *inputs)
    _, parameters = function_text(module)
    assert not {"lambda", "fn", "inputs"} & set(parameters)


def test_the_text_reads_as_a_person_would_have_written_it() -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.relu(x @ weight)
        h[:, 0] = float("inf")
        return h.sum(dim=0)

    text, parameters = function_text(captured(function, numbers(2, 3), numbers(3, 4)))
    assert parameters == ["x", "weight"]
    assert text.splitlines() == [
        "def fn(x, weight):",
        "    matmul = x @ weight",
        "    h = torch.nn.functional.relu(matmul)",
        "    h[:, 0] = float('inf')",
        "    sum_1 = h.sum(dim=0)",
        "    return sum_1",
    ]


def test_weights_of_a_module_have_short_names() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    _, parameters = function_text(captured(Model(), numbers(2, 3)))
    assert sorted(parameters) == ["layer_bias", "layer_weight", "x"]


def residual(x: torch.Tensor) -> torch.Tensor:
    before = x
    x = x.relu()
    return before - x


def test_a_variable_that_is_bound_again_is_two_variables() -> None:
    x = numbers(4)
    assert_text_computes_the_same(captured(residual, x), x)


def test_a_negative_number_can_be_raised_to_a_power() -> None:
    x = torch.arange(4)
    assert_text_computes_the_same(captured(lambda x: (-2) ** x, x), x)


def test_a_complex_infinity_is_python() -> None:
    value = complex(math.inf, 0)
    assert eval(literal(value), {"torch": torch}) == value


@pytest.mark.parametrize(
    "value",
    [
        True, None, 3, -2.5, 1e-30, math.inf, -math.inf, 2 + 3j, "it's \"text\"", torch.bfloat16,
        torch.strided, torch.device("cpu"), torch.device("cuda", 1), torch.channels_last, ...,
        torch.nn.attention.SDPBackend.MATH,
    ],
    ids=repr,
)  # fmt: skip
def test_a_constant_is_python_that_gives_it(value: Any) -> None:
    assert eval(literal(value), {"torch": torch}) == value


def test_not_a_number_is_python_too() -> None:
    assert math.isnan(eval(literal(math.nan)))


def graph_of(target: Any, *arguments: Any) -> GraphModule:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(target, (x, *arguments)),))
    return GraphModule({}, graph)


def test_an_operation_of_aten_is_called_by_its_full_name() -> None:
    module = graph_of(torch.ops.aten.add.Tensor, 2)
    assert body(module)[0].endswith("= torch.ops.aten.add.Tensor(x, 2)")
    assert_text_computes_the_same(module, numbers(3))


def test_in_place_operators_write_to_what_they_are_given() -> None:
    module = graph_of(operator.imul, 3)
    assert body(module) == ["imul = x", "imul *= 3", "return imul"]
    assert_text_computes_the_same(module, numbers(3))


def a_function_of_the_users(x: torch.Tensor) -> torch.Tensor:
    return x


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(ToolFailure, match="which is not part of torch"):
        function_text(graph_of(a_function_of_the_users))
    with pytest.raises(ToolFailure, match=r"<object .*>, which cannot be written as Python code"):
        literal(object())


# --- graphs inside the graph ----------------------------------------------------------------------


def two_branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,)) + 1


def test_the_branches_of_a_cond_are_functions_that_come_before() -> None:
    module = captured(two_branches, torch.ones(3))
    text, _ = function_text(module)
    names = [line.partition("(")[0] for line in text.splitlines() if line.startswith("def ")]
    assert names == ["def body_of_cond_true_0", "def body_of_cond_false_0", "def fn"]
    assert "torch.cond(gt, body_of_cond_true_0, body_of_cond_false_0, (x,))" in text
    for x in (torch.ones(3), -torch.ones(3)):
        assert_text_computes_the_same(module, x)


# --- operators of the program's own ---------------------------------------------------------------


@torch.library.custom_op("text_tests::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@scale.register_fake
def _(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_operator_of_the_programs_own_is_written_with_its_definition() -> None:
    module = graph_of(torch.ops.text_tests.scale.default, 2.0)
    text, _ = function_text(module)
    assert text.splitlines() == [
        '@torch.library.custom_op("text_tests::scale", mutates_args=())',
        "def scale(x: torch.Tensor, by: float) -> torch.Tensor:",
        "    return x * by",
        "",
        "",
        "@scale.register_fake",
        "def _(x: torch.Tensor, by: float) -> torch.Tensor:",
        "    return torch.empty_like(x)",
        "",
        "",
        "def fn(x):",
        "    scale_default = torch.ops.text_tests.scale.default(x, 2.0)",
        "    return scale_default",
    ]
    assert_text_computes_the_same(module, numbers(3))


@torch.library.custom_op("text_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def doubled_everywhere(x: torch.Tensor) -> torch.Tensor:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.max() > 2, lambda x: twice(x), lambda x: x.sin(), (x,))

    return twice(torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,)))


def test_an_operator_is_defined_once_however_deep_it_is_used() -> None:
    module = captured(doubled_everywhere, torch.ones(3))
    text, _ = function_text(module)
    assert text.count("@torch.library.custom_op") == 1
    names = [line for line in text.splitlines() if line.startswith("def body_of")]
    assert len(names) == len(set(names)) == 4
    script = f"import torch\n{text}\nprint(fn(torch.full((2,), 3.0)).tolist())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[12.0, 12.0]\n"


def test_an_operator_whose_definition_cannot_be_read_is_refused() -> None:
    schema = "(Tensor x) -> Tensor"
    torch.library.define("text_tests::declared", schema)
    made = torch.library.custom_op(
        "text_tests::made", a_function_of_the_users, mutates_args=(), schema=schema
    )
    for operation in (torch.ops.text_tests.declared, torch.ops.text_tests.made):
        with pytest.raises(ToolFailure, match="a custom operator"):
            function_text(graph_of(operation.default))
    del made  # torch itself does not keep it.


# --- A reproducer whose graph calls Triton kernels that the user wrote defines and calls them -----


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
    """The graph that Dynamo captures for `y = x.clone(); kernel[grid](y, n=1000); return y * 2`."""
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
