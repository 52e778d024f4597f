"""Threads that are started and waited for again and again within one kernel.

What it finds: a C++ kernel with a parallel region inside a loop, which is entered at least 8 times
per call.

Why it matters: Each time, all threads start, share a small piece of work and wait for each other.
Eager shares out the outer loop instead, once.

Example: a normalization or reduction with few, long rows: `GroupNorm` on 40 groups of 50,000
elements.

What to do: Leave the operation to eager, or run it on one thread, if 'inductoscope profile --advise
SCRIPT' shows that it is faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.cpp_loops import CppLoop, read_loops

FEWEST_STARTS = 8


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel."""
    for place in kernel_places(recording, "C++"):
        loops = read_loops(recording.payload(place.kernel.digest))
        starts = [count for loop in loops for count in _starts((), loop)]
        if max(starts, default=0) >= FEWEST_STARTS:
            yield _finding(place, max(starts))


def _starts(outer: tuple[CppLoop, ...], loop: CppLoop) -> Iterator[int]:
    """How often each parallel region inside of a loop is entered per call."""
    around = (*outer, loop)
    if loop.starts_threads:
        yield math.prod(one.elements for one in around)
    for inner in loop.inner:
        yield from _starts(around, inner)


def _finding(place: KernelPlace, starts: int) -> Finding:
    where, code = place.line("norm")
    return Finding(
        rule="threads_restarted",
        title=f"A kernel starts and stops its threads {starts:,} times per call",
        is_problem=False,
        confidence="proven",
        evidence=(
            f"kernel {place.kernel.name}: '#pragma omp parallel' inside a loop of {starts:,} "
            "rounds",
        ),
        advice="Inductor shares out the inner loop because the outer one has too few rounds for "
        "its heuristic. Leave the operation to eager if that is faster.",
        stage=stages.CODEGEN,
        source=where,
        compile=place.compile.id,
        code=code,
    )
