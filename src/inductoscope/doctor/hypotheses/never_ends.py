"""The program does not end, and no smaller program was found that shows it.

When it applies: The program stalled or ran out of time, and nothing was found; nor does a function
differ in a program that only ran out of time.

What it runs: Nothing: where it was is known from its last stacks.

What it concludes: A hang in the stage that it was in, or in the program itself.

How sure: Likely.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.last_position import last_position, last_stacks
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.torch_facts import stages


def _applies(case: ProgramCase) -> bool:
    is_late = case.first.over_time and not case.functions_that_differ
    return case.found is None and (case.first.stalled or is_late)


def _examine(case: ProgramCase) -> Verdict:
    position = last_position(case.first)
    if position is None:
        text = "The program made no progress; it was not inside the compiler."
        result = Verdict(v.HANG, stages.USER, text, "likely")
    else:
        said = f"{position.text[0].upper()}{position.text[1:]}"
        text = f"{said}; no smaller program was found that shows it."
        culprit = Culprit(function=position.function or None, source=case.last_compiled)
        result = Verdict(v.HANG, position.stage, text, "likely", culprit)
        if case.first.over_time:
            # A limit is a limit: it may be slow, and not hang.
            result.verdict, result.confidence, result.partial = v.UNKNOWN, "unknown", True
            result.summary = f"{said}. Whether it hangs is not known: --time-limit gives it longer."
        for number, function in enumerate(position.functions[:12]):
            result.add(f"called from {function}" if number else f"it was in {function}")
    result.add(last_stacks(case.first)[-1500:], "the last Python stacks")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
