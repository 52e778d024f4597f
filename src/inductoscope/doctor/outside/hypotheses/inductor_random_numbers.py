"""The program fails only with the random numbers that Inductor draws.

When it applies: The program fails without the tool, which makes compiled code draw random numbers
as eager does, and not with it; and its graphs draw random numbers.

What it runs: The program without checks, with Inductor's own random numbers and with eager's.

What it concludes: Not a bug, if it fails with Inductor's and not with eager's.

How sure: Proven by two runs that differ in nothing else.
"""

from __future__ import annotations

from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.outside.common_verdicts import other_random_numbers
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.ends_well and bool(case.random_operations)


def _examine(case: ProgramCase) -> Verdict | None:
    run = case.runs.again(
        Instructions(calls=0, investigate=False, random_as_eager=False),
        "running the program with random numbers as Inductor draws them",
    )
    if not run.failed:
        return None
    control = case.runs.again(
        Instructions(calls=0, investigate=False), "running it without checks, with eager's"
    )
    if control.ending.exit_code != 0:
        return None
    result = other_random_numbers(case, is_shown=True)
    result.add(
        "fails with the random numbers that Inductor draws, not with those of eager", "two runs"
    )
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
