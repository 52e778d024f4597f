"""Turns a line of a stream into a typed event, even a damaged or hostile one.

A field is read by its annotated type. A value of another type counts as absent, and an absent field
reads as empty: nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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


@dataclass(frozen=True)
class UnreadEvent(Event):
    """The last event of kinds that were not asked for: only when it was written is known."""

    kind = ""


@dataclass(frozen=True)
class UndecodedEvent(Event):
    """An event of one graph; only its line is known, to be decoded if anyone asks what it says."""

    kind: str  # type: ignore[misc]  # Of each event here, not of the class.
    graph: str
    line: bytes


# Bytes of lines.
_BLOCK = 1 << 20

# How every line begins that this tool has written.
_HEAD = re.compile(rb'\{"n":\d{1,15},"t":(\d{1,15}(?:\.\d{1,15})?),"kind":"([\w-]+)"[,}]')

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


def time_unless_of(kinds: Collection[bytes], line: bytes) -> float | None:
    """When a line was written that is of none of these kinds; None where it may be of one."""
    head = _HEAD.match(line)
    return float(head[1]) if head is not None and head[2] not in kinds else None


def undecoded_of(kinds: Collection[str]) -> re.Pattern[bytes]:
    """Matches the lines of these kinds that need not be decoded at once, see `parse_block`."""
    names = "|".join(map(re.escape, sorted(kinds))).encode()
    return re.compile(
        rb'\{"n":(\d{1,15}),"t":(\d{1,15}(?:\.\d{1,15})?),"kind":"(' + names + rb")\","
        rb'"graph":"([ !#-\[\]-~]{1,200})",'
    )


def parse_line(stream: str, line: bytes) -> Entry[Event] | None:
    """The entry in a line of a stream; None where it is not a whole one."""
    try:
        found = values.parse(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        return None
    return read_entry(stream, found)


def parse_block(
    stream: str, lines: list[bytes], undecoded: re.Pattern[bytes] | None = None
) -> list[Entry[Event]] | None:
    """The entries of many lines; None where one of them is not a whole one.

    What matches `undecoded` is taken to be whole, and becomes an `UndecodedEvent`.
    """
    later = [undecoded and _left_undecoded(stream, undecoded.match(line)) for line in lines]
    now = [line for line, entry in zip(lines, later, strict=True) if entry is None]
    found = values.parse_lines(now)
    if found is None or not all(
        isinstance(e, dict) and isinstance(e.get("kind"), str) for e in found
    ):
        return None
    decoded = (read_entry(stream, entry) for entry in found)
    return [entry or next(decoded) for entry in later]


def _left_undecoded(stream: str, match: re.Match[bytes] | None) -> Entry[Event] | None:
    # What was cut off does not end as an object does.
    if match is None or not match.string.endswith(b"}"):
        return None
    number, time, kind, graph = match.groups()
    event = values.filled(
        UndecodedEvent, kind=kind.decode(), graph=graph.decode(), line=match.string
    )
    return values.filled(Entry, stream=stream, number=int(number), time=float(time), event=event)


def decoded_events(events: Iterable[UndecodedEvent]) -> Iterator[Event | None]:
    """What each of them says; None of one that turns out not to be whole."""
    for some in _blocks(events):
        lines = [event.line for event in some]
        each = parse_block("", lines) or (parse_line("", line) for line in lines)
        for event, entry in zip(some, each, strict=True):
            yield entry.event if entry is not None and _is_as_taken(event, entry.event) else None


def _blocks(events: Iterable[UndecodedEvent]) -> Iterator[list[UndecodedEvent]]:
    """What is decoded at once: no more than fits into memory several times over."""
    block, size = [], 0
    for event in events:
        block.append(event)
        size += len(event.line)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _is_as_taken(event: UndecodedEvent, decoded: Event) -> bool:
    """Whether a line says at its end what it says at its beginning: the last of two keys counts."""
    return decoded.kind == event.kind and getattr(decoded, "graph", None) == event.graph


def read_entry(stream: str, found: dict[str, Any]) -> Entry[Event]:
    """The entry of a line that has been decoded and has a kind."""
    number = found.pop("n", None)
    time = values.real(found.pop("t", None))
    event = read_event(found.pop("kind"), found)
    number = number if isinstance(number, int) else -1
    return values.filled(Entry, stream=stream, number=number, time=time, event=event)


def read_event(kind: str, found: Mapping[str, Any]) -> Event:
    """The typed event; fields that its class does not have are ignored."""
    known = KINDS.get(kind)
    if known is None:
        return UnknownEvent(kind, found)
    coercions, absent = _coercions(known)  # type: ignore[arg-type]  # A class is hashable.
    given = {name: coercions[name](value) for name, value in found.items() if name in coercions}
    return values.filled(known, **{**absent, **given})


@cache
def _coercions(event: type[Event]) -> tuple[dict[str, Coercion], dict[str, Any]]:
    """How each field is read, and what it is where it is absent."""
    coercions = {item.name: COERCIONS[str(item.type)] for item in fields(event)}
    return coercions, {name: coerce(None) for name, coerce in coercions.items()}
