"""What of two results is compared: their form, the inputs after the call, gradients, the last bit.

A plain Python function stands for the compiled one, so nothing is compiled here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from support.judging import Function, judged, numbers, wrong_kinds

# --- form -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "compiled", "text"),
    [
        ("dtype", lambda x: x.double(), "output 0 is torch.float64, in eager torch.float32"),
        ("shape", lambda x: x[:1] * 1, "output 0 has shape (1, 3), in eager (2, 3)"),
        ("structure", lambda x: (x, x * 1), "only one of eager and compiled has output 1"),
        ("structure", lambda x: None, "output 0 is a NoneType, in eager a Tensor"),
    ],
)
def test_a_difference_of_form_is_wrong(kind: str, compiled: Function, text: str) -> None:
    comparison = judged(lambda x: x.clone(), compiled, numbers(2, 3))
    assert comparison.kind == kind
    assert comparison.wrong[0].text.startswith(text)


@pytest.mark.parametrize(
    ("kind", "compiled", "text"),
    [
        ("stride", lambda x: x.t().contiguous().t(), "output 0 has strides (1, 2), in eager (3, 1"),
        ("sharing", lambda x: x, "output 0 shares memory with input 0 when compiled, with nothing"),
    ],
)
def test_how_a_result_lies_in_memory_is_noted(kind: str, compiled: Function, text: str) -> None:
    comparison = judged(lambda x: x.clone(), compiled, numbers(2, 3))
    assert comparison.is_right
    (note,) = comparison.noted
    assert note.text.startswith(text)
    counted = comparison.counting([kind])
    assert (counted.kind, counted.noted) == (kind, ()), "unless it is what is looked for"
    assert comparison.counting([kind], ["output 1"]) == comparison


def test_a_copy_where_eager_gives_a_view_is_noted() -> None:
    comparison = judged(lambda x: x.view(6), lambda x: x.reshape(6).clone(), numbers(2, 3))
    (difference,) = comparison.noted
    assert difference.text == (
        "output 0 shares memory with nothing when compiled, with input 0 in eager"
    )


def test_two_outputs_that_are_one_are_seen() -> None:
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y

    comparison = judged(lambda x: (x + 1, x + 1), twice, numbers(3))
    assert "shares memory with output 0" in comparison.noted[0].text


def test_two_outputs_that_are_one_object_in_eager_and_two_when_compiled() -> None:
    def view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y.view_as(y)

    (difference,) = judged(lambda x: (x.add(1),) * 2, view, numbers(3)).noted
    assert difference.text == "outputs 0 and 1 are two when compiled, one in eager"


def test_strides_of_dimensions_with_one_element_do_not_matter() -> None:
    x = numbers(1, 3)
    comparison = judged(lambda x: x.clone(), lambda x: x.clone().as_strided((1, 3), (77, 1)), x)
    assert comparison.is_right
    assert not comparison.noted


def test_the_most_telling_kind_comes_first() -> None:
    x = numbers(3, 3)
    comparison = judged(lambda x: (x + 1, x + 1), lambda x: (x, (x + 1).double()), x)
    assert sorted(wrong_kinds(comparison)) == ["dtype", "value"]
    assert [note.kind for note in comparison.noted] == ["sharing"]
    assert comparison.kind == "dtype"


# --- inputs that are written to -------------------------------------------------------------------


def test_an_input_that_is_not_written_to_is_missed() -> None:
    x = torch.zeros(3)
    comparison = judged(lambda x: x.add_(1).sum(), lambda x: (x + 1).sum(), x)
    assert [difference.where for difference in comparison.wrong] == ["input 0 after the call"]
    assert x.tolist() == [0, 0, 0], "the caller's own tensor is left alone"


def test_an_input_that_is_written_to_by_mistake_is_seen() -> None:
    comparison = judged(lambda x: x + 1, lambda x: x.add_(1).clone(), torch.zeros(3))
    assert [difference.where for difference in comparison.wrong] == ["input 0 after the call"]


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_are_compared() -> None:
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return gradient * x.cos() / 2

    x = numbers(8).requires_grad_()
    comparison = judged(lambda x: x.sin(), Halved.apply, x, backward=True)
    assert [difference.where for difference in comparison.wrong] == ["gradient of input 0"]
    assert judged(lambda x: x.sin(), Halved.apply, x).is_right, "not asked for"
    assert x.grad is None


def test_a_gradient_that_is_missing_is_a_difference_of_structure() -> None:
    x = numbers(8).requires_grad_()
    comparison = judged(lambda x: x * 2, lambda x: x.detach() * 2, x, backward=True)
    assert comparison.kind == "structure"
    assert "gradient of input 0" in comparison.wrong[0].text


def test_gradients_are_judged_by_rounding_too() -> None:
    x = numbers(2000, 4).requires_grad_()
    w = numbers(4, 2000, seed=1)

    def compiled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        halves = zip(w.split(1000, dim=1), x.split(1000), strict=True)
        first, second = (left @ right for left, right in halves)
        return (first + second).pow(3)

    assert judged(lambda x, w: (w @ x).pow(3), compiled, x, w, backward=True).is_right


# --- whether every value is eager's ---------------------------------------------------------------


def test_the_same_bits_are_exact() -> None:
    x = torch.tensor([1.0, -2.5, torch.nan, torch.inf])
    assert judged(lambda x: (x * 2, x > 0, 3), lambda x: (x + x, x > 0, 3), x).is_exact


@pytest.mark.parametrize(
    "layout",
    [
        torch.sparse_coo,
        torch.sparse_csr,
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_values_can_be_exact_too(layout: torch.layout) -> None:
    def sparse(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse(layout=layout)

    assert judged(sparse, sparse, torch.eye(3)).is_exact


def test_the_last_bit_of_one_value_makes_it_inexact() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    last_bit = torch.tensor([0.0, 0.0, 2.0**-22])
    judgement = judged(lambda x: x.clone(), lambda x: x + last_bit, x)
    assert judgement.is_right
    assert not judgement.is_exact


def test_what_is_wrong_is_not_exact() -> None:
    judgement = judged(lambda x: x.clone(), lambda x: x + 1, torch.ones(3))
    assert (judgement.is_right, judgement.is_exact) == (False, False)
