"""The program fails intermittently, or only under the tool.

When it applies: The program fails with every compiled graph right, and ends well in eager.

What it runs: The program compiled, without the tool.

What it concludes: Nothing is known to be wrong, if it ends well then.

How sure: Unknown.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import not_always
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained


def _examine(case: ProgramCase) -> Verdict | None:
    plain = case.runs.without_tool_once("running it compiled, without the tool")
    if plain.ending.exit_code != 0:
        return None
    return not_always(case.first, plain, "one of them without the tool")


HYPOTHESIS = Hypothesis(_applies, _examine)
