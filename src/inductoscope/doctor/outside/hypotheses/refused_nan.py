"""The program has asked for errors where there is NaN (`nan_asserts`), and there is.

When it applies: A call raised the error of torch's own check, an input of it or its result in eager
holds NaN or infinity, and the program failed.

What it runs: Nothing.

What it concludes: Not a bug: which input holds it, and where.

How sure: Proven: the values were looked at.
"""

from __future__ import annotations

from inductoscope.doctor.outside.finding_verdict import relative_place
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict
from inductoscope.recording.events.checking import NAN_REFUSED
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v


def _applies(case: ProgramCase) -> bool:
    fails = case.found is None and case.first.ending.exit_code != 0
    return fails and bool(case.checks_that_are(NAN_REFUSED))


def _examine(case: ProgramCase) -> Verdict:
    check = case.checks_that_are(NAN_REFUSED)[0]
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        f"The program has torch check for NaN (nan_asserts), and {check.text}; compiled code does "
        "what it was asked to.",
        "proven",
    )
    place = next((c.place for c in case.recording.compiles if c.id == check.compile), None)
    result.culprit.source = relative_place(place) if place else None
    result.add(check.text, f"call {check.call} of {check.compile}")
    result.add(
        "where the value comes from shows before this call: compiled code was given it, or eager "
        "computes it, too",
        "torch._inductor.config.nan_asserts, or TORCHINDUCTOR_NAN_ASSERTS=1",
    )
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
