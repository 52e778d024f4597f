"""What one compile of a graph cost, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.vocabulary import stages

# What these cost depends on what was asked for, or on another program, not on the graph's size.
NOT_COUNTED = (stages.AUTOTUNE, stages.BENCHMARK, stages.RUNTIME)
# A stage that takes so many times as long as all others, even for plain graphs, is not usual.
_UNUSUAL = 3.0
# Graphs whose sizes differ by less are of one size.
_ALIKE = 1.2
# What takes so many times as long as it computes waits for something.
_WAITS = 3.0


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
    # By stage: its seconds without those in which it waited for a processor, and those that it
    # computed. Of native compilers, those of the longest call. Empty where that is not known.
    undelayed: Mapping[str, float] = field(default_factory=dict)
    computing: Mapping[str, float] = field(default_factory=dict)

    @property
    def on_idle_machine(self) -> CompileCost:
        """What the same compile costs where it never has to wait for a processor."""
        if not self.undelayed:
            return self
        native = self.undelayed.get(stages.CPP_COMPILE, self.slowest_native)
        return replace(self, stages=self.undelayed, natives=(native,) if self.natives else ())

    def waits_in(self, stage: str) -> bool:
        """Whether a stage waits for something rather than computes; not for a processor."""
        name = stages.CPP_COMPILE if stage in stages.NATIVE_COMPILES else stage
        if name not in self.undelayed:
            return False
        return self.undelayed[name] > _WAITS * self.computing.get(name, 0.0)

    @property
    def in_python(self) -> dict[str, float]:
        """The stages that torch's own code makes up."""
        left_out = (*NOT_COUNTED, *stages.NATIVE_COMPILES)
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
    a graph took that is no larger. Of graphs that were measured several times, the slowest counts.
    `stage` is the one that is judged: where it is slow for every graph, even for these, it counts
    only as much as the slowest of the others. So this is what to expect.
    """
    small = min(costs, key=lambda cost: (cost.nodes, -_usual_seconds(cost, stage)))
    large = max(costs, key=lambda cost: (cost.nodes, _usual_seconds(cost, stage)))
    share = (nodes - small.nodes) / (large.nodes - small.nodes) if large.nodes > small.nodes else 0
    least, most = _usual_seconds(small, stage), _usual_seconds(large, stage)
    python = least + share * (most - least)
    native = small.slowest_native + share * (large.slowest_native - small.slowest_native)
    others = [cost for cost in costs if cost.nodes <= _ALIKE * nodes] or [small]
    return (
        max(python, *(_usual_seconds(cost, stage) for cost in others)),
        max(native, *(cost.slowest_native for cost in others)),
    )


def _usual_seconds(cost: CompileCost, stage: str) -> float:
    others = [seconds for name, seconds in cost.in_python.items() if name != stage]
    own = cost.in_python.get(stage, 0.0)
    is_usual = own <= _UNUSUAL * sum(others)
    return sum(others) + (own if is_usual else max(others, default=0.0))


def quickest_of(one: CompileCost, other: CompileCost) -> CompileCost:
    """The best of two compiles of the same graph; of one that was ended, only the other is known.

    Two that were both ended took at least as long as the shorter of them.
    """
    if bool(one.ended_in) != bool(other.ended_in):
        return other if one.ended_in else one

    def both(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
        return {name: min(a.get(name, 0.0), b.get(name, 0.0)) for name in {**a, **b}}

    return replace(
        one,
        nodes=max(one.nodes, other.nodes),
        stages=both(one.stages, other.stages),
        natives=(min(one.slowest_native, other.slowest_native),) if one.natives else (),
        undelayed=both(one.undelayed, other.undelayed),
        computing=both(one.computing, other.computing),
    )
