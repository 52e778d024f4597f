"""What a user probably meant by a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LEAST_LIKENESS = 0.5


def nearest(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Known names similar to `name`, best match first."""
    return difflib.get_close_matches(name.lower(), list(known), n=most, cutoff=_LEAST_LIKENESS)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to an error, with a space before it; empty if nothing is similar."""
    close = nearest(name, known, most=1)
    return f" Did you mean '{close[0]}'?" if close else ""
