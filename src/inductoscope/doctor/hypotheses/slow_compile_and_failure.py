"""A program that fails for no known reason has a compile that takes out of all proportion.

When it applies: The program fails with every compiled graph right, no level of the compiler and no
rounding is to blame, and a compile took so long that it is worth to look closer.

What it runs: The program in eager, unless that was done. Then as for a program that ends well: its
graph and plain graphs in turns, the reproducer, and what made the graph compile faster.

What it concludes: Slow, under the same conditions. Whether that is why the program fails stays
open, and the verdict says so.

How sure: Proven if the reproducer is slow every time, likely if it is most times.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.slow_verdict import measured_in_program, proven_slow
from inductoscope.doctor.verdict import Verdict
from inductoscope.profiling.compile_growth import slow_compiles


def _applies(case: ProgramCase) -> bool:
    is_over = case.first.ending.signal is None
    return case.fails_unexplained and is_over and bool(slow_compiles(case.recording))


def _examine(case: ProgramCase) -> Verdict | None:
    if not case.runs.in_eager_once().ended_well:
        return None  # It is not the compiler that it fails for.
    suspect = slow_compiles(case.recording)[0]
    found = measured_in_program(case, suspect)
    return proven_slow(case, found, suspect) if found is not None else None


HYPOTHESIS = Hypothesis(_applies, _examine)
