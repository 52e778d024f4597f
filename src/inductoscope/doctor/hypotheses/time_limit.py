"""The program was ended by a limit, and not because anything is wrong with it.

When it applies: It ran longer than --time-limit, or had made all calls that were to be checked, and
was neither in the compiler nor in a call that is checked.

What it runs: Nothing.

What it concludes: Clean so far if calls were compared, not-checked if none was.

How sure: Likely: what the program does later is not known.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import verdict_at_limit
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.last_position import last_position
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    was_ended = case.first.calls_done or (
        case.first.over_time and last_position(case.first) is None
    )
    # What was seen to be wrong is not forgotten because the program was ended.
    return case.found is None and was_ended and not case.is_seen_wrong


def _examine(case: ProgramCase) -> Verdict:
    return verdict_at_limit(case)


HYPOTHESIS = Hypothesis(_applies, _examine)
