"""Whether compile time explodes: judged by how it grows, or against plain graphs, never in seconds.

Plain graphs consist of as many pointwise operations, compiled by the same torch on the same machine
a moment before. A stage that alone takes several times as long as the whole compile of such a graph
is out of proportion; so is one that grows much faster than the graph and takes most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductoscope.profiling.compile_time.compile_cost import NOT_COUNTED, CompileCost, between
from inductoscope.profiling.compile_time.growth import StageGrowth, growth_of
from inductoscope.vocabulary import stages

# How often as long as a whole plain compile a single stage must take; healthy ones take about half
# of it. A native compiler's time depends more on what is in a kernel: one product of matrices takes
# it several times as long as pointwise operations.
TIMES_PLAIN, _TIMES_NATIVE = 2.0, 6.0
# An exponent that is certainly above this is no longer close to linear.
_STEEP = 1.5
# A stage that grows steeply matters once it takes most of the time, and as long as a plain compile.
_MOST = 0.5


@dataclass(frozen=True)
class Explosion:
    """A stage whose compile time is out of proportion."""

    stage: str
    nodes: int
    seconds: float
    # The whole compile of a plain graph of as many nodes, native compiler included.
    plain_seconds: float
    growth: StageGrowth | None = None
    # Whether it was ended before it was done.
    is_at_least: bool = False
    # Whether it waits for something rather than computes.
    waits: bool = False

    @property
    def times(self) -> float:
        """How often as long as the plain compile."""
        return self.seconds / max(self.plain_seconds, 1e-3)


def certain_explosion(
    costs: Sequence[CompileCost], plain: Sequence[CompileCost]
) -> Explosion | None:
    """An explosion that a busy machine does not explain.

    Both seconds and those without waiting for a processor have to show it.
    """
    found = explosion_of(costs, plain)
    if found is None:
        return None
    undelayed = [cost.on_idle_machine for cost in costs]
    again = explosion_of(undelayed, [cost.on_idle_machine for cost in plain], found.stage)
    largest = _largest(costs)
    return replace(found, waits=largest.waits_in(found.stage)) if again is not None else None


def explosion_of(
    costs: Sequence[CompileCost], plain: Sequence[CompileCost], stage: str = ""
) -> Explosion | None:
    """The explosion that growing parts of a graph show; None if compile time is in proportion."""
    if not costs or not plain:
        return None
    largest = _largest(costs)
    stage = stage or largest.ended_in or largest.slowest_stage
    if not stage or stage in NOT_COUNTED:
        return None
    found = against_plain(largest, plain, stage)
    finished = [cost for cost in costs if not cost.ended_in]
    growth = growth_of(stage, finished, _least(plain, stage))
    growth = growth if growth is not None and growth.is_known else None
    found = Explosion(
        stage, found.nodes, found.seconds, found.plain_seconds, growth, found.is_at_least
    )
    is_steep = _is_steep(growth) and _takes_most(found, largest)
    return found if is_steep or is_out_of_proportion(found) else None


def _largest(costs: Sequence[CompileCost]) -> CompileCost:
    """The largest graph; one whose compile was ended was the last, so the largest."""
    return max(costs, key=lambda cost: (bool(cost.ended_in), cost.nodes, cost.python_seconds))


def is_out_of_proportion(found: Explosion) -> bool:
    """Whether a stage takes so long, beside a plain compile, that something is wrong."""
    is_native = found.stage in stages.NATIVE_COMPILES
    return found.times >= (_TIMES_NATIVE if is_native else TIMES_PLAIN)


def against_plain(cost: CompileCost, plain: Sequence[CompileCost], stage: str) -> Explosion:
    """A stage of one compile beside the whole compile of as many plain nodes."""
    python, native = between(plain, cost.nodes, stage)
    # A native compiler is only compared with itself: how fast Python is says nothing about it.
    whole = native if stage in stages.NATIVE_COMPILES else python + native
    return Explosion(
        stage, cost.nodes, cost.seconds_of(stage), whole, is_at_least=bool(cost.ended_in)
    )


def _least(plain: Sequence[CompileCost], stage: str) -> float:
    """What the stage costs for next to nothing, unless that is out of proportion, too."""
    small = min(plain, key=lambda cost: cost.nodes)
    others = [seconds for name, seconds in small.in_python.items() if name != stage]
    return min(small.seconds_of(stage), max(others, default=0.0))


def _is_steep(growth: StageGrowth | None) -> bool:
    return growth is not None and growth.low > _STEEP


def _takes_most(found: Explosion, cost: CompileCost) -> bool:
    is_native = found.stage in stages.NATIVE_COMPILES
    whole = found.seconds if is_native else cost.python_seconds
    return found.times >= 1 and found.seconds >= _MOST * whole
