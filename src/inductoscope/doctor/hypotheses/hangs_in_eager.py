"""A graph does not end when it runs, compiled or not.

When it applies: A hang was found while a graph ran, and the graph alone does not show it.

What it runs: The program in eager, for as long as the first run took, at least a minute.

What it concludes: Not a bug, if the program does not end in eager either.

How sure: Likely: it may only be slow.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import HANG
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages

_LEAST_SECONDS = 60.0


def _applies(case: ProgramCase) -> bool:
    found = case.found
    if found is None or found.reproduces or case.runs.uses_packages:
        return False
    return found.failure.kind == HANG and found.failure.stage == stages.RUNTIME


def _examine(case: ProgramCase) -> Verdict | None:
    seconds = max(_LEAST_SECONDS, case.first.ending.seconds)
    eager = case.runs.in_eager_once("running it without torch.compile for as long", seconds)
    if case.found is None or not eager.over_time:
        return None
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        "The program does not end without torch.compile either, so the compiler is not to blame.",
        "likely",
    )
    result.add(case.found.failure.text, "with torch.compile")
    result.add(f"still running after {eager.ending.seconds:.0f} s", "without torch.compile")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
