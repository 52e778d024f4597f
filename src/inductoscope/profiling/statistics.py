"""Samples of times, and whether two of them differ by more than noise.

The sample of a program is one number per run, because calls of one process share its luck: where
its memory lies, which core it is on. Two programs are told apart by the rank test of Mann and
Whitney, exactly, without an assumption about how times are distributed. How much faster one is,
is the median of the ratios of all pairs of runs (Hodges and Lehmann), with the interval that
belongs to the same test.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

# A difference that chance alone would make in more than one of fifty comparisons is none.
SIGNIFICANT = 0.02
# The fewest runs of each side with which a difference can be that significant.
FEWEST_RUNS = 5
# A ratio that is nearer to 1 matters to nobody.
LEAST_RATIO = 1.01
# The exact test is for so many values of each side.
MOST_VALUES = 20
# Half of the values further apart than this, relative to their median: a noisy machine.
NOISY = 0.2

FASTER, SLOWER, NO_DIFFERENCE, TOO_FEW = "faster", "slower", "no difference", "too few runs"


@dataclass(frozen=True)
class Sample:
    """Times of the same thing, in seconds."""

    values: tuple[float, ...]

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def median(self) -> float:
        """Half of the values are below it."""
        return quantile(self.values, 0.5)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Half of the values lie between these two."""
        return quantile(self.values, 0.25), quantile(self.values, 0.75)

    @property
    def spread(self) -> float:
        """How far apart the quartiles are, relative to the median: 0.1 is ten percent."""
        low, high = self.quartiles
        return (high - low) / self.median if self.median > 0 else 0.0

    @property
    def is_noisy(self) -> bool:
        """Whether the values vary so much that their median says little."""
        return self.count > 1 and self.spread > NOISY


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies; 0 where there are none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True)
class TimeComparison:
    """How one sample compares with a base."""

    # The time of the sample as a multiple of the base's, and the interval of 95 percent.
    ratio: float
    low: float
    high: float
    # How likely chance alone makes the two differ as much.
    chance: float
    # FASTER, SLOWER, NO_DIFFERENCE or TOO_FEW.
    verdict: str
    runs: tuple[int, int]

    @property
    def differs(self) -> bool:
        """Whether the difference is beyond noise."""
        return self.verdict in (FASTER, SLOWER)

    @property
    def how(self) -> str:
        """How the verdict was reached, for a reader."""
        first, second = self.runs
        return (
            f"{second} runs against {first}, each by its median; rank test, chance "
            f"{self.chance:.1%}; 95 % of the ratio between {self.low:.2f} and {self.high:.2f}"
        )


def compare(base: Sample, other: Sample) -> TimeComparison:
    """Check whether `other` is faster or slower than `base`, beyond noise.

    Both hold one value per run, and the runs were made in turns. Of more values than an exact test
    is meant for, the medians of as many blocks are compared: neighbours share their luck anyway.
    """
    runs = base.count, other.count
    first, second = blocks_of(base.values, MOST_VALUES), blocks_of(other.values, MOST_VALUES)
    ratios = sorted(b / a for a in first for b in second if a > 0)
    if not ratios:
        return TimeComparison(1.0, 0.0, math.inf, 1.0, TOO_FEW, runs)
    ratio = quantile(ratios, 0.5)
    chance = chance_of_ranks(first, second)
    edge = _interval_edge(len(first), len(second))
    low, high = ratios[min(edge, len(ratios) - 1)], ratios[max(len(ratios) - 1 - edge, 0)]
    return TimeComparison(ratio, low, high, chance, _verdict(runs, ratio, chance), runs)


def blocks_of(values: Sequence[float], most: int) -> tuple[float, ...]:
    """The medians of at most so many blocks of neighbours, all about as long."""
    count = min(most, len(values))
    edges = [len(values) * number // count for number in range(count + 1)] if count else []
    return tuple(quantile(values[start:end], 0.5) for start, end in itertools.pairwise(edges))


def _verdict(runs: tuple[int, int], ratio: float, chance: float) -> str:
    if min(runs) < FEWEST_RUNS:
        return TOO_FEW
    if chance > SIGNIFICANT or 1 / LEAST_RATIO < ratio < LEAST_RATIO:
        return NO_DIFFERENCE
    return FASTER if ratio < 1 else SLOWER


def chance_of_ranks(first: Sequence[float], second: Sequence[float]) -> float:
    """The chance that two samples of one distribution are at least as far apart, both ways."""
    wins = sum((a > b) + 0.5 * (a == b) for a in first for b in second)
    total = len(first) * len(second)
    extreme = math.floor(min(wins, total - wins))
    ways = math.comb(len(first) + len(second), len(first))
    fewer = sum(_arrangements(len(first), len(second))[: extreme + 1])
    return min(1.0, 2 * fewer / ways)


def _interval_edge(first: int, second: int) -> int:
    """How many of the extreme ratios of all pairs lie outside of the interval of 95 percent."""
    ways, below = math.comb(first + second, first), 0
    for wins, orders in enumerate(_arrangements(first, second)):
        below += orders
        if 2 * below / ways > 0.05:
            return wins
    return 0


@functools.lru_cache(maxsize=32)
def _arrangements(first: int, second: int) -> tuple[int, ...]:
    """In how many orders of two samples 0, 1, 2, ... pairs have the first one's value above.

    These are the coefficients of the Gaussian binomial: the product of (1 - q^(second + k)) over
    that of (1 - q^k), for k from 1 to `first`.
    """
    counts = [1] + [0] * (first * second)
    for k in range(1, first + 1):
        for wins in range(len(counts) - 1, second + k - 1, -1):
            counts[wins] -= counts[wins - second - k]
        for wins in range(k, len(counts)):
            counts[wins] += counts[wins - k]
    return tuple(counts)
