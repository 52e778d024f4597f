"""Bounds of memory accesses: index ranges, positions in buffers, and a verdict per access.

For given sizes, the extremes of an index are computed. An index is a sum, so terms and conditions
that share no variable are evaluated separately: a few hundred points mostly suffice for loops with
millions of iterations.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from inductoscope.analysis.bounds.proof import (
    OPEN,
    Context,
    Ends,
    Polynomial,
    Prover,
    difference,
    polynomial,
    written,
)
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import Broken, DataDependent, OutOfReach, Proven, Verdict
from inductoscope.model.memory import GraphMemory, Room
from inductoscope.model.schedule import IndirectIndex
from inductoscope.torch_facts.index_expressions import (
    FAILURES,
    ZERO,
    Applied,
    Expression,
    Loaded,
    Name,
    NotUnderstood,
    NoValue,
    Number,
    add,
    holds,
    minus,
    names_in,
    replaced,
    span,
    value_of,
    valued,
)
from inductoscope.torch_facts.loop_bodies import IndexFromValue, LoopBody, MemoryAccess

Point = Mapping[str, int]


NO_TIME = "not looked at: the time for the proofs was used up"
# Reading the clock takes as long as computing a point.
_BETWEEN_LOOKS = 256


class GivenUp(Exception):
    """The points or the time of the budget do not suffice; the text says which."""


# What judging may raise, also where a recording is damaged.
UNJUDGED = (GivenUp, NotUnderstood, NoValue, *FAILURES)


def out_of_reach(why: Exception) -> OutOfReach:
    """Return the verdict where an exception ended the judging."""
    if isinstance(why, GivenUp):
        return OutOfReach(str(why))
    if isinstance(why, NoValue):
        return OutOfReach("no proof was found, and the index has no exact value")
    said = why if isinstance(why, NotUnderstood) else type(why).__name__
    return OutOfReach(f"not understood: {said}")


@dataclass
class PointBudget:
    """The number of points that may still be computed, and a time.monotonic deadline."""

    points: int
    until: float = math.inf

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.until

    def spend(self, points: int, most: int = 1 << 16) -> None:
        """Take points from the budget; raise if they are too many or the deadline has passed."""
        if points > min(self.points, most):
            raise GivenUp("no proof was found, and there are too many points to compute")
        if self.is_late:
            raise GivenUp(NO_TIME)
        self.points -= points


@dataclass(frozen=True)
class Extremes:
    """The smallest and the largest value, and a point at which each occurs."""

    low: int
    high: int
    lowest: Point
    highest: Point


def extremes(
    index: Expression,
    conditions: Sequence[Expression],
    lengths: Mapping[str, int],
    sizes: Point,
    budget: PointBudget,
) -> Extremes | None:
    """Compute the extremes over all points that no condition excludes; None if there are none.

    `lengths` has the length of each loop. Raises GivenUp, and NoValue if the index is data.
    """
    if any(length <= 0 for length in lengths.values()):
        return None
    terms = _terms(index)
    found = Extremes(0, 0, {}, {})
    # The last group has the terms that depend on sizes alone.
    for names in (*_groups([*terms, *conditions], lengths), frozenset[str]()):
        group = _VariableGroup(
            names,
            [term for term in terms if _belongs(_loops(term, lengths), names)],
            [condition for condition in conditions if _belongs(_loops(condition, lengths), names)],
        )
        part = _extremes_of(group, lengths, sizes, budget)
        if part is None:
            return None
        found = _joined(found, part)
    return found


@dataclass(frozen=True)
class _VariableGroup:
    names: frozenset[str]
    terms: list[Expression]
    conditions: list[Expression]


def _belongs(loops: frozenset[str], names: frozenset[str]) -> bool:
    return loops <= names and bool(loops) is bool(names)


def _loops(expression: Expression, lengths: Mapping[str, int]) -> frozenset[str]:
    return names_in(expression) & lengths.keys()


def _terms(index: Expression) -> list[Expression]:
    try:
        found = polynomial(index).terms
    except NotUnderstood:
        return [index]
    return [written(Polynomial({monomial: value})) for monomial, value in found.items()]


def _groups(expressions: Sequence[Expression], lengths: Mapping[str, int]) -> list[frozenset[str]]:
    """Partition the loop variables: variables that share an expression share a group."""
    groups: list[frozenset[str]] = []
    for expression in expressions:
        joined = _loops(expression, lengths)
        if joined:
            apart = [group for group in groups if group.isdisjoint(joined)]
            together = [group for group in groups if not group.isdisjoint(joined)]
            groups = [*apart, joined.union(*together)]
    return groups


def _extremes_of(
    group: _VariableGroup, lengths: Mapping[str, int], sizes: Point, budget: PointBudget
) -> Extremes | None:
    low = high = None
    value_at = valued(add(*group.terms))
    for point in _points(group, lengths, budget):
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


def _points(
    group: _VariableGroup, lengths: Mapping[str, int], budget: PointBudget
) -> Iterator[dict[str, int]]:
    names = sorted(group.names)
    if len(names) == 1 and not group.conditions and _is_linear(group):
        # A linear function has its extremes at the ends.
        yield from ({names[0]: 0}, {names[0]: lengths[names[0]] - 1})
        return
    budget.spend(math.prod(lengths[name] for name in names) or 1)
    every = itertools.product(*(range(lengths[name]) for name in names))
    for count, places in enumerate(every):
        if count % _BETWEEN_LOOKS == 0 and budget.is_late:
            raise GivenUp(NO_TIME)
        yield dict(zip(names, places, strict=True))


def _joined(one: Extremes, other: Extremes) -> Extremes:
    return Extremes(
        one.low + other.low,
        one.high + other.high,
        {**one.lowest, **other.lowest},
        {**one.highest, **other.highest},
    )


# --- The positions that a buffer has, as expressions of sizes -------------------------------------

_MOST_NAMES = 16


@dataclass(frozen=True)
class Positions:
    """The half-open range from `first` to `end`; empty if one of `lengths` is zero."""

    first: Expression
    end: Expression
    lengths: tuple[Expression, ...]
    # The owner of the positions, for use in a sentence.
    what: str

    @property
    def names(self) -> frozenset[str]:
        """The sizes that the positions depend on."""
        return frozenset().union(*map(names_in, (self.first, self.end, *self.lengths)))

    def at(self, sizes: Point) -> tuple[int, int]:
        first = value_of(self.first, sizes)
        if any(value_of(length, sizes) == 0 for length in self.lengths):
            return first, first
        return first, value_of(self.end, sizes)


def positions(name: str, sizes: AdmittedSizes) -> Iterator[Positions]:
    """Yield the valid positions of a buffer: of the tensor, then of the memory that it views."""
    room = owner(name, sizes.memory)
    if room is None:
        raise NotUnderstood(f"the size of {name} is not in the recording")
    lengths = tuple(sizes.read(text) for text in room.size)
    strides = tuple(sizes.read(text) for text in room.stride)
    if len(lengths) != len(strides):
        raise NotUnderstood(f"the layout of {name}")
    yield Positions(ZERO, span(lengths, strides), lengths, "the tensor")
    if room.is_input and room.bytes and room.itemsize:
        before = sizes.read(room.before)
        whole = Applied("floordiv", (sizes.read(room.bytes), Number(room.itemsize)))
        around = "the memory that the input is a view of"
        yield Positions(minus(before), add(whole, minus(before)), (), around)


def widest_at(rooms: Sequence[Positions], sizes: Point) -> tuple[int, int]:
    """Return the first and end of all addressable positions for given sizes.

    Memory that is smaller than its tensor was not measured at these sizes, or is not allocated yet:
    then only the tensor counts.
    """
    first, end = rooms[0].at(sizes)
    for room in rooms[1:]:
        other_first, other_end = room.at(sizes)
        if other_first <= first and end <= other_end:
            first, end = other_first, other_end
    return first, end


def owner(name: str, memory: GraphMemory) -> Room | None:
    """Return the room of a buffer, or of the buffer that it aliases; None if unknown."""
    for _ in range(_MOST_NAMES):
        room = memory.rooms.get(name)
        if room is None or not room.same_as:
            return room
        name = room.same_as
    return None


# --- The range of an index that is computed from values: clamped, rounded, or chosen --------------
#
# A kernel may turn any value into an index. Where the value is a minimum, or comes from loop
# variables by way of floating-point numbers, its range is known although its value is not.

# Exceeds the sum of all float32 rounding errors on the way to an index.
_SLACK = 2.0**-18


@lru_cache(maxsize=1 << 14)
def is_exact(value: Expression) -> bool:
    """Check whether a value is an integer determined by loop variables and sizes."""
    if isinstance(value, Loaded):
        return False
    if isinstance(value, Number):
        return isinstance(value.value, int)
    if isinstance(value, Applied):
        return value.operation not in ("rounded", *_ROUNDING) and all(map(is_exact, value.operands))
    return True


def ends_of(value: Expression, lengths: Mapping[str, int]) -> Ends:
    """Return bounds of a value. `lengths` has the loops of known length."""
    if is_exact(value):
        return Ends(value, value)
    if not isinstance(value, Applied):
        return OPEN
    if value.operation in _ROUNDING:
        return _rounded(value, lengths)
    operands = [ends_of(operand, lengths) for operand in value.operands]
    if value.operation == "rounded":
        return operands[0]
    if value.operation not in ("min", "max", "where"):
        return OPEN
    chosen = operands[1:] if value.operation == "where" else operands
    # One known upper bound of an operand bounds a minimum; its lower bound needs those of all.
    is_min, is_max = value.operation == "min", value.operation == "max"
    return Ends(
        _clamp("max" if is_max else "min", [end.low for end in chosen], needs_all=not is_max),
        _clamp("min" if is_min else "max", [end.high for end in chosen], needs_all=not is_min),
    )


def _clamp(operation: str, ends: list[Expression | None], *, needs_all: bool) -> Expression | None:
    known = tuple(end for end in ends if end is not None)
    is_enough = len(known) == len(ends) if needs_all else bool(known)
    return Applied(operation, known) if is_enough else None


# --- numbers with a fraction ----------------------------------------------------------------------

Numeric = tuple[float, float]


_ROUNDING: dict[str, Callable[[float], int]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
}


def _rounded(value: Applied, lengths: Mapping[str, int]) -> Ends:
    inner = _numeric(value.operands[0], lengths)
    if inner is None:
        # Rounding preserves a clamp to integers.
        clamped = ends_of(value.operands[0], lengths)
        known = (end for end in (clamped.low, clamped.high) if end is not None)
        return clamped if all(map(is_exact, known)) else OPEN
    low, high = inner
    slack = _SLACK * max(1.0, abs(low), abs(high))
    function = _ROUNDING[value.operation]
    # Rounding never makes a nonnegative value negative.
    below = max(low - slack, 0.0) if low >= 0 else low - slack
    return Ends(Number(function(below)), Number(function(high + slack)))


def _numeric(value: Expression, lengths: Mapping[str, int]) -> Numeric | None:
    if isinstance(value, Number):
        return (float(value.value), float(value.value))
    if isinstance(value, Name):
        length = lengths.get(value.name)
        return None if length is None or length < 1 else (0.0, float(length - 1))
    if not isinstance(value, Applied):
        return None
    found = [_numeric(operand, lengths) for operand in value.operands]
    operands = [item for item in found if item is not None]
    if len(operands) < len(found):
        return None
    if value.operation in ("rounded", "float"):
        return operands[0]
    lows, highs = zip(*operands, strict=True)
    if value.operation in ("min", "max"):
        choose = min if value.operation == "min" else max
        return choose(lows), choose(highs)
    if value.operation == "add":
        return sum(lows), sum(highs)
    if value.operation == "mul":
        return functools.reduce(_product, operands)
    return None


def _product(one: Numeric, other: Numeric) -> Numeric:
    corners = [left * right for left in one for right in other]
    return min(corners), max(corners)


# --- Whether a memory access stays inside its buffer: proven, broken, data, or out of reach -------

BY_RANGES = "for all sizes, from the ranges of its parts"
BY_POINTS = "every point was computed"


@dataclass(frozen=True)
class _DataIndex:
    """An index variable whose value is known only at run time."""

    name: str
    source: IndexFromValue
    # The bounds that follow from its computation.
    ends: Ends
    # Whether the kernel asserts that it is below `size`; None where that was not recorded.
    is_checked: bool | None
    size: Expression

    @property
    def is_bounded(self) -> bool:
        """Whether the computation itself bounds the index on both sides."""
        return self.ends.low is not None and self.ends.high is not None

    @property
    def range(self) -> Ends:
        """The bounds of the index where the access is made."""
        if self.is_checked and not self.is_bounded:
            return Ends(ZERO, add(self.size, Number(-1)))
        return self.ends


@dataclass
class BodyJudge:
    body: LoopBody
    sizes: AdmittedSizes
    indirect: Mapping[str, IndirectIndex]
    budget: PointBudget
    # Shared by the loop bodies of one graph.
    known: dict[object, Verdict] = field(default_factory=dict)
    _data: dict[str, _DataIndex] = field(default_factory=dict)
    _computed: dict[str, Expression] = field(default_factory=dict)
    _asserted: list[Expression] = field(default_factory=list)
    _provers: dict[tuple[Expression, ...], Prover] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for source in self.body.from_values:
            self._learn(source)

    def judge(self, access: MemoryAccess) -> Verdict:
        if self.budget.is_late:
            return OutOfReach(NO_TIME)
        if access.is_search:
            return DataDependent((access.buffer,), None, is_inside=False)
        try:
            return self._judge_once(self.prepared(access))
        except UNJUDGED as why:
            return out_of_reach(why)

    # --- what is known ----------------------------------------------------------------------------

    def _learn(self, source: IndexFromValue) -> None:
        """Record an index from a value: an expression if exact, else a name with a range."""
        how = self.indirect.get(source.line)
        if how is None:
            # Whether negative values count from the end was not recorded: any position is possible.
            name = source.variable
            self._data[name] = _DataIndex(name, source, OPEN, None, ZERO)
            return
        name, size = how.variable, self.sizes.read(how.size)
        value = self._resolved(source.value)
        if not is_exact(value):
            ends = _wrapped(ends_of(value, self._fixed_lengths), how)
            self._data[name] = _DataIndex(name, source, ends, how.is_checked, size)
            return
        if how.wraps:
            is_below = Applied("lt", (value, ZERO))
            value = Applied("where", (is_below, add(value, size), value))
        self._computed[name] = value
        if how.is_checked:
            self._asserted += [Applied("ge", (value, ZERO)), Applied("lt", (value, size))]

    def _resolved(self, expression: Expression) -> Expression:
        return self.sizes.resolved(replaced(expression, self._computed))

    @cached_property
    def lengths(self) -> dict[str, Expression]:
        return {name: self.sizes.resolved(size) for name, size in self.body.ranges.items()}

    @property
    def _fixed_lengths(self) -> dict[str, int]:
        return {
            name: size.value
            for name, size in self.lengths.items()
            if isinstance(size, Number) and isinstance(size.value, int)
        }

    @cached_property
    def _context(self) -> Context:
        loops = {name: Ends(ZERO, add(size, Number(-1))) for name, size in self.lengths.items()}
        data = {name: found.range for name, found in self._data.items()}
        spans = {**self.sizes.spans, **loops, **data}
        # The body runs only if no loop is empty.
        runs = [Applied("ge", (size, Number(1))) for size in self.lengths.values()]
        known = Context(spans, sizes=frozenset(self.sizes.spans))
        return known.assuming((*self.sizes.assumed, *runs))

    def prepared(self, access: MemoryAccess) -> MemoryAccess:
        """Rewrite an access in loop variables and sizes, under all conditions that apply to it."""
        conditions = (*access.conditions, *self._asserted)
        return replace(
            access,
            index=self._resolved(access.index),
            conditions=tuple(self._resolved(condition) for condition in conditions),
        )

    # --- judging ----------------------------------------------------------------------------------

    def _judge_once(self, access: MemoryAccess) -> Verdict:
        """Judge an access; reuse the verdict of an equal one, since layers of a model repeat."""
        room = self.sizes.memory.rooms.get(access.buffer)
        if self._data or room is None or room.same_as:
            return self._judge(access)
        key = (access.index, access.conditions, tuple(self.lengths.items()), room)
        if key not in self.known:
            self.known[key] = self._judge(access)
        return self.known[key]

    def _judge(self, access: MemoryAccess) -> Verdict:
        data = [found for name, found in self._data.items() if name in names_in(access.index)]
        free = [found for found in data if not found.is_bounded]
        if not all(found.is_checked for found in free):
            known = all(found.is_checked is not None for found in free)
            return DataDependent(_buffers(free), False if known else None, is_inside=False)
        rooms = list(positions(access.buffer, self.sizes))
        for room in rooms:
            if self._is_proven(access, room):
                if free:
                    return DataDependent(_buffers(free), True, is_inside=True)
                return Proven(BY_RANGES if room is rooms[0] else f"inside {room.what}")
        return self._computed_verdict(access, rooms, data, free)

    def _is_proven(self, access: MemoryAccess, room: Positions) -> bool:
        prover = self.prover(access.conditions)
        return (
            all(prover.never_negative(difference(n, Number(1))) for n in room.lengths)
            and prover.never_negative(difference(access.index, room.first))
            and prover.never_negative(difference(add(room.end, Number(-1)), access.index))
        )

    def prover(self, conditions: tuple[Expression, ...] = ()) -> Prover:
        """Return the prover for points that satisfy the conditions."""
        if conditions not in self._provers:
            self._provers[conditions] = Prover(
                self._context.assuming(conditions), self.budget.until
            )
        return self._provers[conditions]

    def _computed_verdict(
        self,
        access: MemoryAccess,
        rooms: list[Positions],
        data: list[_DataIndex],
        free: list[_DataIndex],
    ) -> Verdict:
        """Judge by computing the index at every point, for the sizes of the run and others."""
        names = self._names(access, rooms)
        unknown = self.sizes.unknown(names)
        if unknown:
            return OutOfReach(f"the range of {', '.join(unknown)} is not known")
        tried = 0
        for sizes in self.sizes.tried(names):
            if self.budget.is_late:
                raise GivenUp(NO_TIME)
            found = self._extremes(access, data, sizes)
            tried += 1
            if found is None:
                continue
            room = widest_at(rooms, sizes)
            for position, point in ((found.low, found.lowest), (found.high, found.highest)):
                if not room[0] <= position < room[1]:
                    return self._outside(access, data, sizes, position, point, room)
        if names:
            return OutOfReach("no proof was found for all sizes", sizes_tried=tried)
        return DataDependent(_buffers(free), True, is_inside=True) if free else Proven(BY_POINTS)

    def _names(self, access: MemoryAccess, rooms: list[Positions]) -> frozenset[str]:
        """Return the sizes that the access and its positions depend on."""
        parts = (access.index, *access.conditions, *self.lengths.values())
        named = (room.names for room in rooms)
        found = frozenset[str]().union(*named, *map(names_in, parts))
        return found - self.lengths.keys() - self._data.keys()

    def _extremes(
        self, access: MemoryAccess, data: list[_DataIndex], sizes: Point
    ) -> Extremes | None:
        lengths = {name: value_of(size, sizes) for name, size in self.lengths.items()}
        for found in data:
            lengths[found.name] = _places(found, sizes)
        return extremes(access.index, access.conditions, lengths, sizes, self.budget)

    def _outside(
        self,
        access: MemoryAccess,
        data: list[_DataIndex],
        sizes: Point,
        position: int,
        point: Point,
        room: tuple[int, int],
    ) -> Verdict:
        """Judge a point outside the buffer: broken only if the kernel certainly reaches it."""
        values = {**sizes, **dict.fromkeys(self.lengths, 0), **point}
        if any(holds(condition, values) is not True for condition in access.conditions):
            return OutOfReach("whether the access is made depends on data")
        if any(not self._is_free(found) for found in data):
            return OutOfReach("no proof was found, and a part of the index is computed")
        if self.sizes.has_unknown_guards or any(self.sizes.is_data(name) for name in sizes):
            return OutOfReach("no proof was found, and a guard or a size is not known beforehand")
        if value_of(access.index, values) != position:
            return OutOfReach("no proof was found")
        given = {f.source.buffers[0]: point[f.name] for f in data if f.name in point}
        loops = {name: place for name, place in values.items() if name in self.lengths}
        return Broken(sizes, loops, position, *room, given)

    def _is_free(self, found: _DataIndex) -> bool:
        """Check whether the user can set the index to any value that passes the check."""
        value = found.source.value
        if not isinstance(value, Loaded) or not value.is_plain:
            return False
        room = self.sizes.memory.rooms.get(found.source.buffers[0])
        return room is not None and room.is_input


def _wrapped(ends: Ends, how: IndirectIndex) -> Ends:
    """Drop the bounds of an index that may be negative: it counts from the end of the buffer."""
    is_positive = isinstance(ends.low, Number) and ends.low.value >= 0
    return ends if is_positive or not how.wraps else OPEN


def _places(found: _DataIndex, sizes: Point) -> int:
    """Return the number of values the index can take, counted from 0."""
    low, high = found.range.low, found.range.high
    if low is None or high is None or value_of(low, sizes) != 0:
        raise NoValue
    return value_of(high, sizes) + 1


def _buffers(data: list[_DataIndex]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(buffer for found in data for buffer in found.source.buffers))


def judge_parts(
    sizes: AdmittedSizes, budget: PointBudget
) -> Iterator[tuple[MemoryAccess, Verdict]]:
    """Judge the buffers that are part of another one, by the first and last position of each."""
    for name, room in sizes.memory.rooms.items():
        if not room.inside:
            continue
        try:
            own = next(positions(name, sizes))
            first = sizes.read(room.offset)
        except (NotUnderstood, *FAILURES):
            continue
        runs = tuple(Applied("ge", (length, Number(1))) for length in own.lengths)
        judge = BodyJudge(LoopBody({}, (), ()), sizes, {}, budget)
        for index in (first, add(first, own.end, Number(-1))):
            access = MemoryAccess("part", name, room.inside, index, runs)
            yield access, judge.judge(access)
