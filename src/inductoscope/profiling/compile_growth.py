"""Detection of exploding compile time: by its growth, or against plain graphs, never in seconds.

The slope of a line through the logarithms of sizes and seconds is the exponent: 1 is linear, 2
quadratic. The fixed cost of even the smallest graph is subtracted first, because it would hide
growth in small graphs. The confidence interval is that of the slope, at 95 %, by Student's t.

Plain graphs consist of as many pointwise operations, compiled by the same torch on the same machine
a moment before. A stage that alone takes several times as long as the whole compile of such a graph
is out of proportion; so is one that grows much faster than the graph and takes most of the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.model.entities import Compile, Recording
from inductoscope.torch_facts import stages

# Stages whose cost depends on settings or on another program, not on the graph's size.
NOT_COUNTED = (stages.AUTOTUNE, stages.BENCHMARK, stages.RUNTIME)
# Stages that are not torch's own Python code.
NOT_PYTHON = (*NOT_COUNTED, *stages.NATIVE_COMPILES)
# A stage that takes this many times as long as all others, even for plain graphs, is unusual.
_UNUSUAL = 3.0
# Graphs whose sizes differ by less than this factor count as equal in size.
_ALIKE = 1.2


@dataclass(frozen=True)
class PartCost:
    name: str
    seconds: float


@dataclass(frozen=True)
class CompileCost:
    """One compile of a graph from scratch."""

    # Number of lowered operations.
    nodes: int
    # Seconds in each stage, without inner stages.
    stages: Mapping[str, float] = field(default_factory=dict)
    # Seconds of the longest call of a native compiler: calls run in parallel.
    native: float = 0.0
    passes: tuple[PartCost, ...] = ()
    lowered: tuple[PartCost, ...] = ()
    # The stage in which the compile was killed, if it took too long.
    ended_in: str = ""
    # Seconds by stage without the time that it waited for a processor; for native compilers, of
    # the longest call. Empty if unknown.
    undelayed: Mapping[str, float] = field(default_factory=dict)

    @property
    def on_idle_machine(self) -> CompileCost:
        """The same compile without the time that it waited for a processor."""
        if not self.undelayed:
            return self
        native = self.undelayed.get(stages.CPP_COMPILE, self.native) if self.native else 0.0
        return replace(self, stages=self.undelayed, native=native)

    @property
    def in_python(self) -> dict[str, float]:
        return {name: seconds for name, seconds in self.stages.items() if name not in NOT_PYTHON}

    @property
    def python_seconds(self) -> float:
        return sum(self.in_python.values())

    def seconds_of(self, stage: str) -> float:
        """Return the seconds of a stage; for native compilers, of the longest single call."""
        if stage in stages.NATIVE_COMPILES:
            return self.native
        return self.stages.get(stage, 0.0)

    @property
    def slowest_stage(self) -> str:
        native = {stages.CPP_COMPILE: self.native} if self.native else {}
        every = {**self.in_python, **native}
        return max(every, key=lambda name: every[name], default="")


def between(costs: Sequence[CompileCost], nodes: int, stage: str = "") -> tuple[float, float]:
    """Return the expected seconds of `nodes` nodes in torch's own code and the native compiler.

    They lie on a straight line through the smallest and the largest measured graph, but are never
    less than those of a measured graph that is no larger. Of several measurements of a graph, the
    slowest counts. `stage` is the one being judged: where it is slow even for these plain graphs,
    it counts only as much as the slowest of the others.
    """
    small = min(costs, key=lambda cost: (cost.nodes, -_usual_seconds(cost, stage)))
    large = max(costs, key=lambda cost: (cost.nodes, _usual_seconds(cost, stage)))
    share = (nodes - small.nodes) / (large.nodes - small.nodes) if large.nodes > small.nodes else 0
    least, most = _usual_seconds(small, stage), _usual_seconds(large, stage)
    python = least + share * (most - least)
    native = small.native + share * (large.native - small.native)
    others = [cost for cost in costs if cost.nodes <= _ALIKE * nodes] or [small]
    return (
        max(python, *(_usual_seconds(cost, stage) for cost in others)),
        max(native, *(cost.native for cost in others)),
    )


def _usual_seconds(cost: CompileCost, stage: str) -> float:
    others = [seconds for name, seconds in cost.in_python.items() if name != stage]
    own = cost.in_python.get(stage, 0.0)
    is_usual = own <= _UNUSUAL * sum(others)
    return sum(others) + (own if is_usual else max(others, default=0.0))


def quickest_of(one: CompileCost, other: CompileCost) -> CompileCost:
    """Combine two compiles of the same graph into the best times; if one was killed, use the other.

    If both were killed, the compile takes at least as long as the shorter of the two.
    """
    if bool(one.ended_in) != bool(other.ended_in):
        return other if one.ended_in else one

    def both(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
        return {name: min(a.get(name, 0.0), b.get(name, 0.0)) for name in {**a, **b}}

    return replace(
        one,
        nodes=max(one.nodes, other.nodes),
        stages=both(one.stages, other.stages),
        native=min(one.native, other.native),
        undelayed=both(one.undelayed, other.undelayed),
    )


# --- how a stage grows ----------------------------------------------------------------------------

# Student's t for an interval of 95 %, by degrees of freedom.
_STUDENT = (math.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)
_FEWEST = 3
# Seconds below this are indistinguishable from timer and scheduler noise.
_NOISE = 0.004
# Growth needs sizes that differ by at least this factor.
_APART = 1.2


@dataclass(frozen=True)
class Point:
    nodes: int
    seconds: float


@dataclass(frozen=True)
class StageGrowth:
    stage: str
    exponent: float
    low: float
    high: float
    points: tuple[Point, ...]

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def is_known(self) -> bool:
        """Whether the interval is narrow enough to tell linear from quadratic."""
        return self.half_width < 0.5


def growth_of(stage: str, costs: Sequence[CompileCost], least: float = 0.0) -> StageGrowth | None:
    """Fit the growth of a stage over these compiles; None if there are too few data.

    `least` is the fixed cost of the stage, in seconds.
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
    if not costs:
        return []
    largest = max(costs, key=lambda cost: cost.nodes)
    names = [*largest.in_python, stages.CPP_COMPILE]
    names.sort(key=lambda name: -largest.seconds_of(name))
    found = [growth_of(n, costs, least.seconds_of(n) if least else 0.0) for n in names]
    return [growth for growth in found if growth is not None]


def _slope(across: Sequence[float], up: Sequence[float]) -> tuple[float, float]:
    slope, start = statistics.linear_regression(across, up)
    off = sum((y - start - slope * x) ** 2 for x, y in zip(across, up, strict=True))
    return slope, math.sqrt(off / (len(across) - 2) / len(across)) / statistics.pstdev(across)


# --- detection of an explosion --------------------------------------------------------------------

# The least time of an exploding stage, as a multiple of a whole plain compile; healthy stages take
# about half of one. A native compiler's time varies more with the kernel: one matrix product takes
# several times as long as pointwise operations.
TIMES_PLAIN, _TIMES_NATIVE = 2.0, 6.0
# An exponent whose confidence interval lies above this is no longer close to linear.
_STEEP = 1.5
# A steep stage matters once it takes this share of the time, and as long as a plain compile.
_MOST = 0.5


@dataclass(frozen=True)
class Explosion:
    stage: str
    nodes: int
    seconds: float
    # Seconds of the whole compile of a plain graph of as many nodes, with the native compiler.
    plain_seconds: float
    growth: StageGrowth | None = None
    # Whether the compile was killed before it finished.
    is_at_least: bool = False

    @property
    def times(self) -> float:
        return self.seconds / max(self.plain_seconds, 1e-3)


def certain_explosion(
    costs: Sequence[CompileCost], plain: Sequence[CompileCost]
) -> Explosion | None:
    """Return an explosion that a busy machine does not explain; None if there is none.

    It must show both in elapsed seconds and in seconds without waiting for a processor.
    """
    found = explosion_of(costs, plain)
    if found is None:
        return None
    idle, plain_idle = ([cost.on_idle_machine for cost in some] for some in (costs, plain))
    return found if explosion_of(idle, plain_idle, found.stage) is not None else None


def explosion_of(
    costs: Sequence[CompileCost], plain: Sequence[CompileCost], stage: str = ""
) -> Explosion | None:
    """Return the explosion shown by growing parts of a graph; None if time is in proportion."""
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
    is_steep = growth is not None and growth.low > _STEEP and _takes_most(found, largest)
    return replace(found, growth=growth) if is_steep or is_out_of_proportion(found) else None


def _largest(costs: Sequence[CompileCost]) -> CompileCost:
    """Return the largest graph; a graph whose compile was killed was the last and largest."""
    return max(costs, key=lambda cost: (bool(cost.ended_in), cost.nodes, cost.python_seconds))


def is_out_of_proportion(found: Explosion) -> bool:
    is_native = found.stage in stages.NATIVE_COMPILES
    return found.times >= (_TIMES_NATIVE if is_native else TIMES_PLAIN)


def against_plain(cost: CompileCost, plain: Sequence[CompileCost], stage: str) -> Explosion:
    python, native = between(plain, cost.nodes, stage)
    # A native compiler is only compared with itself: the speed of Python is irrelevant to it.
    whole = native if stage in stages.NATIVE_COMPILES else python + native
    return Explosion(
        stage, cost.nodes, cost.seconds_of(stage), whole, is_at_least=bool(cost.ended_in)
    )


def _least(plain: Sequence[CompileCost], stage: str) -> float:
    """Return the fixed cost of a stage in seconds, capped if that is out of proportion, too."""
    small = min(plain, key=lambda cost: cost.nodes)
    others = [seconds for name, seconds in small.in_python.items() if name != stage]
    return min(small.seconds_of(stage), max(others, default=0.0))


def _takes_most(found: Explosion, cost: CompileCost) -> bool:
    is_native = found.stage in stages.NATIVE_COMPILES
    whole = found.seconds if is_native else cost.python_seconds
    return found.times >= 1 and found.seconds >= _MOST * whole


# --- suspicious compiles --------------------------------------------------------------------------

# Only events that are recorded anyway are read. The yardstick is the import of torch: Python code
# that every run executes on the same machine, just before. This decides nothing by itself.

# The first compile of a process loads the compiler, which takes about as long as two imports. After
# that, 30 to 100 nodes take as long as one import, depending on the operations.
_TO_BEGIN, _PER_NODE = 4.0, 0.03
# A stage that takes this many times as long as all others together stands out, in any graph.
_STANDS_OUT = 2.0
# A native compiler takes about as long for one kernel as torch takes to be imported.
_NATIVE = 4.0


@dataclass(frozen=True)
class SlowCompile:
    compile: str
    stage: str
    seconds: float
    nodes: int
    # The whole compile.
    of: float
    place: str = ""


def slow_compiles(recording: Recording) -> list[SlowCompile]:
    unit = _import_seconds(recording)
    if unit <= 0:
        return []
    found = [_suspected(recording, compile_, unit) for compile_ in recording.compiles]
    return sorted(filter(None, found), key=lambda each: -each.seconds)


def _suspected(recording: Recording, compile_: Compile, unit: float) -> SlowCompile | None:
    nodes = sum(len(graph.lowered) for graph in compile_.inductor)
    spent = {k: s for k, s in compile_.stage_seconds.items() if k not in NOT_PYTHON}
    if spent and nodes:
        stage = max(spent, key=lambda name: spent[name])
        most, total = spent[stage], sum(spent.values())
        stands_out = most > _STANDS_OUT * max(total - most, unit)
        if stands_out or total > unit * (_TO_BEGIN + _PER_NODE * nodes):
            return SlowCompile(compile_.id, stage, most, nodes, compile_.seconds, compile_.place)
    native = _slowest_native(recording, compile_)
    if native > _NATIVE * unit:
        return SlowCompile(
            compile_.id, stages.CPP_COMPILE, native, nodes, compile_.seconds, compile_.place
        )
    return None


def seconds_in(recording: Recording, compile_: Compile, stage: str) -> float:
    """Return a compile's seconds in one stage; for native compilers, of the longest call."""
    if stage in stages.NATIVE_COMPILES:
        return _slowest_native(recording, compile_)
    return compile_.stage_seconds.get(stage, 0.0)


def _slowest_native(recording: Recording, compile_: Compile) -> float:
    """Return the seconds of the slowest C++ library that this compile requested."""
    wanted = set(compile_.libraries)
    seconds = [n.seconds or 0.0 for n in recording.natives if n.payload and n.payload in wanted]
    return max(seconds, default=0.0)


def _import_seconds(recording: Recording) -> float:
    """Return the seconds of the quickest import of torch in the run; 0 if not recorded."""
    found = [float(process.torch.get("seconds") or 0.0) for process in recording.processes]
    return min(filter(None, found), default=0.0)


@dataclass(frozen=True)
class MeasuredGrowth:
    compile: str
    # The way in which copies of the graph are joined.
    joined: str
    costs: tuple[CompileCost, ...] = ()
    # The fixed cost of each stage.
    least: CompileCost | None = None
    # Why growth could not be measured; empty if it was.
    error: str = ""

    @property
    def stages(self) -> list[StageGrowth]:
        finished = [cost for cost in self.costs if not cost.ended_in]
        return growth_of_all(finished, self.least)
