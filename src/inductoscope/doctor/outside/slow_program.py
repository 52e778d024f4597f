"""The verdict slow, and what was tried against it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict, Workaround
from inductoscope.profiling.advice.trials import FlipTrial
from inductoscope.vocabulary import verdicts as v
from inductoscope.vocabulary.verdicts import Confidence


def slow_verdict(stage: str, why: str, confidence: Confidence) -> Verdict:
    """Slow; `why` goes on with what the word means."""
    return Verdict(v.SLOW, stage, f"{v.headline(v.SLOW)}{why}", confidence)


def as_workaround(trial: FlipTrial) -> Workaround:
    """A change that was tried and helps."""
    return Workaround(trial.flip.change, True, trial.ratio, trial.flip.to_paste)


@contextlib.contextmanager
def trials_in(case: ProgramCase) -> Iterator[Path]:
    """A folder for trials, on the disk of the examination; gone afterwards with its caches."""
    with tempfile.TemporaryDirectory(prefix="trials-", dir=case.runs.place) as folder:
        yield Path(folder)
