"""The program fails without torch.compile too.

When it applies: The program fails with every compiled graph right.

What it runs: The program in eager, without the tool; if it loses the GPU, under compute-sanitizer.

What it concludes: Not a compiler bug, if it fails in eager.

How sure: Proven by that run.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import fails_in_eager
from inductoscope.doctor.compute_sanitizer import MemoryCheck
from inductoscope.doctor.failure import device_error
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Culprit, Verdict


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained


def _examine(case: ProgramCase) -> Verdict | None:
    eager = case.runs.in_eager_once()
    if not eager.failed:
        return None
    result = fails_in_eager(case, eager)
    if device_error(eager.output):
        case.say("running it in eager under compute-sanitizer, if that is installed")
        _add_access(result, case.runs.memory_check_in_eager())
    return result


def _add_access(result: Verdict, check: MemoryCheck) -> None:
    if check.access is None:
        result.add(check.why_not, "where the access happens is not known")
        return
    result.culprit = Culprit(kernel=check.access.kernel, source=check.access.place or None)
    result.summary = f"{result.summary.rstrip('.')}. It is in {check.access}."
    result.add(str(check.access), "compute-sanitizer, on the program in eager")


HYPOTHESIS = Hypothesis(_applies, _examine)
