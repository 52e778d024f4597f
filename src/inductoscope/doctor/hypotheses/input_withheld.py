"""The program asks for input, and the doctor keeps the terminal from it.

When it applies: The program fails because `input()` finds no input, and the doctor, which runs a
program several times, gave it neither the terminal nor a pipe.

What it runs: Nothing.

What it concludes: Not checked, and how to give the input to every run.

How sure: Proven by the exception, and by what the doctor itself withheld.
"""

from __future__ import annotations

import re

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.torch_facts import stages

# What `input()` raises at the end of standard input.
_NO_INPUT = re.compile(r"^EOFError: EOF when reading a line$", re.MULTILINE)


def _applies(case: ProgramCase) -> bool:
    is_asking = bool(_NO_INPUT.search(case.first.output))
    return case.fails_unexplained and case.runs.withholds_input and is_asking


def _examine(case: ProgramCase) -> Verdict | None:
    result = Verdict(
        v.NOT_CHECKED,
        stages.USER,
        "The program asks for input, and the doctor does not pass the terminal on, because it "
        "runs the program several times. Write the input to a file: inductoscope doctor SCRIPT "
        "< FILE",
        "proven",
    )
    result.add("EOFError: EOF when reading a line", "what the program printed last")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
