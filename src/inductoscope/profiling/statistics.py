"""Samples of times, and tests of whether they differ by more than noise.

The sample of a program has one value per run, because calls in one process are correlated, for
instance by memory placement and core. Two programs are compared by the exact rank test of Mann and
Whitney, which assumes nothing about the distribution of times. The speed-up is the median of the
ratios of all pairs of runs (Hodges and Lehmann), with the confidence interval that belongs to the
same test. Two ways of calling a function in the same run are compared by the exact sign test of
their ratios, one for each run.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Significance level: chance alone exceeds it in one of fifty comparisons.
SIGNIFICANT = 0.02
# The fewest runs of each side, and the fewest ratios, with which a difference can be significant.
FEWEST_RUNS = 5
FEWEST_RATIOS = 7
# Ratios nearer to 1 than this are ignored.
LEAST_RATIO = 1.01
# The most values of each side in the exact test.
MOST_VALUES = 20
# An interquartile range above this, relative to the median, means a noisy machine.
NOISY = 0.2

FASTER, SLOWER, NO_DIFFERENCE, TOO_FEW = "faster", "slower", "no difference", "too few runs"


@dataclass(frozen=True)
class Sample:
    """Times of the same thing, in seconds."""

    values: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else 0.0

    @property
    def quartiles(self) -> tuple[float, float]:
        if self.count < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """The interquartile range relative to the median: 0.1 is ten percent."""
        low, high = self.quartiles
        return (high - low) / self.median if self.median > 0 else 0.0

    @property
    def is_noisy(self) -> bool:
        """Whether the values vary so much that their median says little."""
        return self.count > 1 and self.spread > NOISY


@dataclass(frozen=True)
class TimeComparison:
    base: Sample
    other: Sample
    # The time of the sample relative to the base, with its 95 % confidence interval.
    ratio: float
    low: float
    high: float
    # The p-value of the test.
    chance: float
    # FASTER, SLOWER, NO_DIFFERENCE or TOO_FEW.
    verdict: str
    test: str = "rank test"

    @property
    def differs(self) -> bool:
        return self.verdict in (FASTER, SLOWER)

    @property
    def how(self) -> str:
        runs = f"{self.other.count} runs against {self.base.count}"
        return f"{runs}, each by its median; {self.certainty}"

    @property
    def certainty(self) -> str:
        """How certain the ratio is, for a reader."""
        if self.verdict == TOO_FEW:
            return "too few to tell from noise"
        chance = "below 0.1%" if self.chance < 0.001 else f"{self.chance:.1%}"
        return (
            f"{self.test}, chance {chance}; "
            f"95 % of the ratio between {self.low:.2f} and {self.high:.2f}"
        )


def compare(base: Sample, other: Sample) -> TimeComparison:
    """Test whether `other` is faster or slower than `base`, beyond noise.

    Both hold one value per run, made in turns. If there are more values than the exact test
    supports, medians of blocks of neighbours are compared, which are correlated anyway.
    """
    first, second = blocks_of(base.values, MOST_VALUES), blocks_of(other.values, MOST_VALUES)
    ratios = sorted(b / a for a in first for b in second if a > 0)
    if not ratios:
        return TimeComparison(base, other, 1.0, 0.0, math.inf, 1.0, TOO_FEW)
    ratio = statistics.median(ratios)
    chance = chance_of_ranks(first, second)
    edge = _interval_edge(_arrangements(len(first), len(second)))
    edge = min(edge, (len(ratios) - 1) // 2)  # Zeros of the base have no ratio.
    is_enough = min(base.count, other.count) >= FEWEST_RUNS
    verdict = _verdict(ratio, chance, is_enough=is_enough)
    return TimeComparison(base, other, ratio, ratios[edge], ratios[-1 - edge], chance, verdict)


def compare_ratios(ratios: Sample) -> TimeComparison:
    """Test whether ratios of two times, one for each run, lie above or below 1, beyond noise."""
    values, base = sorted(ratios.values), Sample((1.0,) * ratios.count)
    if not values:
        return TimeComparison(base, ratios, 1.0, 0.0, math.inf, 1.0, TOO_FEW)
    orders = [math.comb(ratios.count, above) for above in range(ratios.count + 1)]
    wins = sum((value > 1) + 0.5 * (value == 1) for value in values)
    chance, edge = _two_sided(orders, wins), _interval_edge(orders)
    verdict = _verdict(ratios.median, chance, is_enough=ratios.count >= FEWEST_RATIOS)
    low, high = values[edge], values[-1 - edge]
    return TimeComparison(base, ratios, ratios.median, low, high, chance, verdict, "sign test")


def blocks_of(values: Sequence[float], most: int) -> tuple[float, ...]:
    """Return the medians of at most `most` blocks of neighbours of about equal length."""
    count = min(most, len(values))
    edges = [len(values) * number // count for number in range(count + 1)] if count else []
    return tuple(statistics.median(values[start:end]) for start, end in itertools.pairwise(edges))


def _verdict(ratio: float, chance: float, *, is_enough: bool) -> str:
    if not is_enough:
        return TOO_FEW
    if chance > SIGNIFICANT or 1 / LEAST_RATIO < ratio < LEAST_RATIO:
        return NO_DIFFERENCE
    return FASTER if ratio < 1 else SLOWER


def chance_of_ranks(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of the exact rank test."""
    wins = sum((a > b) + 0.5 * (a == b) for a in first for b in second)
    return _two_sided(_arrangements(len(first), len(second)), wins)


def _two_sided(orders: Sequence[int], wins: float) -> float:
    """Return the p-value of so many wins; `orders` counts the orders with 0, 1, 2, ... of them."""
    extreme = math.floor(min(wins, len(orders) - 1 - wins))
    return min(1.0, 2 * sum(orders[: extreme + 1]) / sum(orders))


def _interval_edge(orders: Sequence[int]) -> int:
    """Return how many of the sorted ratios lie outside the 95 % interval on each side."""
    below, whole = itertools.accumulate(orders), sum(orders)
    return max(0, sum(2 * each / whole <= 0.05 for each in below) - 1)


@functools.lru_cache(maxsize=32)
def _arrangements(first: int, second: int) -> tuple[int, ...]:
    """Count the orders of two samples in which 0, 1, 2, ... pairs have the first one's value above.

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
