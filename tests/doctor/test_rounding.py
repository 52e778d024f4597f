"""Bug or rounding: what the float64 rule says about values that differ in one known way.

A plain Python function stands for the compiled one, so nothing is compiled here.
"""

from __future__ import annotations

import pytest
import torch

from inductoscope.doctor.failure import Failure, WrongValue
from inductoscope.inside.compare.bug_or_rounding import FACTOR, EagerComparison
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.search.failure_signature import failure_of_comparison
from support.judging import Function, judged, numbers, wrong_kinds

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


def test_rounding_upstream_of_the_mean_of_one_number_is_rounding() -> None:
    """As with a loss that is reduced twice: there is no last dimension to count terms in."""
    x = numbers(800) * 100
    x[-1] -= x.sum()

    def eager(x: torch.Tensor) -> torch.Tensor:
        return x.sum().mean()

    assert len(Case(eager, [x]).perturbed()) == 3
    assert judged(eager, lambda x: x.flip(0).cumsum(0)[-1].mean(), x).is_right


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


# --- values ---------------------------------------------------------------------------------------


def test_a_wrong_result_comes_with_the_value_that_it_should_have() -> None:
    """The element that is furthest off, in eager, in float64 and compiled."""

    def spoiled(x: torch.Tensor) -> torch.Tensor:
        result = x * 2
        result[1, 2], result[0, 0] = 50.0, 2.5
        return result

    failure = failure_of_comparison(judged(lambda x: x * 2, spoiled, torch.ones(2, 3)))
    assert failure is not None
    assert failure.values == (WrongValue("output 0", (1, 2), "50", "2", "2", 2, 6),)
    assert failure.updated_with(Failure(failure.kind, "again")).values == failure.values


def test_a_value_that_is_no_number_can_be_written_as_json() -> None:
    comparison = judged(lambda x: x * 2, lambda x: x * torch.nan, torch.ones(2))
    failure = failure_of_comparison(comparison)
    assert failure is not None
    (value,) = failure.values
    assert (value.actual, value.expected) == ("nan", "2")
