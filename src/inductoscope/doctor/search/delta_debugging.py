"""Searches over subsets and numbers, pure: they ask what holds and get an answer.

A search is a generator. It yields several attempts at once and is sent the number of the first one
that holds, or None; whoever drives it may try them side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Attempts = TypeVar("Attempts")
Result = TypeVar("Result")
First = Callable[[Sequence[Sequence[Item]]], "int | None"]


def drive(
    search: Generator[Attempts, int | None, Result], first: Callable[[Attempts], int | None]
) -> Result:
    """Run a search to its end; `first` says which of its attempts holds."""
    try:
        attempts = next(search)
        while True:
            attempts = search.send(first(attempts))
    except StopIteration as end:
        result: Result = end.value
        return result


def smallest_subset(items: Sequence[Item], first: First[Item]) -> list[Item]:
    """A subset that holds and from which no single item can be removed (delta debugging).

    All items together are assumed to hold. Their order is kept.
    """
    return drive(subset_search(items), first)


def subset_search(
    items: Sequence[Item],
) -> Generator[Sequence[Sequence[Item]], int | None, list[Item]]:
    """The search of `smallest_subset`."""
    kept = list(items)
    parts = 2
    while len(kept) >= 2:
        chunks = _chunks(kept, min(parts, len(kept)))
        attempts = list(chunks)
        if len(chunks) > 2:
            attempts += [_without(kept, chunk) for chunk in chunks]
        found = yield attempts
        if found is not None:
            kept = list(attempts[found])
            parts = 2 if found < len(chunks) else max(parts - 1, 2)
        elif parts >= len(kept):
            break
        else:
            parts = min(parts * 2, len(kept))
    return kept


def _chunks(items: Sequence[Item], parts: int) -> list[list[Item]]:
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    return [list(items[a:b]) for a, b in itertools.pairwise(bounds)]


def _without(items: Sequence[Item], chunk: Sequence[Item]) -> list[Item]:
    left_out = {id(item) for item in chunk}
    return [item for item in items if id(item) not in left_out]


def last_needed(count: int, holds: Callable[[int], bool]) -> int:
    """The smallest number n in 1…count for which `holds(n)`, given that it holds for count.

    This is fuel: with the first n applications permitted the failure shows, with n - 1 it does not.
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
