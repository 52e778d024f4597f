"""Decodes lines of streams and payloads, even damaged or hostile ones: nothing here raises.

msgspec decodes data that fits its type. Otherwise, each field is decoded by itself: a value of
another type counts as absent, and an absent field reads as empty.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, TypeVar

import msgspec

from inductoscope.recording import values
from inductoscope.recording.events import KINDS, Entry, Event, read_entry

Kind = TypeVar("Kind", bound=msgspec.Struct)

# The beginning of every line that this tool has written.
_HEAD = re.compile(
    rb'\{"n":(?P<number>\d{1,15}),"t":(?P<time>\d{1,15}(?:\.\d{1,15})?),"kind":"(?P<kind>[\w-]+)"'
)
_DECODERS = {kind.encode(): msgspec.json.Decoder(event).decode for kind, event in KINDS.items()}


def parse_line(stream: str, line: bytes) -> Entry[Event] | None:
    """Decode a line of a stream; None if it is not a complete entry."""
    head = _HEAD.match(line)
    decode = _DECODERS.get(head["kind"]) if head else None
    if head is not None and decode is not None and values.is_plain(line):
        try:
            return Entry(stream, int(head["number"]), float(head["time"]), decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # A field has another type, or the line is not JSON.
    return _parse_by_field(stream, line)


def _parse_by_field(stream: str, line: bytes) -> Entry[Event] | None:
    try:
        found = values.parse(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        return None
    return read_entry(stream, found)


def decode_list(kind: type[Kind], data: bytes) -> tuple[Kind, ...]:
    """Decode a payload that is a list of objects; ValueError if it is not JSON at all.

    If an object is damaged, its fields are decoded one by one.
    """
    if values.is_plain(data):
        try:
            return tuple(msgspec.json.decode(data, type=list[kind]))  # type: ignore[valid-type]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
    found = values.parse(data)
    items = found if isinstance(found, list) else ()
    return tuple(fitted(kind, item) for item in items if isinstance(item, dict))


def fitted(kind: type[Kind], found: dict[str, Any]) -> Kind:
    """Build a struct from the fields of `found` that fit; all others keep their defaults."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(found, kind)
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        with contextlib.suppress(msgspec.ValidationError, KeyError):
            made[field.name] = msgspec.convert(found[field.encode_name], field.type)
    return kind(**made)
