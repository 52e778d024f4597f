"""Turns a line of a stream into a typed event, even a damaged or hostile one.

A field is read by its annotated type. A value of another type counts as absent, and an absent field
reads as empty: nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Generic, TypeVar

from inductoscope.recording import values
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.catalogue import KINDS

SomeEvent = TypeVar("SomeEvent", bound=Event, covariant=True)
Coercion = Callable[[Any], Any]


@dataclass(frozen=True)
class Entry(Generic[SomeEvent]):
    """One line of one stream: an event, and when which process wrote it."""

    stream: str
    number: int
    time: float
    event: SomeEvent

    @property
    def kind(self) -> str:
        """The kind of the event."""
        return self.event.kind


@dataclass(frozen=True)
class UnknownEvent(Event):
    """An event of a kind that this version does not know: counted, not refused."""

    kind: str  # type: ignore[misc]  # Of each event here, not of the class.
    fields: Mapping[str, Any]


# By annotation, as it is written in the classes.
COERCIONS: dict[str, Coercion] = {
    "str": values.text,
    "int": values.whole,
    "int | None": values.maybe_whole,
    "float": values.real,
    "float | None": values.maybe_real,
    "bool": lambda value: value is True,
    "bool | None": lambda value: value if isinstance(value, bool) else None,
    "Any": lambda value: value,
    "tuple[str, ...]": values.texts,
    "tuple[tuple[str, str, str], ...]": lambda value: values.rows(value, (str, str, str)),
    "tuple[tuple[str, str, int], ...]": lambda value: values.rows(value, (str, str, values.whole)),
    "tuple[tuple[str, float], ...]": lambda value: values.rows(value, (str, values.real)),
    "tuple[Mapping[str, Any], ...]": values.objects,
    "Mapping[str, Any]": values.members,
    "Mapping[str, str]": lambda value: {k: str(v) for k, v in values.members(value).items()},
    "Mapping[str, int]": lambda value: {
        k: values.whole(v) for k, v in values.members(value).items()
    },
    "Mapping[str, float]": lambda value: {
        k: values.real(v) for k, v in values.members(value).items() if isinstance(v, (int, float))
    },
}


def parse_line(stream: str, line: bytes) -> Entry[Event] | None:
    """The entry in a line of a stream; None where it is not a whole one."""
    try:
        found = values.parse(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        return None
    return read_entry(stream, found)


def read_entry(stream: str, found: dict[str, Any]) -> Entry[Event]:
    """The entry of a line that has been decoded and has a kind."""
    number = found.pop("n", None)
    time = values.real(found.pop("t", None))
    event = read_event(found.pop("kind"), found)
    return Entry(stream, number if isinstance(number, int) else -1, time, event)


def read_event(kind: str, found: Mapping[str, Any]) -> Event:
    """The typed event; fields that its class does not have are ignored."""
    known = KINDS.get(kind)
    if known is None:
        return UnknownEvent(kind, found)
    coercions = _coercions(known)  # type: ignore[arg-type]  # A class is hashable.
    return known(**{name: coerce(found.get(name)) for name, coerce in coercions})


@cache
def _coercions(event: type[Event]) -> tuple[tuple[str, Coercion], ...]:
    return tuple((item.name, COERCIONS[str(item.type)]) for item in fields(event))
