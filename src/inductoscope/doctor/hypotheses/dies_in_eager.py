"""A graph kills the process that runs it, compiled or not.

When it applies: A process died while a graph ran, and no reproducer shows it.

What it runs: The program in eager, without the tool.

What it concludes: Not a compiler bug, if the same signal kills the program in eager.

How sure: Proven by that run.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import fails_in_eager
from inductoscope.doctor.failure import SIGNAL
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages


def _applies(case: ProgramCase) -> bool:
    found = case.found
    if found is None or case.proof.is_verified:
        return False
    return found.failure.kind == SIGNAL and found.failure.stage == stages.RUNTIME


def _examine(case: ProgramCase) -> Verdict | None:
    eager = case.runs.in_eager_once("no script shows it; running the program without torch.compile")
    number = eager.ending.signal
    if case.found is None or not number or not eager.failed:
        return None
    return fails_in_eager(case, eager) if signal_name(number) == case.found.failure.aspect else None


HYPOTHESIS = Hypothesis(_applies, _examine)
