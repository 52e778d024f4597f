"""A graph is wrong in a call that was not checked.

When it applies: The program failed, nothing was found, and some graphs were called more often than
calls are checked.

What it runs: The program in eager and, if it ends well there, once more with every call checked.

What it concludes: Nothing by itself: the next hypotheses judge what is found.

How sure: As sure as those are.
"""

from __future__ import annotations

from dataclasses import replace

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.finding import read_found
from inductoscope.doctor.hypotheses.died_or_stalled import return_to_last_position
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import FOLDER
from inductoscope.wording import count_of

_EVERY_CALL = 1_000_000


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained and bool(case.recording.unchecked)


def _examine(case: ProgramCase) -> None:
    if case.runs.in_eager_once().ending.exit_code != 0:
        return
    checked = case.instructions.calls
    instructions = replace(case.instructions, calls=_EVERY_CALL)
    why = f"nothing is wrong in the first {count_of(checked, 'call')}; checking every call"
    run = case.runs.again(instructions, why)
    case.found = read_found(run.folder / FOLDER)
    if case.found is None and run.ending.exit_code != 0:
        return_to_last_position(case, run, instructions)


HYPOTHESIS = Hypothesis(_applies, _examine)
