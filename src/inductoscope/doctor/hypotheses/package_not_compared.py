"""The program fails, and calls of its packages could not all be compared.

When it applies: No compiled graph is known to be wrong, and the program has AOTInductor packages.

What it runs: The program with the exported programs in the place of its packages, unless a package
was made elsewhere: that can neither be compared nor left out.

What it concludes: That a package is wrong, if the program ends well without them and compiles
nothing else; otherwise nothing about the cause.

How sure: Likely: the call that is wrong was not seen.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import last_lines
from inductoscope.torch_facts.stages import AOT_INDUCTOR


def _applies(case: ProgramCase) -> bool:
    has_packages = case.runs.uses_packages or bool(case.packages_from_elsewhere)
    return case.fails_unexplained and has_packages


def _examine(case: ProgramCase) -> Verdict | None:
    result = _from_elsewhere(case) if case.packages_from_elsewhere else _made_here(case)
    if result is not None:
        result.add("\n".join(last_lines(case.first.output, 3)), "what the program printed last")
        for check in case.checks_that_are("skipped")[:2]:
            result.add(f"not compared: {check.text}", f"call {check.call} of {check.compile}")
    return result


def _from_elsewhere(case: ProgramCase) -> Verdict:
    names = ", ".join(case.packages_from_elsewhere)
    return Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        f"The program fails, and it calls {names}, which was made elsewhere. Whether that computes "
        "what it should shows only beside the program that makes it: examine that one.",
    )


def _made_here(case: ProgramCase) -> Verdict | None:
    eager = case.runs.in_eager_once("running it with exported programs in the place of packages")
    if eager.failed:
        return None
    what = (
        f"The program fails with what {AOT_INDUCTOR} has compiled, and ends well with the exported"
    )
    if all(each.flow for each in case.recording.compiles):
        text = f"{what} program in its place."
        was_called = any(check.compile for check in case.checks) and not case.first.ending.signal
        kind = v.WRONG_RESULT if was_called else v.CRASH
        result = Verdict(kind, stages.NO_STAGE, text, "likely")
        result.culprit.source = case.last_compiled
        return result
    text = f"{what} program, and everything that torch.compile compiles, in eager."
    return Verdict(v.UNKNOWN, stages.NO_STAGE, text)


HYPOTHESIS = Hypothesis(_applies, _examine)
