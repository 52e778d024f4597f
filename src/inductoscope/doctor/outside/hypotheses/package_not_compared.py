"""The program fails, and it calls a package that can neither be compared nor left out.

When it applies: No compiled graph is known to be wrong, and a package was made elsewhere.

What it runs: Nothing: a run in eager would call the package as well.

What it concludes: Nothing about the cause, and what to examine instead.

How sure: The cause is unknown.
"""

from __future__ import annotations

from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.verdict import Verdict
from inductoscope.processes.last_words import last_lines
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v


def _applies(case: ProgramCase) -> bool:
    return case.fails_unexplained and bool(case.packages_from_elsewhere)


def _examine(case: ProgramCase) -> Verdict:
    names = ", ".join(case.packages_from_elsewhere)
    result = Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        f"The program fails, and it calls {names}, which was made elsewhere. Whether that computes "
        "what it should shows only beside the program that makes it: examine that one.",
    )
    result.add("\n".join(last_lines(case.first.output, 3)), "what the program printed last")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
