"""A package is called with something that it was not made for.

When it applies: Before a call, an input broke what the package demands: a type, a size, a range, a
stride, a device; and then the call was wrong or could not be compared, or the program failed.

What it runs: Nothing.

What it concludes: Not a bug in torch: which input breaks what, and how to have torch say so itself.

How sure: Proven: the demand is in the package's own code, the input was there.
"""

from __future__ import annotations

from inductoscope.doctor.outside.finding_verdict import relative_place
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict
from inductoscope.recording.events.checking import OUTSIDE, WRONG_OUTSIDE
from inductoscope.recording.signals import signal_name
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v

_TO_SEE_IT = (
    "with AOTI_RUNTIME_CHECK_INPUTS=1 in the environment torch raises an error instead; to accept "
    "such an input, export the program with it as the example, or with wider dynamic_shapes"
)


def _applies(case: ProgramCase) -> bool:
    if case.found is not None or not case.checks_that_are(OUTSIDE):
        return False
    # A result that cannot be compared cannot be trusted either.
    return case.first.ending.exit_code != 0 or bool(case.checks_that_are(WRONG_OUTSIDE, "skipped"))


def _examine(case: ProgramCase) -> Verdict | None:
    before = case.checks_that_are(OUTSIDE)[-1]
    wrong = next(iter(case.checks_that_are(WRONG_OUTSIDE)), None)
    ended_well = case.first.ending.exit_code == 0
    if wrong is None and not ended_well and not _is_last(case, before.call):
        return None  # That call went well; what failed later has another cause.
    broken, _, place = before.text.partition(" (called at ")
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        f"The package is called with something that it was not made for: {broken}.",
        "proven",
    )
    result.culprit.source = relative_place(place.rstrip(")")) if place else None
    result.add(broken, "the package's own code, which does not check it by default")
    what = wrong.text if wrong is not None else f"the program then {_how(case)}"
    result.add(what, f"call {before.call} of {before.compile}")
    result.add(_TO_SEE_IT)
    return result


def _is_last(case: ProgramCase, call: int) -> bool:
    return all(check.call <= call for check in case.checks)


def _how(case: ProgramCase) -> str:
    ending = case.first.ending
    if ending.exit_code == 0:
        return "went on with a result that cannot be trusted"
    if ending.signal:
        return f"died of {signal_name(ending.signal)}"
    return f"ended with exit code {ending.exit_code}"


HYPOTHESIS = Hypothesis(_applies, _examine)
