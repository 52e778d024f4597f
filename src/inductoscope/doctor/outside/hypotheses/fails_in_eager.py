"""The program fails without torch.compile too.

When it applies: The program fails with every compiled graph right.

What it runs: The program in eager, without the tool.

What it concludes: Not a compiler bug, if it fails in eager.

How sure: Proven by that run.
"""

from __future__ import annotations

from inductoscope.doctor.outside.common_verdicts import fails_in_eager
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained


def _examine(case: ProgramCase) -> Verdict | None:
    eager = case.runs.in_eager_once()
    return fails_in_eager(case, eager) if eager.failed else None


HYPOTHESIS = Hypothesis(_applies, _examine)
