"""A call is wrong, and the search for the cause failed: an error in inductoscope.

When it applies: A check failed, and nothing was handed over about it.

What it runs: Nothing.

What it concludes: A wrong result or a crash, without a place.

How sure: Unknown.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import add_own_mistakes
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages


def _applies(case: ProgramCase) -> bool:
    return case.found is None and bool(case.checks_that_are("wrong", "error"))


def _examine(case: ProgramCase) -> Verdict:
    bad = case.checks_that_are("wrong", "error")
    is_error = bad[0].verdict == "error"
    result = Verdict(
        v.CRASH if is_error else v.WRONG_RESULT,
        stages.NO_STAGE,
        f"Compile {bad[0].compile} does not match eager: {bad[0].text}. "
        "The search for the cause failed, so it is unknown.",
    )
    for check in bad[:4]:
        result.add(check.text, f"compile {check.compile}, compared with eager")
    add_own_mistakes(result, case)
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
