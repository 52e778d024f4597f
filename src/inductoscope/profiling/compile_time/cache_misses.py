"""Which caches were asked, what they answered, and why a graph was not there.

The key of the FX graph cache is a hash over many fields: the graph's code, the inputs, settings,
versions. A key that missed is compared, field by field, with the keys of the run before it, and
with those of an earlier run; the nearest one says what differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inductoscope.model.entities import Recording

# '[hash] name: text', and the name of a setting or of an input in brackets.
_FIELD = re.compile(r"\[(?P<hash>\w+)\] (?P<name>[^:]+(?:\[[^\]]*\])?): ?(?P<text>.*)", re.DOTALL)
_MOST_SHOWN = 4
_LONGEST = 60


@dataclass(frozen=True)
class CacheKey:
    """A key that was made in a run, and the fields that it is made of."""

    compile: str
    key: str
    fields: tuple[str, ...]
    process: str = ""


@dataclass(frozen=True)
class CacheUse:
    """A look-up."""

    cache: str
    compile: str
    outcome: str
    key: str
    # Why it missed, as far as that is known.
    why: str = ""


def cache_uses(
    recording: Recording, keys: Sequence[CacheKey], stored: Sequence[CacheKey] = ()
) -> Iterator[CacheUse]:
    """All look-ups of a run; for a graph that was not there, what differs from the nearest key.

    `keys` were made in the run, `stored` in the one before it.
    """
    known = {key.key: key for key in keys}
    for compile_ in recording.compiles:
        for use in compile_.caches:
            why = use.reason
            if use.outcome == "miss" and use.key in known:
                why = _why(known[use.key], [k for k in keys if k.key != use.key], stored)
            yield CacheUse(use.cache, compile_.id, use.outcome, use.key, why)


def _why(key: CacheKey, others: Sequence[CacheKey], stored: Sequence[CacheKey]) -> str:
    if any(other.key == key.key for other in stored):
        return "the run before made the same key: the entry was not stored, or did not fit"
    others = [*others, *stored]
    if not others:
        return "the cache was empty"
    nearest = min(others, key=lambda other: len(differing_fields(key, other)))
    fields = differing_fields(key, nearest)
    more = f" and {len(fields) - _MOST_SHOWN} more" if len(fields) > _MOST_SHOWN else ""
    shown = "; ".join(fields[:_MOST_SHOWN])
    return f"differs from the nearest, compile {nearest.compile}, in {shown}{more}"


def differing_fields(key: CacheKey, other: CacheKey) -> list[str]:
    """The fields of which the hashes differ, or that only one key has, with their values."""
    own, theirs = _by_name(key), _by_name(other)
    found = []
    for name in dict.fromkeys([*own, *theirs]):
        mine, yours = own.get(name), theirs.get(name)
        if mine is None or yours is None:
            found.append(f"{name} (only {'here' if yours is None else 'there'})")
        elif mine[0] != yours[0]:
            found.append(f"{name}{_values(mine[1], yours[1])}")
    return found


def _values(mine: str, yours: str) -> str:
    mine, yours = " ".join(mine.split()), " ".join(yours.split())
    if mine == yours:
        return ""
    at = next((n for n, (a, b) in enumerate(zip(mine, yours, strict=False)) if a != b), 0)
    begin = max(0, at - 15)
    end = begin + _LONGEST
    return f" ({yours[begin:end]} there, {mine[begin:end]} here)"


def _by_name(key: CacheKey) -> dict[str, tuple[str, str]]:
    found = {}
    for text in key.fields:
        match = _FIELD.match(text)
        if match is not None:
            found[match["name"]] = (match["hash"], match["text"])
    return found
