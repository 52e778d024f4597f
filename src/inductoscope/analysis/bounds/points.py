"""The smallest and largest value of an index when all sizes are given: by computing it.

An index is a sum. Terms and conditions that share no variable are looked at apart from each other,
so a few hundred points are mostly enough where the loop itself has millions.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inductoscope.analysis.bounds.evaluation import holds, value_of, valued
from inductoscope.analysis.bounds.expressions import (
    Expression,
    Name,
    NotUnderstood,
    add,
    names_in,
)
from inductoscope.analysis.bounds.polynomials import Polynomial, polynomial, written

Point = Mapping[str, int]


class TooManyPoints(Exception):
    """More than may be looked at."""


NO_TIME = "not looked at: the time for the proofs was used up"
# Looking at the clock takes as long as computing a point.
_BETWEEN_LOOKS = 256


class OutOfTime(Exception):
    """The time that was given is over."""

    def __init__(self) -> None:
        super().__init__(NO_TIME)


@dataclass
class Purse:
    """How many points may still be looked at, and until when (of time.monotonic)."""

    points: int
    until: float = math.inf

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.until

    def spend(self, points: int, most: int = 1 << 16) -> None:
        """Take note of so many."""
        if points > min(self.points, most):
            raise TooManyPoints
        if self.is_late:
            raise OutOfTime
        self.points -= points


@dataclass(frozen=True)
class Extremes:
    """The smallest and the largest value, and a point for each."""

    low: int
    high: int
    lowest: Point
    highest: Point


def extremes(
    index: Expression,
    conditions: Sequence[Expression],
    lengths: Mapping[str, int],
    sizes: Point,
    purse: Purse,
) -> Extremes | None:
    """Over all points where the conditions hold, or may; None if there is none.

    `lengths` are those of the loops. Raises TooManyPoints, and NoValue if the index is data.
    """
    if any(length <= 0 for length in lengths.values()):
        return None
    terms = _terms(index)
    found = Extremes(0, 0, {}, {})
    for names in _groups([*terms, *conditions], lengths):
        group = _VariableGroup(
            names,
            [term for term in terms if _loops(term, lengths) <= names and _belongs(term, names)],
            [c for c in conditions if _loops(c, lengths) <= names and _belongs(c, names)],
        )
        part = _extremes_of(group, lengths, sizes, purse)
        if part is None:
            return None
        found = _joined(found, part)
    fixed = _VariableGroup(
        frozenset(),
        [term for term in terms if not _loops(term, lengths)],
        [condition for condition in conditions if not _loops(condition, lengths)],
    )
    part = _extremes_of(fixed, lengths, sizes, purse)
    return None if part is None else _joined(found, part)


@dataclass(frozen=True)
class _VariableGroup:
    names: frozenset[str]
    terms: list[Expression]
    conditions: list[Expression]


def _belongs(expression: Expression, names: frozenset[str]) -> bool:
    return not names_in(expression).isdisjoint(names)


def _loops(expression: Expression, lengths: Mapping[str, int]) -> frozenset[str]:
    return names_in(expression) & lengths.keys()


def _terms(index: Expression) -> list[Expression]:
    try:
        found = polynomial(index).terms
    except NotUnderstood:
        return [index]
    return [written(Polynomial({monomial: value})) for monomial, value in found.items()]


def _groups(expressions: Sequence[Expression], lengths: Mapping[str, int]) -> list[frozenset[str]]:
    """The loop variables, those together that occur together."""
    groups: list[frozenset[str]] = []
    for expression in expressions:
        joined = _loops(expression, lengths)
        if joined:
            apart = [group for group in groups if group.isdisjoint(joined)]
            together = [group for group in groups if not group.isdisjoint(joined)]
            groups = [*apart, joined.union(*together)]
    return groups


def _extremes_of(
    group: _VariableGroup, lengths: Mapping[str, int], sizes: Point, purse: Purse
) -> Extremes | None:
    if len(group.names) == 1 and not group.conditions and _is_linear(group):
        return _at_ends(group, lengths, sizes)
    low = high = None
    value_at = valued(add(*group.terms))
    for point in _points(group, lengths, purse):
        values = {**sizes, **point}
        if any(holds(condition, values) is False for condition in group.conditions):
            continue
        value = value_at(values)
        if low is None or value < low[0]:
            low = value, point
        if high is None or value > high[0]:
            high = value, point
    if low is None or high is None:
        return None
    return Extremes(low[0], high[0], low[1], high[1])


def _is_linear(group: _VariableGroup) -> bool:
    name = next(iter(group.names))
    return all(
        polynomial(term).degree(Name(name)) == 1 and len(polynomial(term).atoms) == 1
        for term in group.terms
    )


def _at_ends(group: _VariableGroup, lengths: Mapping[str, int], sizes: Point) -> Extremes:
    name = next(iter(group.names))
    ends = []
    for place in (0, lengths[name] - 1):
        values = {**sizes, name: place}
        ends.append((sum(value_of(term, values) for term in group.terms), {name: place}))
    low, high = min(ends, key=lambda e: e[0]), max(ends, key=lambda e: e[0])
    return Extremes(low[0], high[0], low[1], high[1])


def _points(
    group: _VariableGroup, lengths: Mapping[str, int], purse: Purse
) -> Iterator[dict[str, int]]:
    names = sorted(group.names)
    purse.spend(math.prod(lengths[name] for name in names) or 1)
    every = itertools.product(*(range(lengths[name]) for name in names))
    for number, places in enumerate(every):
        if number % _BETWEEN_LOOKS == 0 and purse.is_late:
            raise OutOfTime
        yield dict(zip(names, places, strict=True))


def _joined(one: Extremes, other: Extremes) -> Extremes:
    return Extremes(
        one.low + other.low,
        one.high + other.high,
        {**one.lowest, **other.lowest},
        {**one.highest, **other.highest},
    )
