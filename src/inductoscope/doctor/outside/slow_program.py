"""What was tried against a slow program."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Workaround
from inductoscope.profiling.advice.trials import FlipTrial


def as_workaround(trial: FlipTrial) -> Workaround:
    """A change that was tried and helps."""
    return Workaround(trial.flip.change, True, trial.ratio, trial.flip.to_paste)


@contextlib.contextmanager
def trials_in(case: ProgramCase) -> Iterator[Path]:
    """A folder for trials, on the disk of the examination; gone afterwards with its caches."""
    with tempfile.TemporaryDirectory(prefix="trials-", dir=case.runs.place) as folder:
        yield Path(folder)
