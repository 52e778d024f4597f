"""A kernel that leaves a buffer.

What it finds: a load or store in a loop body whose index leaves the buffer, at sizes that the
guards admit. The sizes, the point of the loops and the position are computed with whole numbers,
and satisfy all masks and guards. Accesses that merely could not be proven are not reported.

Why it matters: such a kernel reads or overwrites other memory: wrong numbers, an illegal memory
access, or a crash somewhere else. It may do so only at sizes that the recorded run did not have.

Example: a lowering that reads `x[i + 1]` up to the last `i`.

What to do: `inductoscope bounds RECORDING` lists every access, and with `--try` runs the graph at
such a size. If you registered the lowering or pass yourself, correct its index; else report it.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.bounds.kernels import JudgedGraph, judge_recording
from inductoscope.analysis.bounds.sentences import (
    broken_sentence,
    does,
    sizes_sentence,
    who,
)
from inductoscope.analysis.bounds.verdicts import Broken, JudgedAccess
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import final_graph
from inductoscope.torch_facts import stages

# A summary must not keep anybody waiting: proofs are quick, computing points is not.
_POINTS = 20_000
_SECONDS = 5.0
_ADVICE = "'inductoscope bounds RECORDING --try' runs the graph at a size that breaks it."


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel and buffer."""
    seen = set()
    judged_graphs = judge_recording(
        recording, points=_POINTS, seconds=_SECONDS, only_accesses_in_doubt=True
    )
    for judged in judged_graphs:
        for access in judged.accesses:
            key = (judged.compile.id, judged.graph.key, access.kernel, access.buffer)
            if isinstance(access.verdict, Broken) and key not in seen:
                seen.add(key)
                yield _finding(recording, judged, access, access.verdict)


def _finding(
    recording: Recording, judged: JudgedGraph, access: JudgedAccess, found: Broken
) -> Finding:
    done = "places a part" if access.operation == "part" else does(access)
    sizes = sizes_sentence(judged, found)
    graph = read_graph(recording, final_graph(judged.compile, judged.graph))
    nodes = [node for node in (graph.nodes if graph else ()) if node.name in access.origins]
    place = next((node.place for node in reversed(nodes) if node.place), None)
    return Finding(
        rule="out_of_bounds",
        title=f"{who(access)} {done} outside {access.buffer}"
        + (f" where {sizes}" if sizes else ""),
        is_problem=True,
        confidence="proven",
        evidence=(broken_sentence(judged, access, found),),
        advice=_ADVICE,
        stage=stages.LOOP_BODY,
        source=str(place) if place else "",
        compile=judged.compile.id,
    )
