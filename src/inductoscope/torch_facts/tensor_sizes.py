"""Sizes in bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_TYPE_BITS = re.compile(r"(?:float|int|uint|complex|bfloat|bits)(\d+)")


def bytes_of(dtype: str, size: Iterable[str]) -> int | None:
    """Bytes of a tensor; None if a size is not a number or the type is unknown."""
    sizes = list(size)
    width = type_width(dtype)
    if width is None or not all(part.isdecimal() and len(part) < 19 for part in sizes):
        return None
    return math.prod(map(int, sizes)) * width


def type_width(dtype: str) -> int | None:
    """Bytes of one element."""
    name = dtype.removeprefix("torch.")
    if name == "bool":
        return 1
    match = _TYPE_BITS.match(name)
    # Of less than eight bits, several are in one.
    return max(1, int(match[1]) // 8) if match and len(match[1]) < 4 else None
