"""One order for the decisions of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=tuple[str, ...])


def merged_order(lists: Sequence[Sequence[Key]]) -> list[Key]:
    """Every key once: what only some lists have follows what it follows there."""
    following: dict[Key | None, Key | None] = {None: None}
    seen: set[tuple[Key, ...]] = set()
    for keys in lists:
        as_tuple = tuple(keys)
        if as_tuple in seen:
            continue  # Most ranks decide the same.
        seen.add(as_tuple)
        before: Key | None = None
        for key in as_tuple:
            if key not in following:
                following[key] = following[before]
                following[before] = key
            before = key
    order: list[Key] = []
    key_or_none = following[None]
    while key_or_none is not None:
        order.append(key_or_none)
        key_or_none = following[key_or_none]
    return order
