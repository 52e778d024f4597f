"""Judges candidates by what they cost to compile: slow if one stage alone takes several times as
long as the whole compile of as many plain nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.compile_costs import measured_in, measuring
from inductoscope.doctor.search.fork_answer import ForkAnswer, Work
from inductoscope.doctor.search.oracle import Around, Oracle
from inductoscope.profiling.compile_time.compile_cost import CompileCost, between
from inductoscope.profiling.compile_time.judging import against_plain
from inductoscope.vocabulary import stages

# How often as long as a whole plain compile the stage must take in the smallest graph; less than
# what makes a program slow, so that its graph can become smaller.
TIMES_SMALLEST = 1.5
# A fork may take as long as is slow, and a little more, before it is ended: it is slow then.
_ROOM = 1.3


@dataclass
class SlowOracle(Oracle):
    """Says whether candidates are slow in one stage."""

    plain: Sequence[CompileCost] = ()
    # What surrounds each compile, such as an axis that is switched off.
    around: Around = contextlib.nullcontext

    def _work(self, candidate: Candidate) -> Work:
        return measuring(candidate, self.stage, self.around)

    def _judged(self, candidate: Candidate, answer: ForkAnswer) -> Failure | None:
        measured = measured_in(answer, candidate, self.stage)
        found = against_plain(measured.cost, self.plain, self.stage)
        if found.times < TIMES_SMALLEST or measured.cost.ended_in not in ("", self.stage):
            return None
        text = f"{found.seconds:.1f} s in {stages.WORDS.get(self.stage, self.stage)}"
        return Failure(SLOW, text, stage=self.stage)


def seconds_to_be_slow(plain: Sequence[CompileCost], nodes: int, times: float, stage: str) -> float:
    """How long a fork with a graph of so many nodes may take, until it is slow for certain."""
    python, native = between(plain, nodes, stage)
    return _ROOM * (times + 1) * (python + native) + 1.0
