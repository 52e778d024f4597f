"""Compiled and eager differ within rounding, and nothing else is known to be wrong.

When it applies: The program fails with every compiled graph right, and some calls differ by no more
than rounding explains.

What it runs: Nothing.

What it concludes: Not a bug.

How sure: Likely: no run shows it.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import not_a_bug
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained and bool(case.checks_that_are("within-rounding"))


def _examine(case: ProgramCase) -> Verdict:
    result = not_a_bug(
        "Rounding, most likely: compiled and eager differ by no more than rounding explains, "
        "judged against float64, and nothing else is known to be wrong (noise)",
        case.checks_that_are("within-rounding"),
    )
    result.confidence = "likely"
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
