"""Wording of counts and sizes, and suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def count_of(number: int, noun: str) -> str:
    """Format a number with its noun in singular or plural: '1 call', '3 calls'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def bytes_text(count: float | None) -> str:
    """Format a number of bytes in at most nine characters; '?' for None."""
    if count is None:
        return "?"
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.0f} B"


# --- What a user probably meant by a name that does not exist -------------------------------------

_LEAST_LIKENESS = 0.5


def nearest(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the known names most similar to `name`, best match first."""
    return difflib.get_close_matches(name.lower(), list(known), n=most, cutoff=_LEAST_LIKENESS)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' to append to an error; empty if no name is similar."""
    close = nearest(name, known, most=1)
    return f" Did you mean '{close[0]}'?" if close else ""
