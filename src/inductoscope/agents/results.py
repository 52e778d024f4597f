"""Results of calls as answers, truncated and stored if they are too large."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.views.plain_text import visible_data

# Characters of JSON in one answer.
MOST_CHARACTERS = 40_000
# No part of an object is cut to less.
_LEAST = 80


# What was cut of a list or text: its JSON Pointer, how much is kept, of how much, in which unit.
Cut = dict[str, Any]


def cut(value: Any, most: int = MOST_CHARACTERS) -> tuple[Any, list[Cut]]:
    """Truncate long lists and texts to about `most` characters; small parts stay whole."""
    cuts: list[Cut] = []
    return _fitted(value, most, "", cuts), cuts


def _fitted(value: Any, room: int, pointer: str, cuts: list[Cut]) -> Any:
    if size_of(value) <= room:
        return value
    if isinstance(value, str):
        cuts.append(_told(pointer, room, len(value), "characters"))
        return value[:room]
    if isinstance(value, list):
        return _fitted_list(value, room, pointer, cuts)
    if isinstance(value, dict):
        return _fitted_object(value, room, pointer, cuts)
    return value


def _fitted_list(values: list[Any], room: int, pointer: str, cuts: list[Cut]) -> list[Any]:
    """Keep whole items from the beginning; truncate the first one rather than drop it."""
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
        cuts.append(_told(pointer, len(kept), len(values), "items"))
    return kept


def _fitted_object(
    value: dict[str, Any], room: int, pointer: str, cuts: list[Cut]
) -> dict[str, Any]:
    """Fit the smallest parts first, which leaves their unused share to the large ones."""
    left = room - sum(len(key) + 6 for key in value)
    fitted: dict[str, Any] = {}
    by_size = sorted(value, key=lambda key: size_of(value[key]))
    for number, key in enumerate(by_size):
        share = max(left // (len(by_size) - number), _LEAST)
        fitted[key] = _fitted(value[key], share, f"{pointer}/{_escaped(key)}", cuts)
        left -= size_of(fitted[key])
    return {key: fitted[key] for key in value}


def size_of(value: Any) -> int:
    return len(as_text(value))


def as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def at_pointer(value: Any, pointer: str) -> Any:
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


# --- stored results -------------------------------------------------------------------------------

# The limit over all calls of a server; the oldest results are deleted.
_MOST_RESULTS = 20

MORE = "more"
MORE_DESCRIPTION = (
    "Read more of a result that was cut. Such a result has `left_out`, which names by JSON Pointer "
    "each list and text that was cut, and `result`, its number."
)
MORE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "result": {"type": "integer", "description": "The number of the result."},
        "pointer": {
            "type": "string",
            "description": "What to read of it, such as /compiles/0/graphs. Default: all of it.",
            "default": "",
        },
        "start": {
            "type": "integer",
            "minimum": 0,
            "description": "The first item of a list, or character of a text, to read.",
            "default": 0,
        },
    },
    "required": ["result"],
    "additionalProperties": False,
}


class KeptResults:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    def answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return sanitized data, with `left_out` and `result` if it had to be truncated."""
        data = visible_data(data)
        if size_of(data) <= MOST_CHARACTERS:
            return data
        shown, cuts = cut(data)
        return {**shown, "left_out": cuts, "result": self._keep(data)}

    def _keep(self, data: dict[str, Any]) -> int:
        number = next(self._numbers)
        self._file(number).write_text(as_text(data), "utf-8")
        self._file(number - _MOST_RESULTS).unlink(missing_ok=True)
        return number

    def _file(self, number: int) -> Path:
        return self._folder / f"kept-{number}.json"

    def more(self, given: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(given) - set(MORE_SCHEMA["properties"]))
        if unknown:
            raise UsageError(f"{MORE} has no parameter {unknown[0]!r}.")
        number, start = _whole(given, "result"), _whole(given, "start")
        pointer = str(given.get("pointer") or "")
        try:
            data = json.loads(self._file(number).read_text("utf-8"))
        except OSError as error:
            raise UsageError(
                f"There is no result {number}: it was not cut, or {_MOST_RESULTS} others have been "
                "since. Call the tool again."
            ) from error
        value = at_pointer(data, pointer)
        place = {}
        if isinstance(value, (list, str)):
            place = {"start": start, "of": len(value)}
            value = value[start:]
        shown, cuts = cut(value)
        left_out = {"left_out": cuts} if cuts else {}
        return {"result": number, "pointer": pointer, **place, "value": shown, **left_out}


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name, 0)
    if not isinstance(value, int) or value < 0:
        raise UsageError(f"{name} is a number from 0 on, not {value!r}.")
    return value


def _told(pointer: str, kept: int, of: int, unit: str) -> Cut:
    return {"pointer": pointer, "kept": kept, "of": of, "unit": unit}
