"""A compiled graph fails, and a script shows it without the tool.

When it applies: A failure was found inside the program.

What it runs: The reproducer in fresh processes and, in parallel, the program with each workaround
that helps the graph, until one helps the program.

What it concludes: What was found, with the reproducer and the workaround, if every run of the
reproducer fails.

How sure: That it fails is proven. The place is as sure as the way in which it was found.
"""

from __future__ import annotations

from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.found is not None


def _examine(case: ProgramCase) -> Verdict | None:
    if case.found is None:
        return None
    case.proof.prove_and_help(case.found, case.runs, calls=case.instructions.calls)
    return case.proof.verdict_on(case.found) if case.proof.is_verified else None


HYPOTHESIS = Hypothesis(_applies, _examine)
