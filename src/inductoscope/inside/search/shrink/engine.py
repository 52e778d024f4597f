"""Applies shrink passes: the one gate that every proposed candidate goes through.

A proposal that is not simpler is rejected, one that was judged before is answered from memory (by
the oracle), and only the rest is tried. The oracle also counts the trials and stops at its limits.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from inductoscope.doctor.delta_debugging import drive
from inductoscope.doctor.failure import Failure
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.shrink.shrink_pass import Batch, ShrinkPass, Subject


@dataclass(frozen=True)
class ShrinkProgress:
    """The smallest candidate so far, and what is done next; nothing, at the end."""

    candidate: Candidate
    text: str = ""


def shrink(
    subject: Subject,
    oracle: Oracle,
    passes: Sequence[ShrinkPass],
    at_once: Sequence[ShrinkPass] = (),
) -> Iterator[ShrinkProgress]:
    """Apply all passes, one after the other; the last ones first all at once, if they are given."""
    subject = replace(
        subject,
        in_fork=lambda work: oracle.forks.ask(work).result,
        guesses=oracle.forks.guesses,
    )
    for shrink_pass in passes:
        if at_once and shrink_pass is at_once[0]:
            yield ShrinkProgress(subject.candidate, "trying the simplest settings and inputs")
            simplest = shrink_at_once(subject, oracle, at_once)
            if simplest is not None:
                yield ShrinkProgress(simplest)
                return
        if shrink_pass.applies(subject.candidate):
            text = shrink_pass.text.format(size=subject.candidate.size)
            yield ShrinkProgress(subject.candidate, text)
            subject = replace(subject, candidate=apply_pass(shrink_pass, subject, oracle))
    yield ShrinkProgress(subject.candidate)


def shrink_at_once(
    subject: Subject, oracle: Oracle, passes: Sequence[ShrinkPass]
) -> Candidate | None:
    """What the passes come to if the failure needs nothing that they change; None if it does.

    One trial instead of several, for a failure of which every trial takes long.
    """
    for shrink_pass in passes:
        if shrink_pass.applies(subject.candidate):
            gate = _Gate(shrink_pass, subject.failure, oracle, subject.candidate)
            try:
                simpler = drive(shrink_pass.propose(subject), gate.first_simpler) or gate.smallest
            except Exception:
                continue  # It gets its turn, if this comes to nothing.
            subject = replace(subject, candidate=simpler)
    found = oracle.first([subject.candidate], subject.failure)
    return None if found is None else subject.candidate


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

    def first_simpler(self, batch: Batch) -> int | None:
        """The number of the first simpler candidate, untried."""
        for number, item in enumerate(batch):
            if item is not None and self._is_simpler(item):
                self.smallest = item
                return number
        return None

    def _is_simpler(self, candidate: Candidate) -> bool:
        measure = self.shrink_pass.measure
        return bool(measure(candidate) < measure(self.smallest))
