"""Numbers of things in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """A number with its noun in singular or plural: '1 call', '3 calls'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def bytes_text(count: float | None) -> str:
    """A number of bytes as people read it, in at most nine characters; '?' if it is not known."""
    if count is None:
        return "?"
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.0f} B"
