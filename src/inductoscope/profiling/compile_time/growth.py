"""How the seconds of a stage grow with the size of the graph: an exponent with its interval.

The line is fitted to the logarithms of sizes and seconds, so its slope is the exponent: 1 is
linear, 2 quadratic. What even the smallest graph costs is subtracted first, because it would hide
growth in small graphs. The interval is that of the slope, at 95 %, by Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.profiling.compile_time.compile_cost import CompileCost
from inductoscope.vocabulary import stages

# Student's t for an interval of 95 %, by degrees of freedom.
_STUDENT = (math.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)
_FEWEST = 3
# Less than this cannot be told from what a timer and the scheduler of the machine do.
_NOISE = 0.004
# Sizes that are closer together than this factor say little about growth.
_APART = 1.2


@dataclass(frozen=True)
class Point:
    """A graph of a size, and the seconds that a stage took for it."""

    nodes: int
    seconds: float


@dataclass(frozen=True)
class StageGrowth:
    """How a stage grows."""

    stage: str
    exponent: float
    low: float
    high: float
    points: tuple[Point, ...]

    @property
    def half_width(self) -> float:
        """Half of the interval: the exponent is so much more or less."""
        return (self.high - self.low) / 2

    @property
    def is_known(self) -> bool:
        """Whether the interval is narrow enough to tell linear from quadratic."""
        return self.half_width < 0.5


def growth_of(stage: str, costs: Sequence[CompileCost], least: float = 0.0) -> StageGrowth | None:
    """How a stage grows over these compiles; None if there is too little to tell.

    `least` is what the stage costs for next to nothing.
    """
    points = tuple(
        Point(cost.nodes, cost.seconds_of(stage))
        for cost in sorted(costs, key=lambda cost: cost.nodes)
        if cost.nodes > 0 and cost.seconds_of(stage) - least > _NOISE
    )
    sizes = {point.nodes for point in points}
    if len(sizes) < _FEWEST or max(sizes) < _APART * min(sizes):
        return None
    exponent, error = _slope(
        [math.log(point.nodes) for point in points],
        [math.log(point.seconds - least) for point in points],
    )
    student = _STUDENT[min(len(points) - 2, len(_STUDENT) - 1)]
    width = student * error
    return StageGrowth(stage, exponent, exponent - width, exponent + width, points)


def growth_of_all(costs: Sequence[CompileCost], least: CompileCost | None) -> list[StageGrowth]:
    """How each stage grows that can be told, the slowest first."""
    if not costs:
        return []
    largest = max(costs, key=lambda cost: cost.nodes)
    names = [*largest.in_python, *([stages.CPP_COMPILE] if largest.natives else [])]
    names.sort(key=lambda name: -largest.seconds_of(name))
    found = [growth_of(n, costs, least.seconds_of(n) if least else 0.0) for n in names]
    return [growth for growth in found if growth is not None]


def _slope(across: Sequence[float], up: Sequence[float]) -> tuple[float, float]:
    """The slope of the straight line that fits best, and its standard error."""
    count = len(across)
    middle, height = sum(across) / count, sum(up) / count
    spread = sum((x - middle) ** 2 for x in across)
    slope = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True)) / spread
    off = sum((y - height - slope * (x - middle)) ** 2 for x, y in zip(across, up, strict=True))
    return slope, math.sqrt(off / (count - 2) / spread) if count > 2 else math.inf
