"""Compiling takes out of all proportion.

When it applies: The program ended well, and a compile took so long, measured by the import of torch
and by its other stages, that it is worth to look closer.

What it runs: The program once more, up to that graph: parts of it and plain graphs are compiled
there in forks, in turns. If those show it, the program without the tool and the reproducer, and on
the program what made the graph compile faster.

What it concludes: Slow, with the stage and the function, if the graph's compile takes several times
as long as that of as many pointwise nodes, or if a stage that takes most of it grows much faster
than the graph, and if the reproducer is slow in most fresh processes. Nothing if the program fails
without the tool: that is graver.

How sure: Proven if the reproducer is slow every time, likely if it is most times.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.slow_verdict import measured_in_program, proven_slow
from inductoscope.doctor.verdict import Verdict
from inductoscope.profiling.compile_growth import slow_compiles


def _applies(case: ProgramCase) -> bool:
    return case.ends_well and bool(slow_compiles(case.recording))


def _examine(case: ProgramCase) -> Verdict | None:
    suspect = slow_compiles(case.recording)[0]
    found = measured_in_program(case, suspect)
    if found is None or case.runs.without_tool_once().ending.exit_code != 0:
        return None
    return proven_slow(case, found, suspect)


HYPOTHESIS = Hypothesis(_applies, _examine)
