"""Whether a memory access stays inside its buffer: proven, broken, data, or out of reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from inductoscope.analysis.bounds.bodies import IndexFromValue, LoopBody, MemoryAccess
from inductoscope.analysis.bounds.computed import Ends, ends_of, is_exact
from inductoscope.analysis.bounds.context import Context, NameRange
from inductoscope.analysis.bounds.evaluation import NoValue, holds, value_of
from inductoscope.analysis.bounds.expressions import (
    FAILURES,
    ZERO,
    Applied,
    Expression,
    Loaded,
    NotUnderstood,
    Number,
    add,
    names_in,
    replaced,
)
from inductoscope.analysis.bounds.points import (
    NO_TIME,
    Extremes,
    OutOfTime,
    Point,
    Purse,
    TooManyPoints,
    extremes,
)
from inductoscope.analysis.bounds.polynomials import number, polynomial
from inductoscope.analysis.bounds.proof import Prover, difference
from inductoscope.analysis.bounds.rooms import Positions, is_input, positions, widest_at
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import (
    Broken,
    DataDependent,
    OutOfReach,
    Proven,
    Verdict,
)
from inductoscope.model.schedule import IndirectIndex

BY_RANGES = "for all sizes, from the ranges of its parts"
BY_POINTS = "every point was computed"


@dataclass(frozen=True)
class _DataIndex:
    """A part of an index that only a run knows."""

    name: str
    source: IndexFromValue
    # The range that its computation keeps it in.
    ends: Ends
    # Whether the kernel asserts that it is below `size`; None where that was not recorded.
    is_checked: bool | None
    size: Expression

    @property
    def is_bounded(self) -> bool:
        """Whether the computation itself keeps it in a range."""
        return self.ends.low is not None and self.ends.high is not None

    @property
    def range(self) -> Ends:
        """All values that it can have where the access is made."""
        if self.is_checked and not self.is_bounded:
            return Ends(ZERO, add(self.size, Number(-1)))
        return self.ends

    @property
    def span(self) -> NameRange:
        """The same as polynomials."""
        low, high = self.range.low, self.range.high
        return NameRange(
            None if low is None else polynomial(low), None if high is None else polynomial(high)
        )


@dataclass
class BodyJudge:
    """Judges the accesses of one loop body."""

    body: LoopBody
    sizes: AdmittedSizes
    indirect: Mapping[str, IndirectIndex]
    purse: Purse
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
        """What can be said of one access."""
        if self.purse.is_late:
            return OutOfReach(NO_TIME)
        if access.is_search:
            return DataDependent((access.buffer,), None, is_inside=False)
        try:
            return self._judge_once(self.prepared(access))
        except NotUnderstood as why:
            return OutOfReach(f"not understood: {why}")
        except TooManyPoints:
            return OutOfReach("no proof was found, and there are too many points to compute")
        except NoValue:
            return OutOfReach("no proof was found, and the index has no exact value")
        except OutOfTime as why:
            return OutOfReach(str(why))
        except FAILURES as error:
            return OutOfReach(f"not understood: {type(error).__name__}")

    # --- what is known ----------------------------------------------------------------------------

    def _learn(self, source: IndexFromValue) -> None:
        """An index from a value: an expression like others, or a name with a range."""
        how = self.indirect.get(source.line)
        if how is None:
            # Whether a negative value counts from the end was not recorded: it may be any place.
            name, anywhere = source.variable, Ends(None, None)
            self._data[name] = _DataIndex(name, source, anywhere, None, ZERO)
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
        """Of each loop."""
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
        loops = {
            name: NameRange(number(0), polynomial(size) - number(1))
            for name, size in self.lengths.items()
        }
        data = {name: found.span for name, found in self._data.items()}
        spans = {**self.sizes.spans, **loops, **data}
        # The body runs only if no loop is empty.
        runs = [Applied("ge", (size, Number(1))) for size in self.lengths.values()]
        known = Context(spans, sizes=frozenset(self.sizes.spans))
        return known.assuming((*self.sizes.assumed, *runs))

    def prepared(self, access: MemoryAccess) -> MemoryAccess:
        """The access in terms of loop variables and sizes, with all that holds when it is made."""
        conditions = (*access.conditions, *self._asserted)
        return replace(
            access,
            index=self._resolved(access.index),
            conditions=tuple(self._resolved(condition) for condition in conditions),
        )

    # --- judging ----------------------------------------------------------------------------------

    def _judge_once(self, access: MemoryAccess) -> Verdict:
        """Layers of a model repeat: what was judged in another loop body need not be again."""
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
        """Answers questions about points where the conditions hold."""
        if conditions not in self._provers:
            self._provers[conditions] = Prover(self._context.assuming(conditions), self.purse.until)
        return self._provers[conditions]

    def _computed_verdict(
        self,
        access: MemoryAccess,
        rooms: list[Positions],
        data: list[_DataIndex],
        free: list[_DataIndex],
    ) -> Verdict:
        """Compute the index at every point, for the sizes of the run and for others."""
        names = self._names(access, rooms)
        unknown = self.sizes.unknown(names)
        if unknown:
            return OutOfReach(f"the range of {', '.join(unknown)} is not known")
        tried = 0
        for sizes in self.sizes.tried(names):
            if self.purse.is_late:
                raise OutOfTime
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
        """The sizes that it depends on."""
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
        return extremes(access.index, access.conditions, lengths, sizes, self.purse)

    def _outside(
        self,
        access: MemoryAccess,
        data: list[_DataIndex],
        sizes: Point,
        position: int,
        point: Point,
        room: tuple[int, int],
    ) -> Verdict:
        """A point outside the buffer: broken, if the point is sure to be reached."""
        values = {**sizes, **self._whole_point(point)}
        if any(holds(condition, values) is not True for condition in access.conditions):
            return OutOfReach("whether the access is made depends on data")
        if any(not self._is_free(found) for found in data):
            return OutOfReach("no proof was found, and a part of the index is computed")
        if self.sizes.has_riddles or any(self.sizes.is_data(name) for name in sizes):
            return OutOfReach("no proof was found, and a guard or a size is not known beforehand")
        if value_of(access.index, values) != position:
            return OutOfReach("no proof was found")
        given = {f.source.buffers[0]: point[f.name] for f in data if f.name in point}
        loops = {name: place for name, place in values.items() if name in self.lengths}
        return Broken(sizes, loops, position, *room, given)

    def _whole_point(self, point: Point) -> dict[str, int]:
        return {**dict.fromkeys(self.lengths, 0), **point}

    def _is_free(self, found: _DataIndex) -> bool:
        """Whether the user can give it any value that passes the check."""
        value = found.source.value
        is_given = isinstance(value, Loaded) and value.is_plain
        return is_given and is_input(found.source.buffers[0], self.sizes)


def _wrapped(ends: Ends, how: IndirectIndex) -> Ends:
    """A negative index counts from the end, so it stands for another place."""
    if not how.wraps or _is_number(ends.low, at_least=0):
        return ends
    return Ends(None, None)


def _is_number(value: Expression | None, *, at_least: int) -> bool:
    return isinstance(value, Number) and value.value >= at_least


def _places(found: _DataIndex, sizes: Point) -> int:
    """How many places it can stand for, from 0 on."""
    low, high = found.range.low, found.range.high
    if low is None or high is None or value_of(low, sizes) != 0:
        raise NoValue
    return value_of(high, sizes) + 1


def _buffers(data: list[_DataIndex]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(buffer for found in data for buffer in found.source.buffers))


def judge_parts(sizes: AdmittedSizes, purse: Purse) -> Iterator[tuple[MemoryAccess, Verdict]]:
    """Buffers that are a part of another one: the first and the last position of each."""
    for name, room in sizes.memory.rooms.items():
        if not room.inside:
            continue
        try:
            own = next(positions(name, sizes))
            first = sizes.read(room.offset)
        except (NotUnderstood, *FAILURES):
            continue
        runs = tuple(Applied("ge", (length, Number(1))) for length in own.lengths)
        judge = BodyJudge(LoopBody({}, (), ()), sizes, {}, purse)
        for index in (first, add(first, own.end, Number(-1))):
            access = MemoryAccess("part", name, room.inside, index, runs)
            yield access, judge.judge(access)


def judge_body(
    body: LoopBody,
    sizes: AdmittedSizes,
    indirect: Mapping[str, IndirectIndex],
    purse: Purse,
    known: dict[object, Verdict] | None = None,
) -> Iterator[tuple[MemoryAccess, Verdict]]:
    """Every access of a loop body, and what can be said of it."""
    judge = BodyJudge(body, sizes, indirect, purse, {} if known is None else known)
    for access in body.accesses:
        yield access, judge.judge(access)
