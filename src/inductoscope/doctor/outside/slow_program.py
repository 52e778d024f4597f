"""What was tried against a slow program."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.outside.checks import every_check_passed
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict, Workaround
from inductoscope.profiling.advice.trials import FlipTrial

# No further run is begun after so many seconds of them.
TIME_FOR_TRIALS = 300.0


def offer(case: ProgramCase, trial: FlipTrial, result: Verdict) -> None:
    """Offer a change that helps as a workaround, if the program is right with it, too."""
    flip = trial.flip
    instructions = Instructions(
        calls=case.instructions.calls,
        workaround=flip.statements,
        variables=flip.variables,
        investigate=False,
    )
    run = case.runs.again(instructions, f"checking the program's results with {flip.change}")
    if not every_check_passed(run):
        result.add(f"{flip.change} is faster; not all results could be confirmed", "one run")
        return
    # Where compiles are avoided, what is left is of the whole run, not of a call.
    slowdown = None if flip.is_tried_cold else trial.ratio
    result.workaround = Workaround(
        flip.change, True, slowdown, flip.to_paste, flip.predicted, trial.saved
    )
    result.add(f"with {flip.change} every result that was checked is right", "one run")


@contextlib.contextmanager
def trials_in(case: ProgramCase) -> Iterator[Path]:
    """A folder for trials, on the disk of the examination; gone afterwards with its caches."""
    with tempfile.TemporaryDirectory(prefix="trials-", dir=case.runs.place) as folder:
        yield Path(folder)
