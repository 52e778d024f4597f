"""TensorFloat-32 is rounding: on a GPU torch may use it for one memory layout and not for another.

There is no such GPU here. So the numbers come from products whose factors are cut to the ten bits
that TensorFloat-32 keeps, and the rule is told that they may.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from inductoscope.doctor.compare import rounding
from inductoscope.doctor.compare.bug_or_rounding import EagerComparison, judge
from inductoscope.doctor.compare.case import Case


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
    monkeypatch.setattr(rounding, "may_use_tf32", lambda operation, _: operation == "convolution")
    assert judged(result, inputs).is_right


def test_a_result_that_is_off_by_more_is_still_wrong(
    monkeypatch: pytest.MonkeyPatch, inputs: tuple[torch.Tensor, ...]
) -> None:
    monkeypatch.setattr(rounding, "may_use_tf32", lambda operation, _: operation == "convolution")
    x, one, two = inputs
    assert not judged(network_in_tf32(x * 1.02, one, two), inputs).is_right


def test_on_a_cpu_there_is_no_tf32() -> None:
    assert not rounding.may_use_tf32("convolution", torch.ones(3))
