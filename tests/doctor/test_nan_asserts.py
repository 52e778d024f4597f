"""Torch's own check for NaN: what it refuses for good reason, and what it does not excuse."""

from __future__ import annotations

from typing import Any

import torch

from inductoscope.inside.compare.beside_eager import Refusal, refused_by_nan_asserts
from inductoscope.inside.compare.reference import Case


def raised(function: Any) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def as_wrapper_in_python() -> None:
    arg0_1 = torch.tensor([0.0, float("nan")])
    assert not arg0_1.isnan().any().item()


def as_wrapper_in_cpp() -> None:
    raise RuntimeError("At least one NaN in arg0_1")


def case_of(*inputs: torch.Tensor, function: Any = torch.sin) -> Case:
    return Case(lambda *given: function(given[0]), inputs)


NAN = torch.tensor([[1.0, 2.0], [3.0, float("nan")]])


def as_results_in_python(*results: torch.Tensor) -> None:
    return_vars = results
    for var in return_vars:
        assert not var.isnan().any().item()


def refused(case: Case, *results: torch.Tensor) -> Refusal | None:
    return refused_by_nan_asserts(raised(lambda: as_results_in_python(*results)), case, ["x"])


def test_an_input_that_holds_nan_is_named_with_its_place() -> None:
    for wrapper in (as_wrapper_in_python, as_wrapper_in_cpp):
        said = refused_by_nan_asserts(raised(wrapper), case_of(NAN), ["x"])
        text = "input 0 (x) holds NaN, first at index [1, 1] (1 of 4 elements)"
        assert said == Refusal(text, is_certain=True)


ROOT = case_of(-torch.ones(2), function=torch.sqrt)
IN_EAGER = "output 0 holds NaN, first at index [0] (2 of 2 elements), in eager as well"


def test_nan_that_eager_computes_too_is_not_the_compilers() -> None:
    assert refused(ROOT, torch.full((2,), float("nan"))) == Refusal(IN_EAGER, is_certain=True)


def test_nan_of_a_buffer_that_eager_does_not_have_is_excused_with_reserve() -> None:
    def between_kernels() -> None:
        raise RuntimeError("At least one NaN in buf0")

    said = refused_by_nan_asserts(raised(between_kernels), ROOT, ["x"])
    assert said == Refusal(IN_EAGER, is_certain=False)
    # One result more than the function has: the graph keeps it for the backward pass.
    said = refused(ROOT, torch.ones(2), torch.full((2,), float("nan")))
    assert said == Refusal(IN_EAGER, is_certain=False)


def test_nan_that_compiled_code_alone_makes_is_not_excused() -> None:
    assert refused(case_of(torch.ones(2)), torch.full((2,), float("nan"))) is None


def test_nan_of_another_result_excuses_nothing() -> None:
    """Eager makes NaN of output 1, compiled code of output 0 as well."""
    case = Case(lambda x: (x, (-x).sqrt()), [torch.ones(2)])
    assert refused(case, torch.full((2,), float("nan")), torch.full((2,), float("nan"))) is None


def test_nan_in_another_element_excuses_nothing() -> None:
    case = Case(torch.sqrt, [torch.tensor([-1.0, 1.0])])
    assert refused(case, torch.full((2,), float("nan"))) is None


def test_other_errors_are_no_check_for_nan() -> None:
    def another() -> None:
        raise RuntimeError("shapes do not fit")

    assert refused_by_nan_asserts(raised(another), case_of(NAN), ["x"]) is None
