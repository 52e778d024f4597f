"""A shrink pass: one way to make a failing candidate simpler.

A pass only proposes candidates; the engine judges them. It is a generator, because what is worth
proposing next depends on what has shown the failure so far.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from inductoscope.doctor.delta_debugging import subset_search
from inductoscope.doctor.failure import Failure
from inductoscope.inside.search.candidate import Candidate, has_transforms
from inductoscope.inside.search.forks import Work

Item = TypeVar("Item")

# Candidates, the simplest first; None stands for one that cannot be made.
Batch = Sequence["Candidate | None"]
# A pass yields batches, and is sent the number of the first candidate that shows the failure, or
# None. What it returns, it has proven by itself; None leaves the last candidate that was accepted.
Proposals = Generator[Batch, "int | None", "Candidate | None"]


@dataclass(frozen=True)
class Subject:
    """What is shrunk, and what is known about it."""

    candidate: Candidate
    failure: Failure
    # Sets of nodes that may be enough to show the failure, the strongest suspicion first.
    suspects: Sequence[Sequence[str]] = ()
    # The nodes of the guilty kernel: more than are suspected, where a failure takes several.
    of_kernel: Sequence[str] = ()
    # Does a piece of work in a fork and returns its result; None if the fork died.
    in_fork: Callable[[Work], Any] = lambda work: work()
    # Up to how many candidates are tried at once, some on a guess.
    guesses: int = 1


def is_divisible(candidate: Candidate) -> bool:
    """Whether a part of the graph can be run."""
    return not has_transforms(candidate)


@dataclass(frozen=True)
class ShrinkPass:
    """One way to make a candidate simpler."""

    name: str
    # What it does, for whoever watches; {size} stands for the number of operations.
    text: str
    # What it makes smaller. A proposal of which this is not smaller is rejected untried.
    measure: Callable[[Candidate], Any]
    propose: Callable[[Subject], Proposals]
    applies: Callable[[Candidate], bool] = is_divisible


def smallest_subset_of(
    items: Sequence[Item], make: Callable[[Sequence[Item]], Candidate | None], guesses: int
) -> Generator[Batch, int | None, list[Item]]:
    """Delta debugging as part of a pass: `make` turns a subset into a candidate."""
    search = subset_search(items, guesses)
    try:
        attempts = next(search)
        while True:
            found = yield [make(attempt) for attempt in attempts]
            attempts = search.send(found)
    except StopIteration as end:
        kept: list[Item] = end.value
        return kept
