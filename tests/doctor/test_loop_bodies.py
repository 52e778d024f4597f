"""Loop bodies evaluated with torch give the numbers of the FX nodes that they came from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering
from torch._inductor.inductor_prims import prepare_softmax_online
from torch._inductor.scheduler import Scheduler
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from inductoscope.inside.compare.loop_bodies import CannotEvaluate, evaluate

Function = Callable[..., Any]


def in_layout(value: torch.Tensor, layout: Any, sizes: dict[sympy.Symbol, int]) -> torch.Tensor:
    """A copy in the strides of an IR layout."""
    size, stride = (
        [int(sympy.sympify(each).subs(sizes)) for each in group]
        for group in (layout.size, layout.stride)
    )
    return torch.empty_strided(size, stride, dtype=value.dtype).copy_(value)


class Scheduled(BaseException):
    """Ends a compile before any code is generated: no C++ compiler is needed, and none waited for.

    Not an Exception, so that torch does not wrap it.
    """


@dataclass(frozen=True)
class Lowered:
    """The IR that one function was lowered to, and the numbers that eager has for its FX nodes."""

    nodes: list[Any]
    outputs: list[Any]
    inputs: dict[str, Any]
    sizes: dict[sympy.Symbol, int]
    eager: dict[str, Any]

    def evaluate(self, **options: Any) -> dict[str, torch.Tensor]:
        """The value of every buffer, one node after the other."""
        values = dict(self.inputs)
        for node in self.nodes:
            if hasattr(node, "_body"):
                values.update(evaluate(node, values, self.sizes, **options))
                continue
            for buffer in node.get_outputs():
                found, layout = self.origin(buffer), buffer.node.layout
                if buffer.get_name() not in values and found is not None and sized(layout):
                    values[buffer.get_name()] = in_layout(found, layout, self.sizes)
        return values

    def origin(self, buffer: Any) -> torch.Tensor | None:
        """Eager's value for the FX node that a buffer says it holds."""
        node = buffer.node.get_origin_node()
        value = None if node is None else self.eager[node.name]
        return value if isinstance(value, torch.Tensor) else None

    def result(self, **options: Any) -> torch.Tensor:
        """The only output of the function, by its loop bodies."""
        (output,) = self.outputs
        return self.evaluate(**options)[output.get_name()]


def sized(layout: Any) -> bool:
    """Whether a buffer is a tensor: the kernel of several outputs is none, its outputs are."""
    return hasattr(layout, "stride")


class Recording(torch.fx.Interpreter):
    """Eager execution that keeps a copy of every value."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        value = super().run_node(node)
        keep = isinstance(value, torch.Tensor)
        self.values[node.name] = value.clone() if keep else value
        return value


def lower(function: Function, inputs: tuple[torch.Tensor, ...], *, mode: str = "real") -> Lowered:
    """Compiles a function as far as its schedule."""
    found: list[Lowered] = []

    def stop(scheduler: Scheduler) -> None:
        found.append(collect(scheduler, inputs))
        raise Scheduled

    traced = make_fx(function, tracing_mode=mode)(*copies(inputs))
    examples = [node.meta["val"] for node in traced.graph.find_nodes(op="placeholder")]
    caches = config.patch(force_disable_caches=True)
    with mock.patch.object(Scheduler, "codegen", stop), caches, pytest.raises(Scheduled):
        compile_fx(traced, examples if mode == "symbolic" else list(copies(inputs)))
    return found[0]


def collect(scheduler: Scheduler, inputs: tuple[torch.Tensor, ...]) -> Lowered:
    interpreter = Recording(V.graph.module)
    interpreter.run(*copies(inputs))
    return Lowered(
        nodes=[node for group in scheduler.nodes for node in group.get_nodes()],
        outputs=V.graph.graph_outputs,
        inputs={**dict(zip(V.graph.graph_input_names, inputs, strict=True)), **V.graph.constants},
        sizes=sizes_of(V.graph.module, inputs),
        eager=interpreter.values,
    )


def sizes_of(
    module: torch.fx.GraphModule, inputs: tuple[torch.Tensor, ...]
) -> dict[sympy.Symbol, int]:
    """The size that each symbol of the graph's inputs has in these inputs."""
    pairs = [
        (symbolic, size)
        for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True)
        for symbolic, size in zip(node.meta["val"].shape, value.shape, strict=True)
    ]
    return {symbol.node.expr: size for symbol, size in pairs if isinstance(symbol, torch.SymInt)}


def copies(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Equal tensors of the same strides."""
    return tuple(
        torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        ).copy_(value)
        for value in inputs
    )


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


def integers(low: int, high: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(high)
    return torch.randint(low, high, shape, generator=generator)


# --- healthy lowerings ----------------------------------------------------------------------------

HEALTHY: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "a chain of pointwise operations": (
        lambda x, y: torch.tanh(x) * torch.sigmoid(y).exp2() - x.abs().rsqrt().clamp(max=2),
        (numbers(4, 8), numbers(4, 8)),
    ),
    "softmax": (lambda x: x.softmax(-1), (numbers(8, 32),)),
    "layer norm": (lambda x: F.layer_norm(x, (48,)), (numbers(6, 48),)),
    "variance of a long row": (lambda x: x.var(-1), (numbers(3, 4099),)),
    "argmin of integers": (lambda x: x.argmin(0), (integers(0, 4, 12, 32),)),
    "argmax over a permuted tensor": (
        lambda x: x.permute(2, 0, 1).argmax(),
        (integers(0, 9, 4, 5, 6),),
    ),
    "indices of the maximum": (lambda x: x.max(1).indices, (integers(0, 3, 9, 40) > 1,)),
    "integer division": (
        lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y)),
        (integers(-50, 50, 64), integers(1, 7, 64) * (integers(0, 2, 64) * 2 - 1)),
    ),
    "gather by negative indices": (lambda x, i: x[i] + 1, (numbers(8, 16), integers(-8, 8, 5))),
    "concatenation": (lambda x, y: torch.cat([x, y * 2, x], 1), (numbers(4, 3), numbers(4, 5))),
    "concatenation in one buffer": (
        lambda x: torch.cat([x, x.sum(0, keepdim=True)]).relu(),
        (numbers(8, 16),),
    ),
    "padding": (lambda x: F.pad(x, (1, 2, 0, 3), value=-1.5).exp(), (numbers(4, 6),)),
    "selection": (lambda x, y: torch.where(x > y, x, y * 2), (numbers(5, 7), numbers(7))),
    "sum over several dimensions": (
        lambda x: (x.sum((0, 2)), x.amax((1, 3)), x.prod(1), (x > 1).any(0)),
        (numbers(10, 9, 5, 6),),
    ),
    "casts of bfloat16": (
        lambda x: (x * 0.1 + 1).exp().to(torch.float32).sum(-1).to(torch.bfloat16),
        (numbers(8, 16, dtype=torch.bfloat16),),
    ),
    "indexed addition": (
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        (numbers(8, 16), integers(0, 8, 20), numbers(20, 16)),
    ),
    "mean of a permuted tensor": (lambda x: x.permute(2, 0, 1).mean(1), (numbers(4, 5, 6),)),
    "mutation of an input": (lambda x, y: x.add_(y).mul(2), (numbers(4, 4), numbers(4, 4))),
    "pooling": (lambda x: F.max_pool2d(x, 3, 2, 1), (numbers(1, 2, 9, 9),)),
    "bits": (
        lambda x: (x.view(torch.int32) >> 3 ^ 21, torch.signbit(x), torch.frexp(x)[1]),
        (numbers(64),),
    ),
    "upsampling": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        (numbers(1, 2, 5, 7),),
    ),
    "a number without dimensions": (lambda x: x.sum() / 3 + 1, (numbers(5),)),
    "an operation that falls back to eager": (lambda x: x.cumsum(0) * 2, (numbers(6, 3),)),
}


@functools.cache
def lower_healthy(name: str) -> Lowered:
    return lower(*HEALTHY[name])


@pytest.mark.parametrize("name", HEALTHY)
def test_every_buffer_has_the_value_of_its_fx_node(name: str) -> None:
    lowered = lower_healthy(name)
    values = lowered.evaluate()
    compared = 0
    for buffer in (buffer for node in lowered.nodes for buffer in node.get_outputs()):
        expected = lowered.origin(buffer)
        if expected is not None and buffer.get_name() in values:
            torch.testing.assert_close(values[buffer.get_name()], expected)
            compared += 1
    assert compared


def test_the_examples_have_the_operations_that_are_hard_to_get_right() -> None:
    nodes = [node for name in HEALTHY for node in lower_healthy(name).nodes]
    assert set().union(*map(operations, nodes)) >= {
        "argmax", "argmin", "any", "atomic_add", "floordiv", "frexp", "index_expr",
        "indirect_indexing", "masked", "max", "mod", "prod", "remainder", "sum",
        "to_dtype_bitcast", "truncdiv", "welford_reduce",
    }  # fmt: skip


def operations(node: Any) -> set[str]:
    """The operations of a node's loop body, with kinds of reductions and modes of stores."""
    if not hasattr(node, "_body"):
        return set()
    calls = node._body.root_block.graph.nodes
    reductions = {call.args[3] for call in calls if call.target == "reduction"}
    modes = {call.args[4] for call in calls if call.target == "store"}
    return {*node._body.op_counts, *reductions, *modes}


# Lowered to eager calls on a CPU, and to loops where Triton is the backend.
FOR_TRITON: dict[str, tuple[Function, tuple[torch.Tensor, ...], str]] = {
    "a sum of all before": (lambda x: x.cumsum(1), (numbers(3, 40),), "scan"),
    "the maximum of all before": (lambda x: x.cummax(1), (integers(0, 9, 6, 9),), "scan"),
    "maximum and sum in one": (
        lambda x: prepare_softmax_online(x, -1),
        (numbers(4, 50),),
        "online_softmax_reduce",
    ),
    "variance in parts": (lambda x: x.var(-1), (numbers(2, 4096),), "welford_combine"),
}


def lower_for_triton(function: Function, inputs: tuple[torch.Tensor, ...]) -> Lowered:
    """Lowers as for a backend that can do everything, and splits long reductions in four."""

    def can(graph: GraphLowering, device: Any, feature: BackendFeature) -> bool:
        return feature is not BackendFeature.REDUCE_TO_SINGLE_ELEMENT

    def parts(device: Any, length: int, *others: Any, **options: Any) -> int:
        return 4 if length > 16 else 1

    features = mock.patch.object(GraphLowering, "has_feature", can)
    splits = mock.patch.object(InductorChoices, "reduction_split_factor", staticmethod(parts))
    with features, splits:
        return lower(function, inputs)


@pytest.mark.parametrize("name", FOR_TRITON)
def test_loops_that_only_triton_gets_have_the_values_of_eager(name: str) -> None:
    function, inputs, operation = FOR_TRITON[name]
    lowered = lower_for_triton(function, inputs)
    assert operation in set().union(*map(operations, lowered.nodes))
    values = lowered.evaluate()
    for output, expected in zip(lowered.outputs, tree_leaves(function(*inputs)), strict=True):
        torch.testing.assert_close(values[output.get_name()], expected)


def test_a_buffer_is_returned_in_its_own_layout() -> None:
    lowered = lower(lambda x: x.permute(0, 2, 3, 1) + 1, (numbers(2, 3, 4, 5),))
    (node,) = lowered.nodes
    found = lowered.result()
    assert list(found.stride()) == [int(step) for step in node.node.get_stride()]
    assert not found.is_contiguous()


def test_an_input_that_is_a_part_of_a_tensor_is_read_from_its_first_element() -> None:
    part = numbers(6, 10)[2:5, 1:8:2]
    lowered = lower(lambda x: x * 2, (part,))
    torch.testing.assert_close(lowered.result(), part * 2)


def test_dynamic_sizes_are_given_by_the_caller() -> None:
    inputs = (numbers(6, 5),)
    lowered = lower(lambda x: (x / x.shape[0]).sum(0), inputs, mode="symbolic")
    assert lowered.sizes
    torch.testing.assert_close(lowered.result(), (inputs[0] / 6).sum(0))
    with pytest.raises(CannotEvaluate, match="no value for the size"):
        evaluate(lowered.nodes[0], lowered.inputs)


def test_narrow_floats_are_rounded_after_each_operation_or_only_when_stored() -> None:
    x = numbers(64, dtype=torch.bfloat16)
    lowered = lower(lambda x: (x * 0.1 + 1).exp(), (x,))
    once = (x.float() * 0.1 + 1).exp().to(torch.bfloat16)
    each = (x * 0.1 + 1).exp()
    assert not torch.equal(once, each)
    torch.testing.assert_close(lowered.result(), each, rtol=0, atol=0)
    torch.testing.assert_close(lowered.result(widened=True), once, rtol=0, atol=0)


# --- what it is for -------------------------------------------------------------------------------


def test_floor_division_of_floats_is_already_wrong_in_the_loop_body() -> None:
    x, w = torch.tensor([1.0, 0.5, 6.0]), torch.tensor([0.1, 0.1, 0.2])
    lowered = lower(lambda x, w: torch.div(x, w, rounding_mode="floor"), (x, w))
    assert torch.div(x, w, rounding_mode="floor").tolist() == [9.0, 4.0, 29.0]
    assert "floor" in operations(lowered.nodes[0])
    assert lowered.result().tolist() == [10.0, 5.0, 30.0]


def test_the_first_minimum_of_booleans_is_right_in_the_loop_body() -> None:
    # The C++ that torch 2.13 makes of this body gives other indices on some machines.
    present = integers(0, 3, 12, 32) > 0
    lowered = lower(lambda x: x.min(dim=0).indices, (present,))
    torch.testing.assert_close(lowered.result(), present.min(dim=0).indices)


# --- what cannot be evaluated ---------------------------------------------------------------------


def refuse(lowered: Lowered, match: str) -> None:
    with pytest.raises(CannotEvaluate, match=match):
        lowered.evaluate()


def test_random_numbers_are_refused() -> None:
    refuse(lower(lambda x: x + torch.rand_like(x), (numbers(8),)), "load_seed|rand")


def test_an_unknown_operation_is_refused_by_name() -> None:
    refuse(lower(lambda x: torch.polygamma(2, x), (numbers(8).abs(),)), "polygamma")


def test_a_sort_is_refused() -> None:
    refuse(lower_for_triton(lambda x: x.sort(1), (numbers(4, 50),)), "sort")


def test_a_node_without_a_loop_body_is_refused() -> None:
    lowered = lower(lambda x: x.cumsum(0), (numbers(6, 3),))
    with pytest.raises(CannotEvaluate, match="no loop body"):
        evaluate(lowered.nodes[0], lowered.inputs)


def test_an_index_out_of_bounds_is_refused() -> None:
    lowered = lower(lambda x, i: x[i], (numbers(8, 2), integers(0, 8, 3)))
    inputs = {**lowered.inputs, "arg1_1": torch.tensor([1, 8, 2])}
    with pytest.raises(CannotEvaluate, match="out of bounds"):
        evaluate(lowered.nodes[0], inputs)


def test_an_error_of_torch_is_no_answer() -> None:
    lowered = lower(lambda x, y: x // y, (integers(0, 9, 4), integers(1, 9, 4)))
    inputs = {**lowered.inputs, "arg1_1": torch.zeros(4, dtype=torch.int64)}
    with pytest.raises(CannotEvaluate, match="ZeroDivisionError"):
        evaluate(lowered.nodes[0], inputs)


def test_several_values_for_one_element_are_refused() -> None:
    index = torch.tensor([1, 1, 2])
    lowered = lower(lambda x, i, y: x.index_put((i,), y), (numbers(4), index, numbers(3)))
    refuse(lowered, "different values to one element")


def test_a_missing_value_is_named() -> None:
    lowered = lower(lambda x: x + 1, (numbers(4),))
    with pytest.raises(CannotEvaluate, match="no value for arg0_1"):
        evaluate(lowered.nodes[0], {})


def test_a_loop_of_too_many_points_is_refused() -> None:
    lowered = lower(lambda x, y: x[:, None] * y, (numbers(4097), numbers(4097)))
    refuse(lowered, "a loop over 16785409 points")
