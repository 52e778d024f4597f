"""Kernels that are compiled one after the other.

What it finds: a program that sets `compile_threads = 1` and waits at least 5 seconds for two or
more kernels of one graph, which could be compiled at the same time.

Why it matters: C++ and Triton compilers take most of a first call, and they do not depend on each
other.

Example: `TORCHINDUCTOR_COMPILE_THREADS=1`, left over from debugging.

What to do: Leave the setting as it is: torch then uses as many threads as there are cores, up to
32.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import InductorGraph, Recording
from inductoscope.torch_facts import stages

SETTING = "torch._inductor.config.compile_threads"
FEWEST_SECONDS = 5.0


def check(recording: Recording) -> Iterator[Finding]:
    """One finding for the program."""
    alone = [
        compile_
        for compile_ in recording.compiles
        if compile_.settings and compile_.settings.config.get(SETTING) == "1"
    ]
    # Kernels of the same graph wait for each other; different graphs would do so anyway.
    several = [c for c in alone if any(_generated(graph) > 1 for graph in c.inductor)]
    wanted = {digest for compile_ in several for digest in compile_.libraries}
    runs = [native for native in recording.natives if native.seconds and native.digest in wanted]
    seconds = sum(native.seconds or 0.0 for native in runs)
    if len(runs) < 2 or seconds < FEWEST_SECONDS:
        return
    yield Finding(
        rule="compile_threads",
        title=f"{len(runs)} kernels are compiled one after the other, in {seconds:.1f} s",
        is_problem=False,
        confidence="proven",
        evidence=(f"{SETTING} = 1 in compile {several[0].id}",),
        advice="Leave compile_threads, or TORCHINDUCTOR_COMPILE_THREADS, as it is.",
        stage=stages.CPP_COMPILE,
        source=several[0].place,
        compile=several[0].id,
    )


def _generated(graph: InductorGraph) -> int:
    """How many kernels Inductor generated for a graph."""
    return sum(kernel.language in ("C++", "Triton") for kernel in graph.kernels)
