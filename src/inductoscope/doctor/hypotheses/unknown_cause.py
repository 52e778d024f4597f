"""What remains: the tool hid the failure, or something that was not compared is wrong.

When it applies: The program fails compiled and not in eager, and no other hypothesis explains it.

What it runs: Nothing.

What it concludes: A wrong result, or a crash, without a place.

How sure: Unknown.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained


def _examine(case: ProgramCase) -> Verdict:
    skipped = case.checks_that_are("skipped")
    compared = count_of(len(case.checks) - len(skipped), "call")
    died = case.first.ending.signal is not None
    result = Verdict(
        v.CRASH if died else v.WRONG_RESULT,
        stages.NO_STAGE,
        f"The program {'dies' if died else 'fails'} compiled and not in eager; the cause is "
        f"unknown. Every compiled graph matches eager (compared: {compared}).",
    )
    result.add(case.first.output[-800:], "what the program printed")
    for check in skipped:
        result.add(f"not compared: {check.text}", check.compile)
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
