"""Results of a compiled graph are laid out in memory as eager's, to see whether that matters."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import symbolic_trace

from inductoscope.inside.compare.eager_layout import call_as_in_eager
from inductoscope.inside.compare.values import run
from inductoscope.recording.events import NotedDifference


def noted(*places: str) -> list[NotedDifference]:
    """As in `noted("stride output 0")`."""
    pairs = (place.split(" ", 1) for place in places)
    return [NotedDifference(compile="0/0", aspect=one, where=other) for one, other in pairs]


def laid_out(eager: Any, compiled: Any, *inputs: torch.Tensor, notes: str) -> Any:
    return call_as_in_eager(symbolic_trace(eager), compiled, inputs, noted(*notes.split(", ")))


def test_a_result_gets_the_strides_of_eager() -> None:
    x = torch.arange(6.0).view(2, 3)
    result = laid_out(lambda x: x * 2, lambda x: (x.t() * 2).t(), x, notes="stride output 0")
    assert result.stride() == (3, 1)
    assert torch.equal(result, x * 2)


def test_gradients_pass_through() -> None:
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    result = laid_out(lambda x: x * 2, lambda x: (x.t() * 2).t(), x, notes="stride output 0")
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_a_copy_becomes_the_view_that_it_is_in_eager() -> None:
    x = torch.arange(6.0).view(2, 3)
    row = laid_out(lambda x: x[1], lambda x: x[1].clone(), x, notes="sharing output 0")
    row.zero_()
    assert x.tolist() == [[0.0, 1.0, 2.0], [0.0] * 3]


def test_a_view_becomes_the_copy_that_it_is_in_eager() -> None:
    x = torch.ones(3)
    result = laid_out(lambda x: x * 1, lambda x: x.view(3), x, notes="sharing output 0")
    result.zero_()
    assert x.tolist() == [1.0] * 3


def test_the_input_itself_is_returned_where_eager_does() -> None:
    x = torch.ones(3)
    result = laid_out(lambda x: x.add_(1), lambda x: x.add_(1).clone(), x, notes="sharing output 0")
    assert result is x
    assert x.tolist() == [2.0] * 3, "it was written to once"


def test_outputs_share_memory_as_in_eager() -> None:
    def eager(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.view(-1)

    x = torch.zeros(2, 2)
    one, two = laid_out(
        eager, lambda x: (x + 1, (x + 1).view(-1)), x, notes="sharing output 0, sharing output 1"
    )
    two[0] = 7
    assert one.tolist() == [[7.0, 1.0], [1.0, 1.0]]


def test_one_object_that_is_two_views_in_eager_becomes_two() -> None:
    """As where a no-op view is removed, and the program then resizes one of the two."""

    def eager(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.view(-1)

    def compiled(x: torch.Tensor) -> Any:
        return (x + 1,) * 2

    one, two = laid_out(eager, compiled, torch.zeros(3), notes="sharing output 1")
    assert one is not two
    two.resize_(6)
    assert one.shape == (3,)


def test_random_numbers_and_inputs_are_those_of_one_call() -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x).add_(x.mul_(2))

    x = torch.ones(4)
    torch.manual_seed(0)
    expected = run(noise, [x], backward=False).outputs[0]
    torch.manual_seed(0)
    result = laid_out(noise, noise, x, notes="stride output 0")
    assert torch.equal(result, expected)
    assert x.tolist() == [2.0] * 4
