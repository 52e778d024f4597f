"""Sanitizers for untrusted values of a recording, which make them safe to compute with.

A value of the wrong type counts as absent. Nothing that `parse` returns is so deep or so large
that walking it, adding it up or writing it as JSON again could fail.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DEEPEST = 100
_MOST_DIGITS = 25
_LARGEST = 1e15
# Sums and products of a few numbers up to this one stay finite.
_LARGEST_FRACTION = 1e100


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


def is_plain(data: bytes) -> bool:
    """Check that JSON has no number and no depth that `parse` would refuse or keep as text.

    Any decoder may then read it.
    """
    return not _may_have_large_number(data) and not _is_too_deep(data)


def _is_too_deep(data: bytes) -> bool:
    """Check the nesting depth of valid JSON, by counting brackets outside of strings."""
    # The depth is at most the number of brackets.
    if data.count(b"{") + data.count(b"[") <= _DEEPEST:
        return False
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Removing adjacent quotes keeps the state inside or outside of strings, and leaves few.
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
    """Check for numbers that JSON or a float cannot hold, or that take long to parse."""
    marks = data.translate(_MARKS)
    if _LONG in marks:
        return True
    # Hashes in strings look like large numbers, too, so the characters before decide.
    return any(_is_number(data, found.start() + 1) for found in _LARGE.finditer(marks))


def _is_number(data: bytes, end: int) -> bool:
    """Check whether the digits that end at `end` can belong to a number."""
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
    return value if abs(value) < _LARGEST_FRACTION else digits


# Numbers that JSON or a float cannot hold stay text.
_decode = json.JSONDecoder(parse_constant=str).decode
_decode_carefully = json.JSONDecoder(
    parse_int=_integer, parse_float=_fraction, parse_constant=str
).decode


def text(value: Any) -> str:
    """Convert any value to text; empty for None."""
    return "" if value is None else str(value)


def real(value: Any) -> float:
    """Return a number as float; 0 if it is not one, or implausibly large."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0.0


def maybe_real(value: Any) -> float | None:
    """Return a number as float; None if it is not one."""
    return real(value) if isinstance(value, (int, float)) else None


def whole(value: Any) -> int:
    """Return an integer; 0 if it is not one."""
    return value if isinstance(value, int) else 0


def texts(value: Any) -> tuple[str, ...]:
    """Convert a list to a tuple of strings; empty if it is not a list."""
    return tuple(map(str, value)) if value and isinstance(value, list) else ()


def members(value: Any) -> dict[str, Any]:
    """Return a JSON object; empty if it is not one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the JSON objects in a list; empty if it is not a list."""
    return tuple(v for v in value if isinstance(v, dict)) if isinstance(value, list) else ()
