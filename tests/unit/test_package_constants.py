"""Tensors that are put in the place of a package's constants, which torch takes as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inductoscope.packages.constants import ConstantFacts, broken_demands
from inductoscope.torch_facts.package_wrappers import PackagedConstant

WEIGHT = PackagedConstant(
    "a.weight", "a_weight", "float32", "cpu", (16, 8), 512, "parameter", stride=(8, 1)
)
GOOD = ConstantFacts("float32", (16, 8), (8, 1), "cpu", 0, 512)


def broken(given: ConstantFacts, *, is_copied: bool = True) -> list[str]:
    return list(broken_demands(WEIGHT, given, is_copied=is_copied))


def test_a_constant_of_the_same_kind_is_fine() -> None:
    assert broken(GOOD) == []


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (replace(GOOD, dtype="float64", storage_bytes=1024), "dtype float64"),
        (replace(GOOD, shape=(8, 8)), "shape [8, 8]"),
        (replace(GOOD, strides=(1, 16)), "strides [1, 16]"),
        (replace(GOOD, device="cuda"), "on cuda"),
        (replace(GOOD, storage_bytes=1024), "a view of 1024 bytes"),
        (replace(GOOD, offset=128, storage_bytes=1024), "begins at element 128"),
    ],
)
def test_what_torch_would_misread_is_named(given: ConstantFacts, what: str) -> None:
    assert what in broken(given)[0]
    assert broken(given)[0].startswith("constant a.weight: the new one ")


def test_a_view_that_is_used_where_it_lies_is_fine() -> None:
    """With user_managed=True nothing is copied."""
    assert broken(replace(GOOD, offset=128, storage_bytes=1024), is_copied=False) == []


def test_the_stride_of_a_single_row_says_nothing() -> None:
    single = replace(WEIGHT, shape=(1, 8), stride=(8, 1), bytes=64)
    given = ConstantFacts("float32", (1, 8), (99, 1), "cpu", 0, 32)
    assert list(broken_demands(single, given, is_copied=True)) == []
