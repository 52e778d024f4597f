"""A compiled graph fails, and a script shows it without the tool.

When it applies: A failure was found inside the program.

What it runs: The reproducer in fresh processes and, in parallel, the program with each workaround
that helps the graph, until one helps the program. If the GPU is lost, the reproducer under
compute-sanitizer.

What it concludes: What was found, with the reproducer and the workaround, if every run of the
reproducer fails.

How sure: That it fails is proven. The place is as sure as the way in which it was found.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.compute_sanitizer import check_script
from inductoscope.doctor.failure import device_error
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.found is not None


def _examine(case: ProgramCase) -> Verdict | None:
    if case.found is None:
        return None
    case.proof.prove_and_help(case.found, case.runs, calls=case.instructions.calls)
    if not case.proof.is_verified:
        return None
    result = case.proof.verdict_on(case.found)
    if device_error(case.found.failure.text):
        case.say("running the reproducer under compute-sanitizer, if that is installed")
        check = check_script(case.proof.script, case.proof.fresh.environment)
        result.add(str(check.access or check.why_not), "compute-sanitizer, on the reproducer")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
