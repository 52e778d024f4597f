"""A part of the compiler that can be run without what comes after it: Dynamo, AOTAutograd.

A run of the whole program is weak evidence: it may fail for another reason, intermittently, or
because of the tool. So a level is blamed only after two runs in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import not_always
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.runs import fails_alike
from inductoscope.doctor.verdict import Culprit, Verdict


@dataclass(frozen=True)
class CompilerLevel:
    """How to run the program with this level alone, and what to say if it fails then."""

    stage: str
    backend: str
    function: str
    why: str
    summary: str


def verdict_on_level(level: CompilerLevel, case: ProgramCase) -> Verdict | None:
    """Whether the program fails with this level of the compiler and without what comes after it.

    The program is known to end well in eager.
    """
    instructions = Instructions(calls=0, backend=level.backend, investigate=False)
    tried = case.runs.again(instructions, level.why)
    if not fails_alike(case.first, tried):
        return None
    again = case.runs.again(instructions, f"{level.why}, once more")
    well = case.runs.in_eager_once()
    eager = case.runs.in_eager("running it without torch.compile once more")
    if eager.failed:
        return not_always(eager, well, "both without torch.compile")
    if not fails_alike(case.first, again):
        return not_always(tried, again, f"both with backend='{level.backend}'")
    culprit = Culprit(function=level.function, source=case.last_compiled)
    result = Verdict(v.NOT_INDUCTOR, level.stage, level.summary, "proven", culprit)
    result.add(
        f"fails with backend='{level.backend}' in two runs, not without torch.compile in two",
        "runs of the program",
    )
    result.add(case.first.output[-800:], "what the program printed")
    return result
