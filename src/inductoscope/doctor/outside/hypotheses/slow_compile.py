"""Compiling takes out of all proportion.

When it applies: The program ended by itself and nothing is known to be wrong with a graph, but a
compile took so long, measured by the import of torch and by its other stages, that it is worth to
look closer.

What it runs: The program in eager, if it failed. Then once more, up to that graph: growing parts of
it and plain graphs are compiled there, in forks. Then the reproducer and, on the program, what made
the graph compile faster.

What it concludes: Slow, with the stage and the function, if the graph's compile takes several times
as long as that of as many pointwise nodes, or if a stage that takes most of it grows much faster
than the graph.

How sure: Proven if the reproducer is slow every time; likely if there is none.
"""

from __future__ import annotations

from dataclasses import replace

from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.handover import Found, read_found
from inductoscope.doctor.instructions import FOLDER
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.outside.slow_verdict import help_with_slow_compile, verdict_on_slow_compile
from inductoscope.doctor.verdict import Verdict
from inductoscope.profiling.compile_time.suspicion import SlowCompile, slow_compiles


def _applies(case: ProgramCase) -> bool:
    is_over = case.ends_well or (case.first.failed and case.first.ending.signal is None)
    return case.found is None and is_over and bool(slow_compiles(case.recording))


def _examine(case: ProgramCase) -> Verdict | None:
    if case.first.failed and not case.runs.in_eager_once().ended_well:
        return None  # It is not the compiler that it fails for.
    suspect = slow_compiles(case.recording)[0]
    found = _measured_in_program(case, suspect)
    if found is None or not found.reproduces:
        return None
    case.found = found
    case.proof.prove(found)
    workaround = help_with_slow_compile(case, found, suspect)
    return verdict_on_slow_compile(case, found, suspect, workaround)


def _measured_in_program(case: ProgramCase, suspect: SlowCompile) -> Found | None:
    text = f"compile {suspect.compile} took {suspect.of:.1f} s, {suspect.seconds:.1f} s of it in "
    failure = Failure(SLOW, f"{text}{suspect.stage}", stage=suspect.stage)
    stop = replace(case.instructions, stop_at=suspect.compile, failure=failure, calls=0)
    run = case.runs.again(stop, f"{failure.text}; running it again up to there", seconds=1800.0)
    return read_found(run.folder / FOLDER)


HYPOTHESIS = Hypothesis(_applies, _examine)
