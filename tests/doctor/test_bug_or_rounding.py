"""Comparison of two results: their form, the inputs after the call, gradients, the last bit.

A plain Python function stands for the compiled one, so nothing is compiled here.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductoscope.doctor.failure import Failure, WrongValue
from inductoscope.inside.compare import reference
from inductoscope.inside.compare.bug_or_rounding import FACTOR, EagerComparison, judge
from inductoscope.inside.compare.graphs import NodeValues
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import nodes_that_draw, run
from inductoscope.inside.search.failure_signature import failure_of_comparison
from support.graphs import captured
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
    assert [difference.where.split()[0] for difference in comparison.wrong] == ["input"]


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
    assert "gradient" in comparison.wrong[0].text


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


# --- Results that differ by themselves from call to call, and random numbers ----------------------
#
# A plain Python function stands for the compiled one, so nothing is compiled here.


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


def test_memory_that_no_one_has_written_may_hold_nan_by_chance() -> None:
    """As it does if torch fills it, or where another tensor with NaN lay before."""
    torch.use_deterministic_algorithms(True)
    try:
        assert judged(lambda: torch.empty(64), lambda: torch.ones(64)).is_right
    finally:
        torch.use_deterministic_algorithms(False)


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


# --- Bug or rounding: what the float64 rule says about values that differ in one known way --------
#
# A plain Python function stands for the compiled one, so nothing is compiled here.


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
    assert "within rounding" in comparison.reason
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


# What rounding explains is looked at only where something is not close, as little as will do.


def cancelling(x: torch.Tensor) -> torch.Tensor:
    """The remainder of large numbers is mostly rounding."""
    return (x + 1e6) - 1e6


def test_values_that_are_close_need_no_sample() -> None:
    x = torch.randn(64)
    case = Case(torch.exp, [x])
    assert judge(case, run(torch.exp, [x], backward=False)).is_right
    assert case.samples == []


def test_one_sample_is_enough_where_it_explains_the_difference() -> None:
    x = torch.tensor([0.3, 0.7, -0.2, 1.1])
    case = Case(cancelling, [x])
    compiled = run(lambda x: x.clone(), [x], backward=False)
    found = judge(case, compiled)
    assert found.is_right
    assert found.explained
    assert len(case.samples) == 1


def test_a_wrong_value_is_held_against_all_samples() -> None:
    x = torch.randn(64)
    case = Case(torch.exp, [x])
    found = judge(case, run(lambda x: torch.exp(x) * 1.1, [x], backward=False))
    assert not found.is_right
    assert len(case.samples) == 3


def test_values_of_nodes_that_are_asked_for_later_draw_the_same_numbers() -> None:
    graph = captured(lambda x: torch.rand_like(x) + x, torch.zeros(8))
    values = NodeValues(graph, [torch.zeros(8)])
    torch.rand(3)  # The program goes on, and draws numbers of its own.
    drawn = next(name for name in values.eager if "rand" in name)
    assert torch.equal(values.samples(drawn, 1)[0], values.eager[drawn])


def test_of_nodes_that_draw_numbers_alike_the_first_is_named() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + torch.rand_like(x) + torch.rand_like(x[:2]).sum() + x

    graph = captured(noisy, torch.zeros(8))
    assert len(nodes_that_draw(graph, [torch.zeros(8)])) == 2
    assert nodes_that_draw(captured(torch.exp, torch.zeros(8)), [torch.zeros(8)]) == []


# TensorFloat-32 is rounding: on a GPU torch may use it for one memory layout and not for another.
#
# There is no such GPU here. So the numbers come from products whose factors are cut to the ten
# bits that TensorFloat-32 keeps, and the rule is told that they may.


def network(x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    return F.conv2d(F.silu(F.conv2d(x, one, padding=1)), two, padding=1)


def in_tf32(value: torch.Tensor) -> torch.Tensor:
    """The nearest number with ten bits after the first."""
    return ((value.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def network_in_tf32(x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    hidden = F.silu(F.conv2d(in_tf32(x), in_tf32(one), padding=1))
    return F.conv2d(in_tf32(hidden), in_tf32(two), padding=1)


def judged_network(result: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> EagerComparison:
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
    assert not judged_network(result, inputs).is_right, "beyond the rounding of float32"
    monkeypatch.setattr(reference, "may_use_tf32", lambda operation, _: operation == "convolution")
    assert judged_network(result, inputs).is_right


def test_a_result_that_is_off_by_more_is_still_wrong(
    monkeypatch: pytest.MonkeyPatch, inputs: tuple[torch.Tensor, ...]
) -> None:
    monkeypatch.setattr(reference, "may_use_tf32", lambda operation, _: operation == "convolution")
    x, one, two = inputs
    assert not judged_network(network_in_tf32(x * 1.02, one, two), inputs).is_right


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
        with reference.PerturbedRounding(seed):
            moved.append((gradients(gradient, x, weight) - exact).abs().max())
    assert off / 2 < max(moved) < off * 10


def test_an_empty_batch_has_no_terms_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "may_use_tf32", lambda operation, _: "convol" in operation)
    x, weight = torch.randn(0, 4, 8, 8), torch.randn(4, 4, 3, 3, requires_grad=True)
    with reference.PerturbedRounding(0):
        F.conv2d(x, weight).sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_the_gradient_of_a_bias_is_a_sum_without_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "may_use_tf32", lambda *_: True)
    x, weight, gradient = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 1, 1), torch.rand(2, 4, 8, 8)
    how = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, False, True])
    backward = partial(torch.ops.aten.convolution_backward, gradient, x, weight, [4], *how)
    exact = backward()[2]
    with reference.PerturbedRounding(0):
        moved = backward()[2]
    assert torch.allclose(moved, exact, rtol=1e-5)


def test_on_a_cpu_there_is_no_tf32() -> None:
    assert not reference.may_use_tf32("convolution", torch.ones(3))


# --- in bfloat16, where one unit in the last place is nearly a percent ----------------------------


def gated(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x[0]) * x[1] * 4


def in_float32(x: torch.Tensor) -> torch.Tensor:
    """As compiled code computes: rounded once."""
    return gated(x.float()).bfloat16()


def bent(x: torch.Tensor) -> torch.Tensor:
    """A gelu whose slope is off by a few percent."""
    y = x.float()
    return (F.gelu(y[0] * 1.08) * y[1] * 4).bfloat16()


def flipped(x: torch.Tensor) -> torch.Tensor:
    """Rounding upstream has changed one choice in a hundred."""
    result = in_float32(x)
    result[..., ::100] *= 1.08
    return result


@pytest.mark.parametrize(
    ("compiled", "is_wrong"), [(in_float32, False), (bent, True), (flipped, False)]
)
def test_what_is_off_throughout_is_wrong_though_no_element_is_far_off(
    compiled: Function, is_wrong: bool
) -> None:
    x = numbers(2, 60, 60).bfloat16()
    found = judged(gated, compiled, x)
    assert bool(found.wrong) == is_wrong
    if is_wrong:
        value = found.wrong[0].value
        assert value is not None
        assert value.wrong > value.elements / 2
