"""Operations beside their decompositions, and beside what their meta functions say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.decomposition

from inductoscope.inside.compare.operators import (
    first_false_declaration,
    first_wrong_decomposition,
    is_custom,
)
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.location import locate_wrong_result
from inductoscope.inside.search.oracle import Oracle
from support.graphs import captured, numbers


def put(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    return x.sin().put(where, torch.ones(2))


WHERE = torch.tensor([0, 5])


@pytest.mark.usefixtures("bugs_of_torch")
def test_strides_are_compared_if_they_are_what_is_wrong() -> None:
    """pytorch#198364: eager keeps those of a transposed input."""
    inputs = (numbers(3, 4).mT, WHERE)
    assert first_wrong_decomposition(put, inputs, backward=False) is None
    found = first_wrong_decomposition(put, inputs, backward=False, aspect="stride")
    assert found is not None
    assert found.operation == "aten.put.default"


@pytest.mark.usefixtures("bugs_of_torch")
def test_random_numbers_are_compared_by_type_and_shape() -> None:
    """pytorch#194547."""
    inputs = (torch.ones(2).half(), torch.ones(2))
    found = first_wrong_decomposition(torch.normal, inputs, backward=False)
    assert found is not None
    assert (found.operation, found.kind) == ("aten.normal.Tensor_Tensor", "dtype")
    assert first_wrong_decomposition(torch.normal, (torch.ones(2),) * 2, backward=False) is None


@pytest.mark.parametrize(
    "function",
    [lambda x: x.softmax(0), torch.nn.functional.gelu, lambda x: torch.nn.functional.dropout(x)],
    ids=["softmax", "gelu", "dropout"],
)
def test_decompositions_that_are_right(function: Callable[..., Any]) -> None:
    assert first_wrong_decomposition(function, (numbers(4, 5),), backward=False) is None


def sign(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x, y)


@pytest.mark.usefixtures("bugs_of_torch")
def test_a_meta_function_that_says_other_strides_than_eager_gives() -> None:
    """pytorch#198364: nothing computes anything wrong, and the strides are."""
    inputs = (numbers(3, 4).mT, numbers(4, 3))
    found = locate_wrong_result(Candidate(captured(sign, *inputs), inputs), Forks(), "stride")
    assert (found.stage, found.operation) == ("lowering", "aten.copysign.Tensor")
    assert found.text.startswith("the meta function of aten.copysign.Tensor says ")


@pytest.mark.usefixtures("bugs_of_torch")
def test_a_buffer_that_is_written_to_within_its_kernel_is_not_blamed() -> None:
    """Of the copy that `put` writes to nothing is left; that is as it should be."""
    inputs = (numbers(4, 3), WHERE)
    found = locate_wrong_result(Candidate(captured(put, *inputs), inputs), Forks(), "value")
    assert not found.is_known
    assert found.graphs_are_right


def test_what_is_not_known_when_the_time_is_over_counts_as_not_failing() -> None:
    oracle = Oracle(Forks(), deadline=0.0)
    inputs = (numbers(3),)
    assert oracle.failure(Candidate(captured(torch.sin, *inputs), inputs)) is None
    assert oracle.forks.count == 0


# --- Operators of the program's own: the first that does not do what it declares ------------------


@torch.library.custom_op("own_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("own_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x.half()


@halved.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)  # Says float32.


@torch.library.custom_op("own_tests::cleared", mutates_args=())
def cleared(x: torch.Tensor) -> torch.Tensor:
    return x.zero_().clone()


@cleared.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("own_tests::filled", mutates_args={"x"})
def filled(x: torch.Tensor) -> None:
    x.fill_(1)


@pytest.mark.parametrize("operator", [doubled, filled], ids=["gives", "writes"])
def test_an_operator_that_does_what_it_declares_is_not_held_against_anyone(
    operator: torch.library.CustomOpDef,
) -> None:
    assert first_false_declaration(lambda x: operator(x + 1), [torch.ones(3)]) is None


def test_a_fake_implementation_that_gives_another_type_is_false() -> None:
    found = first_false_declaration(lambda x: halved(x + 1), [torch.ones(3)])
    assert found is not None
    assert found.operation == "own_tests.halved.default"
    assert "Dtypes torch.float16 and torch.float32 are not equal" in found.text


def test_an_operator_that_writes_to_what_it_says_it_reads_is_false() -> None:
    x = torch.ones(3)
    found = first_false_declaration(lambda x: cleared(x), [x])
    assert found is not None
    assert found.operation == "own_tests.cleared.default"
    assert "not defined as mutable" in found.text
    assert x.tolist() == [1, 1, 1], "what was given is left alone"


def test_the_first_false_one_is_told_although_a_later_one_raises() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return halved(doubled(x)) @ cleared(x).new_ones(5)

    found = first_false_declaration(function, [torch.ones(3)])
    assert found is not None
    assert found.operation == "own_tests.halved.default"


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (torch.ops.own_tests.doubled.default, True),
        (torch.ops.aten.add.Tensor, False),
        (torch.ops.inductor.resize_storage_bytes_.default, False),
        (torch.add, False),
        ("add", False),
    ],
    ids=["its own", "aten", "of Inductor", "a function", "a name"],
)
def test_what_torch_brings_along_is_not_the_programs_own(operator: object, expected: bool) -> None:
    assert is_custom(operator) is expected
