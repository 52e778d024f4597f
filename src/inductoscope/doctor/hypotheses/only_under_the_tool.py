"""The tool itself makes the program fail.

When it applies: An error or a crash was found that no reproducer shows.

What it runs: The program without the tool.

What it concludes: Nothing is known to be wrong, if the program ends well without the tool.

How sure: Unknown.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import only_under_the_tool
from inductoscope.doctor.failure import HANG, NAN, WRONG
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    if case.found is None or case.proof.is_verified:
        return False
    return case.found.failure.kind not in (WRONG, NAN, HANG)


def _examine(case: ProgramCase) -> Verdict | None:
    if case.found is None or case.runs.without_tool_once().ending.exit_code != 0:
        return None
    return only_under_the_tool(case.found.failure.text)


HYPOTHESIS = Hypothesis(_applies, _examine)
