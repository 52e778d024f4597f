"""A compiled graph fails in the program, and no script shows it.

When it applies: A failure was found inside the program, and the reproducer did not fail every time,
or none could be written.

What it runs: Nothing more.

What it concludes: What was found, with what was tried.

How sure: As sure as the way in which the place was found; the reproducer is not called verified.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.found is not None


def _examine(case: ProgramCase) -> Verdict | None:
    return None if case.found is None else case.proof.verdict_on(case.found)


HYPOTHESIS = Hypothesis(_applies, _examine)
