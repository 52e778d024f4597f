"""The program fails with Dynamo and AOTAutograd, without Inductor.

When it applies: The program fails with every compiled graph right, and ends well in eager and with
Dynamo alone.

What it runs: The program with backend='aot_eager'; if it fails the same way, that and the program
in eager once more.

What it concludes: Not Inductor but AOTAutograd, if it fails the same way twice and ends well in
eager twice. If the runs disagree: nothing is known to be wrong.

How sure: Proven by four runs.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.compiler_level import CompilerLevel, verdict_on_level
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages

_AOT = CompilerLevel(
    stage=stages.AOT,
    backend="aot_eager",
    function="torch._functorch.aot_autograd",
    why="running it with Dynamo and AOTAutograd, without Inductor",
    summary="AOTAutograd alone is wrong: the program fails with backend='aot_eager' too, and does "
    "not fail with Dynamo alone or without torch.compile.",
)


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained


def _examine(case: ProgramCase) -> Verdict | None:
    return verdict_on_level(_AOT, case)


HYPOTHESIS = Hypothesis(_applies, _examine)
