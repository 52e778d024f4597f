"""Operators of the program's own: the first that does not do what it declares."""

from __future__ import annotations

import pytest
import torch

from inductoscope.inside.compare.operators import first_false_declaration, is_custom


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
