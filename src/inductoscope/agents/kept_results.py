"""Results of calls, as answers: whole if they are small, cut and kept if they are not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductoscope.agents.cutting import (
    MOST_CHARACTERS,
    Cut,
    as_text,
    at_pointer,
    cut,
    size_of,
)
from inductoscope.errors import UsageError
from inductoscope.views.report.plain_text import visible_data

# Of all calls of a server; the oldest are forgotten.
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
    """The results that were too large for one answer, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    def answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data made visible, with `left_out` and `result` if it had to be cut."""
        data = visible_data(data)
        if size_of(data) <= MOST_CHARACTERS:
            return data
        shown, cuts = cut(data)
        return {**shown, "left_out": _told(cuts), "result": self._keep(data)}

    def _keep(self, data: dict[str, Any]) -> int:
        number = next(self._numbers)
        self._file(number).write_text(as_text(data), "utf-8")
        self._file(number - _MOST_RESULTS).unlink(missing_ok=True)
        return number

    def _file(self, number: int) -> Path:
        return self._folder / f"kept-{number}.json"

    def more(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A part of a result that was kept."""
        unknown = sorted(set(given) - set(MORE_SCHEMA["properties"]))
        if unknown:
            raise UsageError(f"{MORE} has no parameter {unknown[0]!r}.")
        number, start = _whole(given, "result"), _whole(given, "start")
        pointer = given.get("pointer") or ""
        if not isinstance(pointer, str):
            raise UsageError(f"pointer is a text such as /compiles/0, not {pointer!r}.")
        try:
            data = json.loads(self._file(number).read_text("utf-8"))
        except OSError as error:
            raise UsageError(
                f"There is no result {number}: it was not cut, or {_MOST_RESULTS} others have been "
                "since. Call the tool again."
            ) from error
        return {"result": number, "pointer": pointer, **_part(at_pointer(data, pointer), start)}


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{name} is a number from 0 on, not {value!r}.")
    return value


def _part(value: Any, start: int) -> dict[str, Any]:
    """What of the value is to be read next; `left_out` counts from what is shown."""
    if isinstance(value, (list, str)):
        shown, cuts = cut(value[start:])
        whole = {"start": start, "of": len(value), "value": shown}
    else:
        shown, cuts = cut(value)
        whole = {"value": shown}
    return {**whole, "left_out": _told(cuts)} if cuts else whole


def _told(cuts: list[Cut]) -> list[dict[str, Any]]:
    return [asdict(one) for one in cuts]
