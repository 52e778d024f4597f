"""What one compile of a graph cost, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.vocabulary import stages

# What these cost depends on what was asked for, or on another program, not on the graph's size.
_NOT_COUNTED = (stages.AUTOTUNE, stages.BENCHMARK, stages.RUNTIME)


@dataclass(frozen=True)
class PartCost:
    """A part of a stage, such as a pass or a node, and what it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class CompileCost:
    """One compile of a graph from scratch."""

    # Operations that were lowered.
    nodes: int
    # Seconds in each stage and in no inner one.
    stages: Mapping[str, float] = field(default_factory=dict)
    # Seconds of each call of a native compiler.
    natives: tuple[float, ...] = ()
    passes: tuple[PartCost, ...] = ()
    lowered: tuple[PartCost, ...] = ()
    # The stage in which it was ended, if it took too long.
    ended_in: str = ""

    @property
    def in_python(self) -> dict[str, float]:
        """The stages that torch's own code makes up."""
        left_out = (*_NOT_COUNTED, *stages.NATIVE_COMPILES)
        return {name: seconds for name, seconds in self.stages.items() if name not in left_out}

    @property
    def python_seconds(self) -> float:
        """Seconds in torch's own code."""
        return sum(self.in_python.values())

    @property
    def slowest_native(self) -> float:
        """Seconds of the longest call of a native compiler: others run beside it."""
        return max(self.natives, default=0.0)

    def seconds_of(self, stage: str) -> float:
        """Seconds of a stage; of native compilers, the longest single call."""
        if stage in stages.NATIVE_COMPILES:
            return self.slowest_native
        return self.stages.get(stage, 0.0)

    @property
    def slowest_stage(self) -> str:
        """The stage that took longest."""
        native = {stages.CPP_COMPILE: self.slowest_native} if self.natives else {}
        every = {**self.in_python, **native}
        return max(every, key=lambda name: every[name], default="")


def between(costs: Sequence[CompileCost], nodes: int, stage: str = "") -> tuple[float, float]:
    """Seconds in torch's own code and in the native compiler that so many nodes would cost.

    A straight line through the smallest and the largest graph that was measured; never less than
    the smallest one took. `stage` is the one that is judged: where it is slow for every graph, even
    for these, it counts only as much as the slowest of the others.
    """
    small, large = min(costs, key=lambda c: c.nodes), max(costs, key=lambda c: c.nodes)
    share = (nodes - small.nodes) / (large.nodes - small.nodes) if large.nodes > small.nodes else 0
    least, most = _usual_seconds(small, stage), _usual_seconds(large, stage)
    python = least + share * (most - least)
    native = small.slowest_native + share * (large.slowest_native - small.slowest_native)
    return max(python, least), max(native, small.slowest_native)


def _usual_seconds(cost: CompileCost, stage: str) -> float:
    others = [seconds for name, seconds in cost.in_python.items() if name != stage]
    return sum(others) + min(cost.in_python.get(stage, 0.0), max(others, default=0.0))
