"""Pure searches over subsets and numbers, which query a predicate.

A search is a generator. It yields several attempts at once and is sent the number of the first one
that holds, or None; the caller may test the attempts in parallel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Generator, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Attempts = TypeVar("Attempts")
Result = TypeVar("Result")
First = Callable[[Sequence[Sequence[Item]]], "int | None"]


def drive(
    search: Generator[Attempts, int | None, Result], first: Callable[[Attempts], int | None]
) -> Result:
    """Run a search to its end; `first` returns the number of the first attempt that holds."""
    try:
        attempts = next(search)
        while True:
            attempts = search.send(first(attempts))
    except StopIteration as end:
        result: Result = end.value
        return result


def smallest_subset(items: Sequence[Item], first: First[Item], at_once: int = 1) -> list[Item]:
    """Return a subset that holds and from which no single item can be removed (ddmin).

    All items together are assumed to hold. Their order is kept.
    """
    return drive(subset_search(items, at_once), first)


def subset_search(
    items: Sequence[Item], at_once: int = 1
) -> Generator[Sequence[Sequence[Item]], int | None, list[Item]]:
    """Run the search of `smallest_subset`.

    If fewer attempts are due than can be made `at_once`, further ones are added speculatively:
    those that would be next if none of them held.
    """
    step: _SubsetStep[Item] | None = _SubsetStep(list(items))
    kept = list(items)
    failed: set[_Attempt] = set()
    while step is not None:
        kept = step.kept
        places = _due(step, at_once, failed)
        found = (yield [each.attempts[number] for each, number in places]) if places else None
        failed.update(each.key(number) for each, number in places[:found])
        if found is not None:
            held, number = places[found]
            step = held.after(number)
        while step is not None and step.keys <= failed:
            kept = step.kept
            step = step.after(None)
    return kept


# An attempt, by the ids of its items, which need not be hashable.
_Attempt = tuple[int, ...]


class _SubsetStep(Generic[Item]):
    """One ddmin step: the items kept, and the subsets and complements to attempt next."""

    def __init__(self, kept: list[Item], parts: int = 2) -> None:
        self.kept, self._parts = kept, parts
        self._chunks = _chunks(kept, min(parts, len(kept))) if len(kept) >= 2 else []
        self.attempts: list[list[Item]] = list(self._chunks)
        if len(self._chunks) > 2:
            self.attempts += [_without(kept, chunk) for chunk in self._chunks]

    def key(self, number: int) -> _Attempt:
        return tuple(map(id, self.attempts[number]))

    @property
    def keys(self) -> set[_Attempt]:
        return {self.key(number) for number in range(len(self.attempts))}

    def after(self, found: int | None) -> _SubsetStep[Item] | None:
        """Return the next step if attempt `found` holds (None: none holds); None at the end."""
        if found is not None:
            is_part = found < len(self._chunks)
            return _SubsetStep(self.attempts[found], 2 if is_part else max(self._parts - 1, 2))
        if self._parts >= len(self.kept):
            return None
        return _SubsetStep(self.kept, min(self._parts * 2, len(self.kept)))


def _due(
    step: _SubsetStep[Item], at_once: int, failed: Container[_Attempt]
) -> list[tuple[_SubsetStep[Item], int]]:
    """Return attempts to start as (step, number): of this step, then of later ones up to `at_once`.

    Nothing is attempted twice.
    """
    found: dict[_Attempt, tuple[_SubsetStep[Item], int]] = {}
    each: _SubsetStep[Item] | None = step
    while each is not None and (each is step or len(found) < at_once):
        for number in range(len(each.attempts)):
            has_room = each is step or len(found) < at_once
            if has_room and each.key(number) not in failed:
                found.setdefault(each.key(number), (each, number))
        each = each.after(None)
    return list(found.values())


def _chunks(items: Sequence[Item], parts: int) -> list[list[Item]]:
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    return [list(items[a:b]) for a, b in itertools.pairwise(bounds)]


def _without(items: Sequence[Item], chunk: Sequence[Item]) -> list[Item]:
    left_out = {id(item) for item in chunk}
    return [item for item in items if id(item) not in left_out]


def last_needed(
    count: int, hold: Callable[[Sequence[int]], Sequence[bool]], at_once: int = 1
) -> int:
    """Return the smallest number n in 1…count that holds, given that count does.

    This bisects fuel: with the first n applications permitted the failure shows, with n - 1 it does
    not. `hold` tests several numbers, `at_once` at most.
    """
    low, high = 0, count
    while high - low > 1:
        steps = min(max(at_once, 1), high - low - 1) + 1
        asked = [low + (high - low) * step // steps for step in range(1, steps)]
        answers = [*hold(asked), True]
        first = answers.index(True)
        bounds = [low, *asked, high]
        low, high = bounds[first], bounds[first + 1]
    return high
