"""The positions that a buffer has, as expressions of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inductoscope.analysis.bounds.evaluation import value_of
from inductoscope.analysis.bounds.expressions import (
    ZERO,
    Applied,
    Expression,
    NotUnderstood,
    Number,
    add,
    minus,
    names_in,
    span,
)
from inductoscope.analysis.bounds.points import Point
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.model.memory import Room

_MOST_NAMES = 16


@dataclass(frozen=True)
class Positions:
    """From `first` up to, not including, `end`; none if one of `lengths` is zero."""

    first: Expression
    end: Expression
    lengths: tuple[Expression, ...]
    # What they are the positions of, for a sentence.
    what: str

    @property
    def names(self) -> frozenset[str]:
        """The sizes that they depend on."""
        return frozenset().union(*map(names_in, (self.first, self.end, *self.lengths)))

    def at(self, sizes: Point) -> tuple[int, int]:
        """First and end for given sizes."""
        first = value_of(self.first, sizes)
        if any(value_of(length, sizes) == 0 for length in self.lengths):
            return first, first
        return first, value_of(self.end, sizes)


def positions(name: str, sizes: AdmittedSizes) -> Iterator[Positions]:
    """What a buffer may be addressed at: as a tensor, then as the memory that it is a view of."""
    room = _owner(name, sizes)
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
    """First and end of all that may be addressed, for given sizes.

    Memory that is smaller than the tensor in it was not measured at these sizes, or is not there
    yet: then the tensor counts alone.
    """
    first, end = rooms[0].at(sizes)
    for room in rooms[1:]:
        other_first, other_end = room.at(sizes)
        if other_first <= first and end <= other_end:
            first, end = other_first, other_end
    return first, end


def _owner(name: str, sizes: AdmittedSizes) -> Room:
    """The room of a buffer, or of the one that it is another name of."""
    rooms = sizes.memory.rooms
    for _ in range(_MOST_NAMES):
        room = rooms.get(name)
        if room is None:
            break
        if not room.same_as:
            return room
        name = room.same_as
    raise NotUnderstood(f"the size of {name} is not in the recording")


def is_input(name: str, sizes: AdmittedSizes) -> bool:
    """Whether a buffer is an input of the graph, so that it can hold anything."""
    room = sizes.memory.rooms.get(name)
    return room is not None and room.is_input
