"""A compiled graph fails, and the user asked for the culprit alone.

When it applies: A failure was found inside the program, it shows again in a fork, and --quick was
given.

What it runs: Nothing.

What it concludes: What was found.

How sure: Likely, since no script has shown it without the tool.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.instructions.quick and case.found is not None and case.found.reproduces


def _examine(case: ProgramCase) -> Verdict | None:
    return case.proof.verdict_on(case.found) if case.found is not None else None


HYPOTHESIS = Hypothesis(_applies, _examine)
