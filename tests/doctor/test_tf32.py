"""TensorFloat-32 is rounding: on a GPU torch may use it for one memory layout and not for another.

There is no such GPU here. So the numbers come from products whose factors are cut to the ten bits
that TensorFloat-32 keeps, and the rule is told that they may.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from inductoscope.inside.compare import reference
from inductoscope.inside.compare.bug_or_rounding import EagerComparison, judge
from inductoscope.inside.compare.reference import Case


def network(x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    return F.conv2d(F.silu(F.conv2d(x, one, padding=1)), two, padding=1)


def in_tf32(value: torch.Tensor) -> torch.Tensor:
    """The nearest number with ten bits after the first."""
    return ((value.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def network_in_tf32(x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    hidden = F.silu(F.conv2d(in_tf32(x), in_tf32(one), padding=1))
    return F.conv2d(in_tf32(hidden), in_tf32(two), padding=1)


def judged(result: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> EagerComparison:
    case = Case(network, inputs)
    return judge(case, replace(case.eager, outputs=(result,)))


@pytest.fixture
def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(2, 16, 12, 12), torch.randn(32, 16, 3, 3) / 12, torch.randn(8, 32, 3, 3) / 17


def test_products_in_tf32_are_right_where_torch_may_use_it(
    monkeypatch: pytest.MonkeyPatch, inputs: tuple[torch.Tensor, ...]
) -> None:
    result = network_in_tf32(*inputs)
    assert not judged(result, inputs).is_right, "beyond the rounding of float32"
    monkeypatch.setattr(reference, "may_use_tf32", lambda operation, _: operation == "convolution")
    assert judged(result, inputs).is_right


def test_a_result_that_is_off_by_more_is_still_wrong(
    monkeypatch: pytest.MonkeyPatch, inputs: tuple[torch.Tensor, ...]
) -> None:
    monkeypatch.setattr(reference, "may_use_tf32", lambda operation, _: operation == "convolution")
    x, one, two = inputs
    assert not judged(network_in_tf32(x * 1.02, one, two), inputs).is_right


@pytest.mark.parametrize(
    ("shape", "weight_shape", "transposed"),
    [
        pytest.param((8, 4, 24, 24), (6, 4, 3, 3), False, id="weight unlike the input"),
        # Then the gradients of the two have the same shape, and still different sizes.
        pytest.param((4, 4, 3, 3), (4, 4, 3, 3), False, id="weight shaped like the input"),
        pytest.param((8, 4, 24, 24), (4, 6, 3, 3), True, id="transposed"),
    ],
)
@pytest.mark.parametrize("number", [0, 1], ids=["gradient of input", "gradient of weight"])
def test_gradients_of_a_convolution_may_be_off_by_what_tf32_cuts_off(
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    transposed: bool,
    number: int,
) -> None:
    """As far as TensorFloat-32 is off, and not ten times as far."""
    torch.manual_seed(0)
    x, weight = torch.randn(shape), torch.randn(weight_shape)
    how = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
    gradient = torch.randn_like(torch.ops.aten.convolution(x, weight, None, *how))

    def gradients(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        backward = torch.ops.aten.convolution_backward
        found = backward(gradient, x, weight, None, *how, [True, True, False])[number]
        assert isinstance(found, torch.Tensor)
        return found

    exact = gradients(gradient, x, weight)
    off = (gradients(*map(in_tf32, (gradient, x, weight))) - exact).abs().max()
    monkeypatch.setattr(reference, "may_use_tf32", lambda *_: True)
    moved = []
    for seed in range(3):
        with reference.perturbed_rounding(seed):
            moved.append((gradients(gradient, x, weight) - exact).abs().max())
    assert off / 2 < max(moved) < off * 10


def test_an_empty_batch_has_no_terms_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "may_use_tf32", lambda operation, _: "convol" in operation)
    x, weight = torch.randn(0, 4, 8, 8), torch.randn(4, 4, 3, 3, requires_grad=True)
    with reference.perturbed_rounding(0):
        F.conv2d(x, weight).sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_the_gradient_of_a_bias_is_a_sum_without_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "may_use_tf32", lambda *_: True)
    x, weight, gradient = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 1, 1), torch.rand(2, 4, 8, 8)
    how = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, False, True])
    backward = partial(torch.ops.aten.convolution_backward, gradient, x, weight, [4], *how)
    exact = backward()[2]
    with reference.perturbed_rounding(0):
        moved = backward()[2]
    assert torch.allclose(moved, exact, rtol=1e-5)


def test_on_a_cpu_there_is_no_tf32() -> None:
    assert not reference.may_use_tf32("convolution", torch.ones(3))
