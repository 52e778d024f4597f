"""Cuts a large result to what an agent can take in, and says what was left out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from inductoscope.errors import UsageError

# Characters of JSON in one answer.
MOST_CHARACTERS = 40_000
# No part of an object is cut to less.
_LEAST = 80


@dataclass(frozen=True)
class Cut:
    """A list or a text of which only the beginning is there; `pointer` is a JSON Pointer."""

    pointer: str
    kept: int
    of: int
    unit: str


def cut(value: Any, most: int = MOST_CHARACTERS) -> tuple[Any, list[Cut]]:
    """The value with long lists and texts cut, small parts whole, in about `most` characters."""
    cuts: list[Cut] = []
    return _fitted(value, most, "", cuts), cuts


def _fitted(value: Any, room: int, pointer: str, cuts: list[Cut]) -> Any:
    if size_of(value) <= room:
        return value
    if isinstance(value, str):
        cuts.append(Cut(pointer, room, len(value), "characters"))
        return value[:room]
    if isinstance(value, list):
        return _fitted_list(value, room, pointer, cuts)
    if isinstance(value, dict):
        return _fitted_object(value, room, pointer, cuts)
    return value


def _fitted_list(values: list[Any], room: int, pointer: str, cuts: list[Cut]) -> list[Any]:
    """Whole items from the beginning; the first one is cut rather than left out."""
    kept: list[Any] = []
    left = room
    for value in values:
        size = size_of(value) + 2
        if size > left:
            break
        kept.append(value)
        left -= size
    if not kept and values:
        kept.append(_fitted(values[0], max(room, _LEAST), f"{pointer}/0", cuts))
    if len(kept) < len(values):
        cuts.append(Cut(pointer, len(kept), len(values), "items"))
    return kept


def _fitted_object(
    value: dict[str, Any], room: int, pointer: str, cuts: list[Cut]
) -> dict[str, Any]:
    """The smallest parts first: what they do not need is left for the large ones."""
    left = room - sum(len(key) + 6 for key in value)
    fitted: dict[str, Any] = {}
    by_size = sorted(value, key=lambda key: size_of(value[key]))
    for number, key in enumerate(by_size):
        share = max(left // (len(by_size) - number), _LEAST)
        fitted[key] = _fitted(value[key], share, f"{pointer}/{_escaped(key)}", cuts)
        left -= size_of(fitted[key])
    return {key: fitted[key] for key in value}


def size_of(value: Any) -> int:
    """Characters of a value as JSON."""
    return len(as_text(value))


def as_text(value: Any) -> str:
    """A value as JSON, without line ends."""
    return json.dumps(value, ensure_ascii=False)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def at_pointer(value: Any, pointer: str) -> Any:
    """What a JSON Pointer names in a value."""
    if pointer and not pointer.startswith("/"):
        raise UsageError(f"pointer is {pointer!r}. A JSON Pointer begins with /, such as /rows/3.")
    for number, part in enumerate(pointer.split("/")[1:], start=1):
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            place = "/".join(pointer.split("/")[:number]) or "the result"
            raise UsageError(f"There is no {key!r} in {place}.{_what_there_is(value)}") from error
    return value


def _what_there_is(value: Any) -> str:
    if isinstance(value, dict):
        return f" It has: {', '.join(list(value)[:40])}."
    if isinstance(value, list):
        return f" It has {len(value)} items, from 0 on."
    return " It has no parts."
