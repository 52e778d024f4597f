"""The machine cannot compile: no compiler, Triton, space or memory, or a flag unknown to torch.

When it applies: The failure that was found says so.

What it runs: Nothing. If the full disk is the examination's own, it ends with a message.

What it concludes: A compile error that is not a bug in torch, and what to do about it.

How sure: Proven by what the compiler or the system said.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.found is not None and bool(case.found.advice)


def _examine(case: ProgramCase) -> Verdict | None:
    if case.found is None:
        return None
    failure = case.found.failure
    case.runs.refuse_lack_of_space(f"{failure.text} {failure.message}")
    return case.proof.verdict_on(case.found)


HYPOTHESIS = Hypothesis(_applies, _examine)
