"""The program was ended by a limit, and not because anything is wrong with it.

When it applies: It ran longer than --time-limit, or had made all calls that were to be checked, and
was neither in the compiler nor in a call that is checked.

What it runs: Nothing.

What it concludes: Clean so far if calls were compared, not-checked if none was.

How sure: Likely: what the program does later is not known.
"""

from __future__ import annotations

from inductoscope.doctor.outside.common_verdicts import nothing_wrong_so_far
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.last_position import last_position
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    was_ended = case.first.calls_done or (
        case.first.over_time and last_position(case.first) is None
    )
    # What Dynamo captured wrongly is not forgotten because the program was ended.
    return case.found is None and was_ended and not case.functions_that_differ


def _examine(case: ProgramCase) -> Verdict:
    seconds = f"{case.first.ending.seconds:.0f} s"
    if case.first.calls_done:
        return nothing_wrong_so_far(case, f"Stopped after {seconds}, as asked")
    result = nothing_wrong_so_far(case, f"The time limit was reached after {seconds}")
    result.partial = True  # With a longer limit it can go on.
    result.not_checked.append(
        f"what the program does after the first {seconds} (--time-limit allows more)"
    )
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
