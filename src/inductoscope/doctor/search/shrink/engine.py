"""Applies shrink passes: the one gate that every proposed candidate goes through.

A proposal that is not simpler is rejected, one that was judged before is answered from memory (by
the oracle), and only the rest is tried. The oracle also counts the trials and stops at its limits.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.delta_debugging import drive
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.shrink.shrink_pass import Batch, ShrinkPass, Subject


@dataclass(frozen=True)
class ShrinkProgress:
    """The smallest candidate so far, and what is done next; nothing, at the end."""

    candidate: Candidate
    text: str = ""


def shrink(
    subject: Subject, oracle: Oracle, passes: Sequence[ShrinkPass]
) -> Iterator[ShrinkProgress]:
    """Apply all passes, one after the other."""
    subject = replace(subject, in_fork=lambda work: oracle.forks.ask(work).result)
    for shrink_pass in passes:
        if shrink_pass.applies(subject.candidate):
            text = shrink_pass.text.format(size=subject.candidate.size)
            yield ShrinkProgress(subject.candidate, text)
            subject = replace(subject, candidate=apply_pass(shrink_pass, subject, oracle))
    yield ShrinkProgress(subject.candidate)


def apply_pass(shrink_pass: ShrinkPass, subject: Subject, oracle: Oracle) -> Candidate:
    """The simplest candidate that one pass comes to."""
    gate = _Gate(shrink_pass, subject.failure, oracle, subject.candidate)
    try:
        return drive(shrink_pass.propose(subject), gate.first) or gate.smallest
    except Exception:
        # A pass that cannot handle a graph must not end the search.
        oracle.mistakes.append(traceback.format_exc()[-3000:])
        return gate.smallest


@dataclass
class _Gate:
    shrink_pass: ShrinkPass
    failure: Failure
    oracle: Oracle
    smallest: Candidate

    def first(self, batch: Batch) -> int | None:
        """The number of the first simpler candidate that shows the same failure."""
        simpler = [item if item is not None and self._is_simpler(item) else None for item in batch]
        found = self.oracle.first(simpler, self.failure)
        if found is not None:
            self.smallest = simpler[found] or self.smallest
        return found

    def _is_simpler(self, candidate: Candidate) -> bool:
        measure = self.shrink_pass.measure
        return bool(measure(candidate) < measure(self.smallest))
