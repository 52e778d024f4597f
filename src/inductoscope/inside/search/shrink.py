"""Shrinks a failing candidate: shrink passes propose candidates, one gate judges them.

A pass only proposes candidates, the simplest first. A proposal that is not simpler is rejected, a
known one is answered from the oracle's memory, and only the rest is tried. The oracle also counts
the trials and stops at its limits. The passes are in `shrink_passes`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from inductoscope.doctor.delta_debugging import drive, subset_search
from inductoscope.doctor.failure import Failure
from inductoscope.inside.search.candidate import Candidate, has_transforms
from inductoscope.inside.search.forks import Work
from inductoscope.inside.search.oracle import Oracle

Item = TypeVar("Item")

# Candidates, the simplest first; None stands for one that cannot be made.
Batch = Sequence["Candidate | None"]
# A pass yields batches, and is sent the number of the first candidate that shows the failure, or
# None. A returned candidate was proven by the pass; None keeps the last accepted candidate.
Proposals = Generator[Batch, "int | None", "Candidate | None"]


@dataclass(frozen=True)
class Subject:
    """A failing candidate to shrink, and the known facts about its failure."""

    candidate: Candidate
    failure: Failure
    # Sets of nodes that may be enough to show the failure, the strongest suspicion first.
    suspects: Sequence[Sequence[str]] = ()
    # The nodes of the guilty kernel: more than are suspected, where a failure takes several.
    of_kernel: Sequence[str] = ()
    # Runs work in a fork and returns its result; None if the fork died.
    in_fork: Callable[[Work], Any] = lambda work: work()
    # The most candidates to try at once, some of them speculatively.
    guesses: int = 1


def is_divisible(candidate: Candidate) -> bool:
    """Check whether a part of the graph can run on its own."""
    return not has_transforms(candidate)


@dataclass(frozen=True)
class ShrinkPass:
    """One way to make a candidate simpler."""

    name: str
    # The progress text for users; {size} stands for the number of operations.
    text: str
    # The measure that it reduces. A proposal that does not reduce it is rejected untried.
    measure: Callable[[Candidate], Any]
    # A generator, because what to propose next depends on what has shown the failure so far.
    propose: Callable[[Subject], Proposals]
    applies: Callable[[Candidate], bool] = is_divisible


@dataclass(frozen=True)
class ShrinkProgress:
    """The smallest candidate so far, and a text about the next step, empty at the end."""

    candidate: Candidate
    text: str = ""


def apply_passes(
    subject: Subject,
    oracle: Oracle,
    passes: Sequence[ShrinkPass],
    at_once: Sequence[ShrinkPass] = (),
) -> Iterator[ShrinkProgress]:
    """Apply the passes one by one; with `at_once`, first try these last passes in one trial."""
    subject = replace(
        subject,
        in_fork=lambda work: oracle.forks.ask(work).result,
        guesses=oracle.forks.guesses,
    )
    for shrink_pass in passes:
        if at_once and shrink_pass is at_once[0]:
            yield ShrinkProgress(subject.candidate, "trying the simplest settings and inputs")
            simplest = _shrink_at_once(subject, oracle, at_once)
            if simplest is not None:
                yield ShrinkProgress(simplest)
                return
        if shrink_pass.applies(subject.candidate):
            text = shrink_pass.text.format(size=subject.candidate.size)
            yield ShrinkProgress(subject.candidate, text)
            subject = replace(subject, candidate=apply_pass(shrink_pass, subject, oracle))
    yield ShrinkProgress(subject.candidate)


def apply_pass(
    shrink_pass: ShrinkPass, subject: Subject, oracle: Oracle, *, untried: bool = False
) -> Candidate:
    """Return the simplest candidate that a pass finds; `untried` accepts every proposal."""
    smallest, measure = subject.candidate, shrink_pass.measure

    def first(batch: Batch) -> int | None:
        """Return the index of the first simpler candidate with the same failure."""
        nonlocal smallest
        simpler = [
            item if item is not None and measure(item) < measure(smallest) else None
            for item in batch
        ]
        if untried:
            found = next((n for n, item in enumerate(simpler) if item is not None), None)
        else:
            found = oracle.first(simpler, subject.failure)
        if found is not None:
            smallest = simpler[found] or smallest
        return found

    try:
        return drive(shrink_pass.propose(subject), first) or smallest
    except Exception:
        # A pass that cannot handle a graph must not end the search.
        oracle.mistakes.append(traceback.format_exc()[-3000:])
        return smallest


def _shrink_at_once(
    subject: Subject, oracle: Oracle, passes: Sequence[ShrinkPass]
) -> Candidate | None:
    """Apply all passes in one trial; None if the failure needs anything that they change.

    This replaces several trials by one, for failures whose trials take long.
    """
    for shrink_pass in passes:
        if shrink_pass.applies(subject.candidate):
            simpler = apply_pass(shrink_pass, subject, oracle, untried=True)
            subject = replace(subject, candidate=simpler)
    found = oracle.first([subject.candidate], subject.failure)
    return None if found is None else subject.candidate


def smallest_subset_of(
    items: Sequence[Item], make: Callable[[Sequence[Item]], Candidate | None], guesses: int
) -> Generator[Batch, int | None, list[Item]]:
    """Run delta debugging inside a pass; `make` turns a subset into a candidate."""
    search = subset_search(items, guesses)
    try:
        attempts = next(search)
        while True:
            found = yield [make(attempt) for attempt in attempts]
            attempts = search.send(found)
    except StopIteration as end:
        kept: list[Item] = end.value
        return kept
