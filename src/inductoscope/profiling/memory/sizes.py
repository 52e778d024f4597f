"""Sizes of memory from what texts say of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from inductoscope.analysis.bounds.evaluation import NoValue, value_of
from inductoscope.analysis.bounds.expressions import NotUnderstood, read_expression


def number_of(text: str, values: Mapping[str, int]) -> int | None:
    """The number that an expression is with these sizes; None where that is not known."""
    if text.isdecimal():
        return int(text)
    try:
        return value_of(read_expression(text), values)
    except (NoValue, NotUnderstood, ValueError):
        return None


def numbers_of(texts: Sequence[str], values: Mapping[str, int]) -> list[int] | None:
    """The same for each of several; None where one of them is not known."""
    found = [number_of(text, values) for text in texts]
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last; none if there is none."""
    if math.prod(size) == 0:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=False))
