"""Torch's own check for NaN: what it refuses for good reason, and what it does not excuse."""

from __future__ import annotations

from typing import Any

import torch

from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.nan_asserts import refused_by_nan_asserts


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


def test_an_input_that_holds_nan_is_named_with_its_place() -> None:
    for wrapper in (as_wrapper_in_python, as_wrapper_in_cpp):
        said = refused_by_nan_asserts(raised(wrapper), case_of(NAN), ["x"])
        assert said == "input 0 (x) holds NaN, first at index [1, 1] (1 of 4 elements)"


def test_nan_that_eager_computes_too_is_not_the_compilers() -> None:
    case = case_of(-torch.ones(2), function=torch.sqrt)
    said = refused_by_nan_asserts(raised(as_wrapper_in_python), case, ["x"])
    assert said == "output 0 holds NaN, first at index [0] (2 of 2 elements), in eager as well"


def test_nan_that_compiled_code_alone_makes_is_not_excused() -> None:
    case = case_of(torch.ones(2))
    assert refused_by_nan_asserts(raised(as_wrapper_in_python), case, ["x"]) == ""


def test_other_errors_are_no_check_for_nan() -> None:
    def another() -> None:
        raise RuntimeError("shapes do not fit")

    assert refused_by_nan_asserts(raised(another), case_of(NAN), ["x"]) == ""
