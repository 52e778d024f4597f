"""Sizes at which generated code is most likely to differ: ends of ranges, and where a part begins.

One size at a time leaves its usual value: to the ends of the range that the guards or the export
admit, to multiples of what the code divides it by, and to where vectors and tiles end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from inductoscope.analysis.bounds.expressions import (
    Applied,
    Expression,
    NotUnderstood,
    Number,
    names_in,
)
from inductoscope.analysis.bounds.sizes import AdmittedSizes

# Where vectors of a CPU and small tiles end.
_WIDTHS = (8, 16, 32)
_DIVISIONS = ("floordiv", "mod", "modular")
# A larger tensor takes long to compute, and shows nothing else.
_LARGEST = 4096
_MOST_FOR_ONE = 14


@dataclass(frozen=True)
class EdgeSize:
    """Sizes to try: `symbol` has an unusual one, for the reason `why`."""

    symbol: str
    value: int
    why: str
    sizes: Mapping[str, int]


def edge_sizes(sizes: AdmittedSizes, indices: Iterable[Expression]) -> Iterator[EdgeSize]:
    """All of them, admitted by every guard, the same never twice."""
    symbols = sizes.memory.symbols
    usual = {n: int(s.value) for n, s in symbols.items() if s.value.isdecimal()}
    parts = [*indices, *_sizes_and_guards(sizes)]
    for name in sorted(usual):
        tried = 0
        for value, why in _choices(sizes, name, usual[name], parts).items():
            found = {**usual, name: value}
            if tried < _MOST_FOR_ONE and value != usual[name] and sizes.admits(found):
                tried += 1
                yield EdgeSize(name, value, why, found)


def _choices(
    sizes: AdmittedSizes, name: str, usual: int, parts: list[Expression]
) -> dict[int, str]:
    """Values of one size, and what is special about each; the first reason counts."""
    low, high = sizes.ends(name)
    lowest = 0 if low is None else max(low, 0)
    found = {lowest: "the smallest that is admitted"}
    if high is not None and high <= _LARGEST:
        found.setdefault(high, "the largest that is admitted")
    found.setdefault(lowest + 1, "one more than the smallest that is admitted")
    for divisor in sorted({d for part in parts for d in _divisors(part, name)}):
        whole = max(usual // divisor, 1) * divisor
        text = f"a multiple of {divisor}, by which the code divides it"
        found.setdefault(whole, text)
        found.setdefault(whole + 1, f"one more than {text}")
        found.setdefault(whole - 1, f"one less than {text}")
    for width in _WIDTHS:
        for value, how in (
            (width + 1, "one more than "),
            (width - 1, "one less than "),
            (width, ""),
        ):
            found.setdefault(value, f"{how}{width}, where vectors and tiles end")
    if high is not None and high <= _LARGEST:
        found.setdefault(high - 1, "one less than the largest that is admitted")
    return {v: why for v, why in found.items() if lowest <= v <= (high or _LARGEST)}


def _sizes_and_guards(sizes: AdmittedSizes) -> Iterator[Expression]:
    yield from sizes.assumed
    for room in sizes.memory.rooms.values():
        for text in (*room.size, *room.stride):
            try:
                yield sizes.read(text)
            except NotUnderstood:
                continue


def _divisors(expression: Expression, name: str) -> Iterator[int]:
    """Numbers that something with this size in it is divided by."""
    if not isinstance(expression, Applied):
        return
    if expression.operation in _DIVISIONS and name in names_in(expression.operands[0]):
        for divisor in expression.operands[1:]:
            if isinstance(divisor, Number) and 1 < divisor.value <= _LARGEST:
                yield int(divisor.value)
    for operand in expression.operands:
        yield from _divisors(operand, name)
