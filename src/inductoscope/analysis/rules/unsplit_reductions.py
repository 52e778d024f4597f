"""Large reductions on a GPU that are not split, so that hardly any of the GPU works on them.

What it finds: a reduction of at least a million elements each to fewer results than a small GPU has
multiprocessors, in one kernel.

Why it matters: each result is computed by one block of threads, on one multiprocessor. The others
have nothing to do. Inductor usually splits such a reduction into two kernels.

Example: the sum over a tensor of 67 million elements with split_reductions switched off takes 17
times as long as in eager on an H200.

What to do: leave `torch._inductor.config.split_reductions` on. 'inductoscope profile --advise
SCRIPT' tries it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.join import place_of
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages

LARGE = 1 << 20
_FEW_RESULTS = 16


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per reduction."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            for node in read_schedule(recording, graph.scheduled_after):
                for leaf in node.leaves:
                    if is_unsplit(leaf):
                        yield _finding(recording, compile_, graph, leaf)


def is_unsplit(leaf: ScheduledNode) -> bool:
    """Whether few blocks compute a large reduction; sizes that are not numbers are not judged."""
    if leaf.loops != "Reduction" or not leaf.device.startswith("cuda") or len(leaf.sizes) < 2:
        return False
    if not all(size.isdigit() for sizes in leaf.sizes for size in sizes):
        return False
    results, reduced = (math.prod(map(int, sizes)) for sizes in leaf.sizes[:2])
    return results < _FEW_RESULTS and reduced >= LARGE


def _finding(
    recording: Recording, compile_: Compile, graph: InductorGraph, leaf: ScheduledNode
) -> Finding:
    where, code = place_of(recording, compile_, graph, leaf.origins)
    results, reduced = (math.prod(map(int, sizes)) for sizes in leaf.sizes[:2])
    blocks = "one block" if results == 1 else f"{results} blocks"
    return Finding(
        rule="unsplit_reductions",
        title=f"A reduction of {reduced:,} elements is computed by {blocks} of the GPU",
        is_problem=False,
        confidence="proven",
        evidence=(f"{leaf.name} reduces {reduced:,} elements for each of its {results} results",),
        advice="torch._inductor.config.split_reductions = True computes it in two kernels.",
        stage=stages.LOWERING,
        source=where,
        compile=compile_.id,
        code=code,
    )
