"""Autotuning that found nothing clearly faster than the library.

What it finds: a graph whose autotuning took at least 5 seconds, and in which no winner is more than
5 percent faster than the library's kernel for the same operation.

Why it matters: the search is repeated whenever torch's caches are empty, and what it gains is less
than what such timings vary by.

Example: `mode="max-autotune"` for matrix products that cuBLAS or oneDNN computes as fast.

What to do: Leave `max_autotune` off for this program, or keep the caches
(`TORCHINDUCTOR_CACHE_DIR`). 'inductoscope profile --autotune SCRIPT' says what each search gained
in the program, and after how many calls it pays.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

FEWEST_SECONDS = 5.0
CLEARLY = 1.05


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per graph."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            seconds = graph.seconds.get(stages.AUTOTUNE, 0.0)
            gains = [tuned.gain for tuned in graph.autotunes]
            known = [gain for gain in gains if gain is not None]
            # A search without a library kernel to compare with may have been worth it.
            if seconds < FEWEST_SECONDS or not known or len(known) < len(gains):
                continue
            if max(known) < CLEARLY:
                yield _finding(compile_, graph, seconds, max(known))


def _finding(compile_: Compile, graph: InductorGraph, seconds: float, gain: float) -> Finding:
    operations = count_of(len(graph.autotunes), "operation")
    by = f"at most {gain - 1:.0%}" if gain > 1 else "nothing"
    return Finding(
        rule="tuning_gained_little",
        title=f"Autotuning of {operations} took {seconds:.0f} s and gained {by} over the library",
        is_problem=False,
        confidence="proven",
        evidence=tuple(
            f"{tuned.operation}: {tuned.winner} of {len(tuned.choices)} choices"
            for tuned in graph.autotunes[:4]
        ),
        advice="Leave max_autotune off here, or keep torch's caches between runs.",
        stage=stages.AUTOTUNE,
        source=compile_.place,
        compile=compile_.id,
    )
