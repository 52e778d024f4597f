"""The program asks for more precision than floating point has.

When it applies: The program fails with every compiled graph right, and some values are not the
same to the last bit.

What it runs: The program in eager, with every inexact operation rounded differently by one unit in
the last place.

What it concludes: Not a bug, if it fails the same way.

How sure: Proven by that run.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import not_a_bug
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import MOVED, Instructions
from inductoscope.doctor.runs import fails_alike
from inductoscope.doctor.verdict import Verdict
from inductoscope.model.entities import Check


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained and bool(_inexact(case))


def _inexact(case: ProgramCase) -> list[Check]:
    rounding = case.checks_that_are("within-rounding")
    return rounding or [check for check in case.checks if check.is_exact is False]


def _examine(case: ProgramCase) -> Verdict | None:
    moved = case.runs.again(
        Instructions(calls=0, backend=MOVED, investigate=False),
        "running it in eager with other rounding",
    )
    if not fails_alike(case.first, moved):
        return None
    result = not_a_bug(
        "Rounding: the program also fails in eager if every inexact operation is rounded "
        "differently by one unit in the last place. It asks for more precision than floating "
        "point has (noise)",
        _inexact(case),
    )
    result.add("fails the same way, with every graph in eager and rounded differently", "one run")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
