"""Turns a line of a stream into a typed event, even a damaged or hostile one.

A field is read by its annotated type. A value of another type counts as absent, and an absent field
reads as empty: nothing here raises.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import groupby, islice
from typing import Any, Generic, TypeVar

from inductoscope.recording import values
from inductoscope.recording.events import KINDS, Event

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
class UndecodedEvents(Event):
    """Events of one graph that follow one another: only their lines are known, by kind.

    They are decoded if anyone asks what they say.
    """

    kind = ""
    graph: str
    lines: Mapping[str, Sequence[bytes]]


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

# Values of these types stay as they are, so that reading them again can be left out.
_AS_THEY_ARE: dict[str, type] = {"str": str, "int": int, "bool": bool}


def time_unless_of(kinds: Collection[bytes], line: bytes) -> float | None:
    """When a line was written that is of none of these kinds; None where it may be of one."""
    head = _HEAD.match(line)
    return float(head[1]) if head is not None and head[2] not in kinds else None


def undecoded_of(kinds: Collection[str]) -> re.Pattern[bytes]:
    """Matches the lines of these kinds that need not be decoded at once, see `parse_block`."""
    names = "|".join(map(re.escape, sorted(kinds))).encode()
    return re.compile(
        rb'\{"n":(?P<number>\d{1,15}),"t":(?P<time>\d{1,15}(?:\.\d{1,15})?),'
        rb'"kind":"(?P<kind>' + names + rb')","graph":"(?P<graph>[ !#-\[\]-~]{1,200})",'
    )


def parse_line(stream: str, line: bytes) -> Entry[Event] | None:
    """The entry in a line of a stream; None where it is not a whole one."""
    found = _parsed(line)
    return read_entry(stream, found) if _is_whole(found) else None


def parse_block(
    stream: str, lines: list[bytes], undecoded: re.Pattern[bytes] | None = None
) -> list[Entry[Event]] | None:
    """The entries of many lines; None where one of them is not a whole one.

    What matches `undecoded` is taken to be whole, and becomes part of `UndecodedEvents`.
    """
    # What was cut off does not end as an object does.
    heads = [undecoded.match(line) if undecoded and line[-1:] == b"}" else None for line in lines]
    now = [line for line, head in zip(lines, heads, strict=True) if head is None]
    found = values.parse_lines(now)
    if found is None or not all(map(_is_whole, found)):
        return None
    return list(_in_order(stream, heads, (read_entry(stream, entry) for entry in found)))


def _is_whole(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("kind"), str)


def _in_order(
    stream: str, heads: Iterable[re.Match[bytes] | None], decoded: Iterator[Entry[Event]]
) -> Iterator[Entry[Event]]:
    """The entries of lines: those that have a head stay undecoded, the others are decoded."""
    for graph, some in groupby(heads, key=_graph_of):
        if graph is None:
            yield from islice(decoded, sum(1 for _ in some))
        else:
            yield _undecoded(stream, graph, [head for head in some if head is not None])


def _graph_of(head: re.Match[bytes] | None) -> str | None:
    return None if head is None else head["graph"].decode()


def _undecoded(stream: str, graph: str, heads: Sequence[re.Match[bytes]]) -> Entry[UndecodedEvents]:
    lines: dict[str, list[bytes]] = defaultdict(list)
    for head in heads:
        lines[head["kind"].decode()].append(head.string)
    latest = max(float(head["time"]) for head in heads)
    event = UndecodedEvents(graph, dict(lines))
    return Entry(stream, int(heads[-1]["number"]), latest, event)


def decoded_events(kind: str, graph: str, lines: Iterable[bytes]) -> Iterator[Event | None]:
    """What lines say that were taken to be of this kind and graph; None where one is not whole.

    One may say of itself something else at its end than at its beginning: the last counts.
    """
    for some in _blocks(lines):
        for found in values.parse_lines(some) or map(_parsed, some):
            is_as_taken = _is_whole(found) and (found["kind"], found.get("graph")) == (kind, graph)
            yield read_event(kind, found) if is_as_taken else None


def _parsed(line: bytes) -> Any:
    try:
        return values.parse(line)
    except ValueError:
        return None


def _blocks(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """What is decoded at once: no more than fits into memory several times over."""
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


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
    readers, absent = _readers(known)  # type: ignore[arg-type]  # A class is hashable.
    given = dict(absent)
    for name, value in found.items():
        if name in readers:
            written_as, coerce = readers[name]
            given[name] = value if type(value) is written_as else coerce(value)
    return values.filled(known, **given)


@cache
def _readers(
    event: type[Event],
) -> tuple[dict[str, tuple[type | None, Coercion]], dict[str, Any]]:
    """How each field is read, with the type that stays as it is; and what it is where absent."""
    readers = {
        item.name: (_AS_THEY_ARE.get(str(item.type)), COERCIONS[str(item.type)])
        for item in fields(event)
    }
    return readers, {name: coerce(None) for name, (_, coerce) in readers.items()}
