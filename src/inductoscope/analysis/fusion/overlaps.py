"""How many elements two nodes read in common, from the index expressions of their loops.

Understands only sums of constants times loop variables, over ranges that are numbers. For
everything else the answer is None, for unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_TERM = re.compile(r"(?:(\d{1,18})\*)?([a-z]\w*)|(\d{1,18})")
_MOST_STEPS = 12
_RANGE = re.compile(r"(\w+): (\d{1,18})")


@dataclass(frozen=True)
class Region:
    """The places offset + sum of step * (0 .. count - 1), with steps that grow and never collide.

    Steps that continue each other are one: rows of 64 elements, 64 apart, are one long row.
    """

    offset: int
    steps: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> int:
        """How many places there are."""
        return math.prod(count for _, count in self.steps)

    @property
    def end(self) -> int:
        """The place after the last."""
        return self.offset + sum(step * (count - 1) for step, count in self.steps) + 1

    @property
    def is_whole(self) -> bool:
        """Whether it has no gaps."""
        return self.end - self.offset == self.elements


def read_region(index: str, ranges: Mapping[str, int]) -> Region | None:
    """The places that an index runs through; None if it is too complex."""
    offset, steps = 0, []
    signed = index.replace(" - ", " + -").split(" + ")
    for part in signed:
        sign = -1 if part.startswith("-") else 1
        match = _TERM.fullmatch(part.removeprefix("-"))
        if match is None:
            return None
        if match[3]:
            offset += sign * int(match[3])
            continue
        count, step = ranges.get(match[2]), int(match[1] or 1)
        if not count or not step:
            return None
        # Backwards through the same places.
        offset -= step * (count - 1) if sign < 0 else 0
        steps.append((step, count))
    return _normal(offset, steps)


def _normal(offset: int, steps: list[tuple[int, int]]) -> Region | None:
    merged: list[tuple[int, int]] = []
    for step, count in sorted((step, count) for step, count in steps if count > 1):
        if step < sum(one * (times - 1) for one, times in merged) + 1:
            return None  # Places are visited more than once, as in a convolution.
        if merged and step == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0], merged[-1][1] * count)
        else:
            merged.append((step, count))
    return Region(offset, tuple(merged)) if len(merged) <= _MOST_STEPS else None


def read_ranges(text: str) -> dict[str, int]:
    """Loop variables and how far each runs: 'p0: 64, p1: 128'."""
    return {name: int(count) for name, count in _RANGE.findall(text)}


def common_elements(first: Region, second: Region) -> int | None:
    """How many places both have; None if unknown."""
    if first.end <= second.offset or second.end <= first.offset:
        return 0
    if first.steps == second.steps:
        return _shifted(first.steps, abs(first.offset - second.offset))
    for whole, other in ((first, second), (second, first)):
        if whole.is_whole and whole.offset <= other.offset and other.end <= whole.end:
            return other.elements
    return None


def _shifted(steps: tuple[tuple[int, int], ...], distance: int) -> int:
    """Places that a region has in common with itself, moved by a distance."""
    if not steps:
        return 1 if distance == 0 else 0
    step, count = steps[-1]
    quotient = distance // step
    found = 0
    # The smaller steps must make up the rest, forwards or backwards.
    for times in (quotient, quotient + 1):
        if times < count:
            rest = abs(distance - times * step)
            found += (count - times) * _shifted(steps[:-1], rest)
    return found


def common_share(
    first: Iterable[str], first_ranges: str, second: Iterable[str], second_ranges: str
) -> float | None:
    """The share of the smaller read that the other reads too; None if unknown."""
    regions = [
        [read_region(index, read_ranges(ranges)) for index in indices]
        for indices, ranges in ((first, first_ranges), (second, second_ranges))
    ]
    known = [[region for region in side if region is not None] for side in regions]
    if [len(side) for side in known] != [len(side) for side in regions] or not all(known):
        return None
    smaller = min(sum(region.elements for region in side) for side in known)
    common = 0
    for one in known[0]:
        for other in known[1]:
            found = common_elements(one, other)
            if found is None:
                return None
            common += found
    return min(1.0, common / smaller)
