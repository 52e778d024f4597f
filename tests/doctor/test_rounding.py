"""Bug or rounding: what the float64 rule says about functions that differ in one known way.

A plain Python function stands for the compiled one, so nothing is compiled here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from inductoscope.doctor.compare.bug_or_rounding import FACTOR, EagerComparison, judge
from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.values import copy_values, run, size_in_bytes

Function = Callable[..., Any]


def judged(
    eager: Function, compiled: Function, *inputs: Any, backward: bool = False
) -> EagerComparison:
    """What comes of comparing two functions, the second in the place of a compiled one."""
    return judge(Case(eager, inputs, backward), run(compiled, inputs, backward=backward))


def wrong_kinds(comparison: EagerComparison) -> list[str]:
    return [difference.kind for difference in comparison.wrong]


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# --- rounding -------------------------------------------------------------------------------------


def test_a_sum_in_another_order_is_rounding() -> None:
    def one_after_the_other(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(4)
        for row in x:
            total = total + row
        return total

    x = numbers(800, 4) * 100
    x[-1] -= x.sum(0)  # What is left when the terms cancel is little, and its error large.
    comparison = judged(lambda x: x.sum(0), one_after_the_other, x)
    assert comparison.is_right
    assert [difference.where for difference in comparison.explained] == ["output 0"]
    assert comparison.reason == "the differences are within rounding"
    assert "away from float64" in comparison.explained[0].text


def test_integers_that_rounding_decides_are_rounding() -> None:
    """As in a quantised model: each of them changes in a third of the perturbed runs only."""
    x = torch.linspace(1, 50, 400)

    def steps(x: torch.Tensor) -> torch.Tensor:
        return (x.log().exp() >= x).to(torch.int8)

    comparison = judged(steps, lambda x: torch.ones_like(x, dtype=torch.int8), x)
    assert 0 < int(steps(x).sum()) < 400
    assert comparison.is_right
    assert "rounding upstream changes it in eager too" in comparison.explained[0].text


def test_integers_that_no_rounding_changes_are_wrong() -> None:
    x = torch.linspace(1, 50, 400)
    comparison = judged(
        lambda x: (x.log().exp() * 4).to(torch.int32),
        lambda x: (x.log().exp() * 4).to(torch.int32) + (x > 49),
        x,
    )
    assert wrong_kinds(comparison) == ["value"]
    assert "elements are wrong" in comparison.wrong[0].text


def test_half_precision_kept_in_float32_between_operations_is_rounding() -> None:
    def rounded_each_time(x: torch.Tensor) -> torch.Tensor:
        return ((x * 1.1 + 0.3) * x - 0.7) * 3.0

    def rounded_once(x: torch.Tensor) -> torch.Tensor:
        return rounded_each_time(x.float()).to(x.dtype)

    x = numbers(512, dtype=torch.bfloat16)
    assert not torch.equal(rounded_each_time(x), rounded_once(x))
    assert judged(rounded_each_time, rounded_once, x).is_right


def test_what_is_close_to_eager_is_right_without_further_question() -> None:
    calls = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.dtype)
        return x * 3

    comparison = judged(function, lambda x: x * 3 * (1 + 1e-7), numbers(16))
    assert comparison == EagerComparison(values=2)
    assert calls == [torch.float32]


# --- no rounding ----------------------------------------------------------------------------------


def test_a_floor_division_that_is_off_by_one_is_wrong() -> None:
    x, w = torch.tensor([1.0, 2.0]), torch.tensor([0.1, 0.5])
    comparison = judged(lambda x, w: x // w, lambda x, w: (x / w).floor(), x, w)
    assert wrong_kinds(comparison) == ["value"]
    (difference,) = comparison.wrong
    assert difference.text.startswith("output 0 is 10 at index [0], in eager 9, in float64 9; 1 of")
    assert (difference.largest, difference.allowed) == (1.0, pytest.approx(0.0, abs=1e-4))


def test_a_factor_of_1_0001_is_wrong() -> None:
    comparison = judged(lambda x: x.sin() + 2, lambda x: (x.sin() + 2) * 1.0001, numbers(64))
    assert comparison.kind == "value"
    assert comparison.wrong[0].largest > comparison.wrong[0].allowed
    assert "64 of 64 elements are wrong" in comparison.wrong[0].text


def test_one_wrong_element_among_many_is_found_and_named() -> None:
    def compiled(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        y[3, 5] += 0.01
        return y

    (difference,) = judged(lambda x: x.exp(), compiled, numbers(8, 8)).wrong
    assert "at index [3, 5]" in difference.text
    assert "1 of 64 elements is wrong" in difference.text


def test_whole_numbers_have_to_be_the_same() -> None:
    x = torch.arange(6)
    assert judged(lambda x: x * 2, lambda x: x + x, x).is_right
    assert wrong_kinds(judged(lambda x: x * 2, lambda x: x * 2 + (x == 5), x)) == ["value"]
    assert wrong_kinds(judged(lambda x: x > 2, lambda x: x >= 2, x)) == ["value"]


def test_a_whole_number_that_rounding_may_move_is_explained() -> None:
    """Just below a whole number, so that float32 may well come out above it."""
    x = torch.tensor([0.7, 0.1]) * 3

    def next_whole(x: torch.Tensor) -> torch.Tensor:
        return (x * (1 / 3) * 10).ceil().long()

    assert judged(next_whole, lambda x: (x / 3 * 10).ceil().long(), x).is_right


def test_a_number_that_is_no_tensor_has_to_be_the_same() -> None:
    comparison = judged(lambda x: (x, 3), lambda x: (x, 4), numbers(2))
    assert [d.text for d in comparison.wrong if d.kind == "value"] == ["output 1 is 4, in eager 3"]


def test_real_and_imaginary_part_that_change_places_are_wrong() -> None:
    x = torch.tensor([1 + 2j, 3 + 4j])
    assert not judged(lambda x: x * 1, lambda x: torch.complex(x.imag, x.real), x).is_right


def test_large_whole_numbers_are_compared_in_full() -> None:
    assert not judged(lambda x: x + 1, lambda x: x + 2, torch.tensor([2**60])).is_right


# --- what is not finite ---------------------------------------------------------------------------


def test_nan_where_eager_is_finite_is_called_nan() -> None:
    x = torch.tensor([1.0, 0.0])
    comparison = judged(lambda x: (x + 1e-12).log(), lambda x: (x - 1e-12).log(), x)
    assert comparison.kind == "nan"
    assert comparison.wrong[0].text.startswith("output 0 is nan at index [1] where eager and")


def test_infinity_where_eager_is_finite_is_called_nan() -> None:
    x = torch.full((3,), 100.0)
    comparison = judged(lambda x: x.softmax(0), lambda x: x.exp() / x.exp().sum(), x)
    assert comparison.kind == "nan"


def test_a_mask_of_infinities_that_both_have_is_right() -> None:
    mask = torch.tensor([True, False, False, True])

    def masked(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(mask, -torch.inf)

    assert judged(
        masked, lambda x: torch.where(mask, -torch.inf, x), numbers(4)
    ) == EagerComparison(values=2)
    # The infinities neither explain nor hide what is wrong with the other elements.
    comparison = judged(masked, lambda x: masked(x) * 1.01, numbers(4))
    assert "2 of 4 elements are wrong" in comparison.wrong[0].text


def test_a_finite_value_where_eager_overflows_and_float64_does_not_is_right() -> None:
    x = torch.full((4,), 300.0, dtype=torch.float16)
    assert (x * x).isinf().all()
    comparison = judged(lambda x: x * x / 300, lambda x: (x.float() * x / 300).to(x.dtype), x)
    assert comparison.is_right


@pytest.mark.parametrize(
    "compiled",
    [
        pytest.param(lambda x: x.clone(), id="finite"),
        pytest.param(lambda x: x.masked_fill(x > 0, torch.inf), id="the other infinity"),
    ],
)
def test_a_mask_of_infinities_that_gets_lost_is_wrong(compiled: Function) -> None:
    x = torch.tensor([1.0, -1.0])
    assert not judged(lambda x: x.masked_fill(x > 0, -torch.inf), compiled, x).is_right


def test_nan_that_gets_lost_is_wrong() -> None:
    x = torch.tensor([1.0, torch.nan])
    assert not judged(lambda x: x.clamp(min=0), lambda x: x.nan_to_num(0).clamp(min=0), x).is_right


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


# --- results that differ by themselves ------------------------------------------------------------


def test_a_function_that_never_gives_the_same_is_held_against_nobody() -> None:
    counter = itertools.count()
    comparison = judged(lambda x: x + next(counter), lambda x: x + 100, numbers(3))
    assert comparison.is_right
    assert comparison.reason == "eager itself gives another result every time"
    assert len(comparison.explained) == 1


def test_sums_in_any_order_are_compared_all_the_same() -> None:
    """As on a GPU, where many threads add to one element."""
    counter = itertools.count()

    def added(x: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(next(counter)))
        total = torch.zeros_like(x[0])
        for term in x[order]:
            total = total + term
        return total

    large = numbers(60, 8) * 1e4
    terms = torch.cat([large, -large, numbers(2, 8)])
    assert not torch.allclose(added(terms), added(terms), rtol=1.3e-6, atol=1e-5)
    assert judged(added, added, terms).is_right
    assert wrong_kinds(judged(added, lambda x: added(x) * 1.5, terms)) == ["value"]


def test_a_wrong_type_is_wrong_even_of_a_function_that_never_gives_the_same() -> None:
    counter = itertools.count()
    comparison = judged(lambda x: (x + next(counter), x), lambda x: (x, x.double()), numbers(3))
    assert "dtype" in wrong_kinds(comparison)


def test_memory_that_no_one_has_written_may_hold_anything() -> None:
    assert judged(lambda: torch.empty(64), lambda: torch.ones(64)).is_right
    assert judged(lambda: torch.empty(64) * 2 + 1, lambda: torch.ones(64)).is_right
    # What is written later does not depend on it.
    comparison = judged(lambda: torch.empty(64).fill_(2.0), lambda: torch.ones(64))
    assert wrong_kinds(comparison) == ["value"]


def test_random_numbers_are_the_same_for_both() -> None:
    before = torch.get_rng_state()

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)

    assert judged(noisy, lambda x: torch.rand(3) + x, numbers(3)) == EagerComparison(values=2)
    assert torch.equal(torch.get_rng_state(), before), "the program's generator is left alone"


def test_random_numbers_explain_nothing() -> None:
    torch.manual_seed(0)

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    assert wrong_kinds(judged(noisy, lambda x: noisy(x) + 0.5, numbers(64))) == ["value"]


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


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "is_right"), [(FACTOR * 0.9, True), (100.0, False)])
def test_the_rule_is_a_multiple_of_how_far_eager_is_from_float64(
    factor: float, is_right: bool
) -> None:
    def eager(x: torch.Tensor) -> torch.Tensor:
        return (x + 1e4) - 1e4

    def compiled(x: torch.Tensor) -> torch.Tensor:
        return x + ((eager(x) - x).abs().max() * factor)

    assert judged(eager, compiled, numbers(100)).is_right is is_right


def test_a_function_without_float64_is_compared_with_eager_itself() -> None:
    def only_float32(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise TypeError(x.dtype)
        return x * 2

    case = Case(only_float32, [numbers(4)])
    assert case.float64 is None
    assert wrong_kinds(judged(only_float32, lambda x: x * 2.001, numbers(4))) == ["value"]


# --- copies ---------------------------------------------------------------------------------------


def test_tensors_that_share_memory_share_it_in_the_copies_too() -> None:
    whole = torch.zeros(4, 4)
    row, column, other = copy_values([whole[1], whole[:, 1], torch.zeros(2)])
    row.fill_(1)
    assert column.tolist() == [0, 1, 0, 0]
    assert (row.stride(), column.stride(), column.storage_offset()) == ((1,), (4,), 1)
    assert other.tolist() == [0, 0]
    assert not whole.any()


def test_the_same_tensor_twice_is_the_same_memory_twice() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 10

    x = torch.zeros(3)
    comparison = judged(function, lambda x, y: [x.add_(1), y.clone() * 10][1], x, x)
    assert comparison.is_right
    comparison = judged(function, lambda x, y: [y * 10, x.add_(1)][0], x, x)
    assert [difference.where for difference in comparison.wrong] == ["output 0"]


def test_a_copy_in_float64_changes_floating_point_tensors_only() -> None:
    whole = torch.arange(6, dtype=torch.float32)
    values = [whole[::2], torch.arange(3), torch.ones(2, dtype=torch.complex64), True, "text"]
    copies = copy_values(values, dtype=torch.float64)
    dtypes = [value.dtype for value in copies[:3]]
    assert dtypes == [torch.float64, torch.int64, torch.complex128]
    assert copies[0].tolist() == [0, 2, 4]
    assert copies[3:] == [True, "text"]


def test_a_copy_asks_for_gradients_where_the_original_does() -> None:
    x, y = copy_values([numbers(2).requires_grad_(), numbers(2)])
    assert (x.requires_grad, x.is_leaf, y.requires_grad) == (True, True, False)


def test_a_copy_of_a_sparse_tensor_is_a_sparse_tensor() -> None:
    sparse = torch.eye(3).to_sparse()
    (copy,) = copy_values([sparse])
    assert copy.layout is torch.sparse_coo
    assert torch.equal(copy.to_dense(), torch.eye(3))


def test_shared_memory_is_counted_once() -> None:
    whole = torch.zeros(100)
    assert size_in_bytes([whole, whole[:10], torch.zeros(5), "text"]) == 420


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
