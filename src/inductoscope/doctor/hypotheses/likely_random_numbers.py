"""Compiled and eager draw different random numbers.

When it applies: The program fails with every compiled graph right, no level of the compiler is to
blame, and its graphs draw random numbers.

What it runs: Nothing.

What it concludes: Not a bug.

How sure: Likely: no run shows it.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import other_random_numbers
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained and bool(case.random_operations)


def _examine(case: ProgramCase) -> Verdict:
    return other_random_numbers(case, is_shown=False)


HYPOTHESIS = Hypothesis(_applies, _examine)
