"""The program fails with Dynamo alone.

When it applies: The program fails with every compiled graph right, with and without the tool, and
ends well in eager.

What it runs: The program with each graph in eager; if it fails the same way, that and the program
in eager once more.

What it concludes: Not Inductor but Dynamo, if it fails the same way twice and ends well in eager
twice. If the runs disagree: nothing is known to be wrong.

How sure: Proven by four runs.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.compiler_level import CompilerLevel, verdict_on_level
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages

_DYNAMO = CompilerLevel(
    stage=stages.DYNAMO,
    backend="eager",
    function="torch._dynamo",
    why="running it with Dynamo alone, each graph in eager",
    summary="Dynamo captures something other than what the program computes: it also fails with "
    "every graph run in eager, and does not fail without torch.compile.",
)


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained


def _examine(case: ProgramCase) -> Verdict | None:
    return verdict_on_level(_DYNAMO, case)


HYPOTHESIS = Hypothesis(_applies, _examine)
