"""The tool keeps the program from failing.

When it applies: The program fails without the tool and not with it, and neither random numbers nor
CUDA graphs explain that.

What it runs: Nothing more.

What it concludes: That it fails, and that the cause is unknown.

How sure: Unknown.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import nothing_found
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages


def _applies(case: ProgramCase) -> bool:
    return case.ends_well


def _examine(case: ProgramCase) -> Verdict:
    plain = case.runs.without_tool_once()
    result = Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        "The program fails on its own but not under inductoscope, which limits it to one OpenMP "
        "thread and uses eager's random numbers; the cause is unknown.",
    )
    result.add(f"exit code {plain.ending.exit_code} without the tool, 0 with it", "two runs")
    result.add(plain.output[-800:], "what the program printed without the tool")
    result.evidence += nothing_found(case).evidence
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
