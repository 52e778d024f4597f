"""Searches over subsets and numbers, pure: they ask what holds and get an answer.

A search is a generator. It yields several attempts at once and is sent the number of the first one
that holds, or None; whoever drives it may try them side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, TypeVar

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


def smallest_subset(items: Sequence[Item], first: First[Item], at_once: int = 1) -> list[Item]:
    """A subset that holds and from which no single item can be removed (delta debugging).

    All items together are assumed to hold. Their order is kept.
    """
    return drive(subset_search(items, at_once), first)


def subset_search(
    items: Sequence[Item], at_once: int = 1
) -> Generator[Sequence[Sequence[Item]], int | None, list[Item]]:
    """The search of `smallest_subset`.

    Where fewer attempts are due than can be made `at_once`, those follow that would be due next if
    none of them held: nobody has to wait for the last of them.
    """
    step: _SubsetStep[Item] | None = _SubsetStep(list(items))
    kept = list(items)
    while step is not None and step.attempts:
        kept = step.kept
        steps = _steps_ahead(step, at_once)
        places = _distinct_attempts(steps)
        found = yield [each.attempts[number] for each, number in places]
        if found is None:
            step = steps[-1].after(None)
        else:
            held, number = places[found]
            kept = held.attempts[number]
            step = held.after(number)
    return kept


class _SubsetStep(Generic[Item]):
    """What is left, and what is attempted next: parts of it, and all without one of them."""

    def __init__(self, kept: list[Item], parts: int = 2) -> None:
        self.kept, self._parts = kept, parts
        self._chunks = _chunks(kept, min(parts, len(kept))) if len(kept) >= 2 else []
        self.attempts: list[list[Item]] = list(self._chunks)
        if len(self._chunks) > 2:
            self.attempts += [_without(kept, chunk) for chunk in self._chunks]

    def after(self, found: int | None) -> _SubsetStep[Item] | None:
        """The step after this one if the attempt with this number holds; None at the end."""
        if found is not None:
            is_part = found < len(self._chunks)
            return _SubsetStep(self.attempts[found], 2 if is_part else max(self._parts - 1, 2))
        if self._parts >= len(self.kept):
            return None
        return _SubsetStep(self.kept, min(self._parts * 2, len(self.kept)))


def _steps_ahead(step: _SubsetStep[Item], at_once: int) -> list[_SubsetStep[Item]]:
    """A step and those after it if nothing holds, until there are enough attempts."""
    steps = [step]
    while sum(len(each.attempts) for each in steps) < at_once:
        after = steps[-1].after(None)
        if after is None:
            break
        steps.append(after)
    return steps


def _distinct_attempts(steps: Iterable[_SubsetStep[Item]]) -> list[tuple[_SubsetStep[Item], int]]:
    """Each attempt by its step and its number there: where two steps make the same, the first."""
    found: dict[tuple[int, ...], tuple[_SubsetStep[Item], int]] = {}
    for step in steps:
        for number, attempt in enumerate(step.attempts):
            found.setdefault(tuple(map(id, attempt)), (step, number))
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
    """The smallest number n in 1…count that holds, given that count does.

    This is fuel: with the first n applications permitted the failure shows, with n - 1 it does not.
    `hold` says of several numbers, `at_once` at most, which of them hold.
    """
    low, high = 0, count
    while high - low > 1:
        steps = min(at_once, high - low - 1) + 1
        asked = [low + (high - low) * step // steps for step in range(1, steps)]
        answers = [*hold(asked), True]
        first = answers.index(True)
        bounds = [low, *asked, high]
        low, high = bounds[first], bounds[first + 1]
    return high
