"""Values read from a recording, which a stranger may have written, made safe to compute with.

A value of the wrong type counts as absent. Nothing that `parse` returns is so deep or so large
that walking it, adding it up or writing it as JSON again could fail.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Kind = TypeVar("Kind")

_DEEPEST = 100
_MOST_DIGITS = 25
_LARGEST = 1e15


def parse(text: str | bytes) -> Any:
    """Decode a JSON text; ValueError if it is not valid JSON."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    # Checking every number costs more than checking whether there is a large one at all.
    decode = _decode_carefully if _may_have_large_number(data) else _decode
    try:
        value = decode(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _is_too_deep(data):
        raise ValueError("nested too deeply")
    return value


def parse_lines(lines: Sequence[bytes]) -> list[Any] | None:
    """What `parse` makes of each, in a fraction of the time; None where one needs a closer look."""
    data = b"[" + b",".join(lines) + b"]"
    if _may_have_large_number(data):
        return None
    try:
        found: list[Any] = _decode(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    # All together: what one line leaves open, another may close.
    return found if len(found) == len(lines) and not _is_too_deep(data) else None


def _is_too_deep(data: bytes) -> bool:
    """Of valid JSON: what opens and closes is counted outside of texts, all levels at once."""
    # The depth is at most the number of brackets.
    if data.count(b"{") + data.count(b"[") <= _DEEPEST:
        return False
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side change nothing about what is inside of a text; then few are left.
    marks = data.translate(None, _NO_MARKS).replace(b'""', b"")
    level = b"".join(marks.split(b'"')[::2]).translate(_BRACKETS)
    for _ in range(_DEEPEST):
        level = level.replace(b"[]", b"")
        if not level:
            return False
    return True


_NO_MARKS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_BRACKETS = bytes.maketrans(b"{}", b"[]")


def _may_have_large_number(data: bytes) -> bool:
    """Whether a number may be one that JSON or a float cannot hold, or that takes long to read."""
    marks = data.translate(_MARKS)
    if _LONG in marks:
        return True
    # Hashes look like that, too, and are inside of texts.
    return any(_is_number(data, found.start() + 1) for found in _LARGE.finditer(marks))


def _is_number(data: bytes, end: int) -> bool:
    """Whether the digits that end here can be those of a number."""
    before = data[max(0, end - 2 * _MOST_DIGITS - 2) : end].rstrip(b"0123456789.")
    return before[-1:] in b":,[- \t\n\r"


# Every digit becomes 0, E becomes e, + stays, and everything else becomes a zero byte.
_MARKS = bytes.maketrans(b"0123456789eE+", b"0000000000ee+").translate(
    bytes(byte if chr(byte) in "0e+" else 0 for byte in range(256))
)
_LONG = b"0" * (_MOST_DIGITS + 1)
# An exponent of three or more digits.
_LARGE = re.compile(rb"0e\+?000")


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def _fraction(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else digits


# Numbers that JSON or a float cannot hold stay text.
_decode = json.JSONDecoder(parse_constant=str).decode
_decode_carefully = json.JSONDecoder(
    parse_int=_integer, parse_float=_fraction, parse_constant=str
).decode


def filled(kind: type[Kind], /, **fields: Any) -> Kind:
    """A frozen dataclass with all of its fields: the same as calling it, in a fraction of the time.

    Its own `__init__` sets one field after the other, which took most of the time of reading.
    """
    made = object.__new__(kind)
    made.__dict__.update(fields)
    return made


def text(value: Any) -> str:
    """Any value as text; empty for None."""
    return "" if value is None else str(value)


def real(value: Any) -> float:
    """A number; 0 if it is not one, or far beyond any that is measured."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0.0


def maybe_real(value: Any) -> float | None:
    """A number; None if it is not one."""
    return real(value) if isinstance(value, (int, float)) else None


def whole(value: Any) -> int:
    """A whole number; 0 if it is not one."""
    return value if isinstance(value, int) else 0


def maybe_whole(value: Any) -> int | None:
    """A whole number; None if it is not one."""
    return value if isinstance(value, int) else None


def texts(value: Any) -> tuple[str, ...]:
    """A tuple of texts; empty if it is not a list."""
    return tuple(map(str, value)) if value and isinstance(value, list) else ()


def wholes(value: Any) -> tuple[int, ...]:
    """The whole numbers in a list; empty if it is not a list."""
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, list) else ()


def members(value: Any) -> dict[str, Any]:
    """An object; empty if it is not one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> tuple[dict[str, Any], ...]:
    """The objects in a list; empty if it is not a list."""
    return tuple(v for v in value if isinstance(v, dict)) if isinstance(value, list) else ()


def rows(value: Any, columns: tuple[Callable[[Any], Any], ...]) -> tuple[tuple[Any, ...], ...]:
    """A table: the rows that have as many entries as there are columns."""
    found = value if isinstance(value, list) else []
    if _is_as_written(found, columns):
        return tuple(map(tuple, found))
    return tuple(
        tuple(column(entry) for column, entry in zip(columns, row, strict=True))
        for row in found
        if isinstance(row, list) and len(row) == len(columns)
    )


def _is_as_written(found: list[Any], columns: tuple[Callable[[Any], Any], ...]) -> bool:
    """Whether reading each entry would change nothing; found out a column at a time."""
    if {*map(type, found)} != {list} or {*map(len, found)} != {len(columns)}:
        return False
    return all(
        {*map(type, entries)} == {_WRITTEN_AS.get(column)}
        for column, entries in zip(columns, zip(*found, strict=True), strict=True)
    )


# The types that these leave as they are.
_WRITTEN_AS: dict[Callable[[Any], Any], type] = {str: str, whole: int}


# --------------------------------------------------------------------------------------------------
# Objects of a recording whose fields are made safe one by one, when they are first asked for.
#
# A schedule has thousands of nodes with twenty fields each, and most readers look at three of them.

LazyKind = TypeVar("LazyKind")
Reader = Callable[[Any], Any]

_RECORDED = "_recorded"


class _LazyField:
    """Makes one field of what was recorded, and leaves it in the object for the next who asks."""

    def __init__(self, name: str, key: str, read: Reader) -> None:
        self._name, self._key, self._read = name, key, read

    def __get__(self, made: Any, owner: type[Any]) -> Any:
        if made is None:
            raise AttributeError(self._name)  # As a dataclass without defaults has it.
        own = made.__dict__
        value = own[self._name] = self._read(own[_RECORDED].get(self._key))
        return value


def lazily(
    kind: type[LazyKind], /, **fields: tuple[str, Reader]
) -> Callable[[Mapping[str, Any]], LazyKind]:
    """How objects of a frozen dataclass are made of what was recorded.

    `fields`: for each field the key in what was recorded, and what reads the value there: None
    where there is none.
    """
    for name, (key, read) in fields.items():
        setattr(kind, name, _LazyField(name, key, read))

    def make(recorded: Mapping[str, Any]) -> LazyKind:
        made = object.__new__(kind)
        made.__dict__[_RECORDED] = recorded
        return made

    return make
