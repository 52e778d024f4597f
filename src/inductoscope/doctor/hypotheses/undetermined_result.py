"""The program's result is not deterministic in eager either.

When it applies: Eager gave different values when it ran a graph again, or read uninitialised
memory, and the program fails or a function differs.

What it runs: Nothing.

What it concludes: Not a bug: uninitialised memory or other nondeterminism.

How sure: Likely: two runs of the graph in eager differ, which may not be why the program fails.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import not_a_bug
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    if case.found is not None or not case.checks_that_are("unsteady"):
        return False
    return case.first.ending.exit_code != 0 or bool(case.functions_that_differ)


def _examine(case: ProgramCase) -> Verdict:
    return not_a_bug(
        "Uninitialised memory or other nondeterminism: eager's result is not deterministic either",
        case.checks_that_are("unsteady"),
        "likely",
    )


HYPOTHESIS = Hypothesis(_applies, _examine)
