"""Small reductions on a GPU that are split into two kernels.

What it finds: a reduction that reads less than 1 MiB and that Inductor computes in two kernels, the
second of which only adds up what the first left.

Why it matters: Inductor splits a reduction with few results so that more of the GPU works on it.
For so little data the launch of the second kernel takes longer than that saves.

Example: the sum over a tensor of 100,000 elements.

What to do: `torch._inductor.config.split_reductions = False` computes it in one kernel.
'inductoscope profile --advise SCRIPT' tries it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.join import place_of
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages

SMALL = 1 << 20


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per reduction."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            nodes = read_schedule(recording, graph.scheduled_after)
            for first, second in split_in_two(nodes):
                moved = sum(first.bytes.values())
                if 0 < moved < SMALL:
                    yield _finding(recording, compile_, graph, (first, second))


def split_in_two(
    nodes: tuple[ScheduledNode, ...],
) -> Iterator[tuple[ScheduledNode, ScheduledNode]]:
    """Kernels on a GPU of which the second only finishes the reduction of the first."""
    on_gpu = [n for n in nodes if all(leaf.device.startswith("cuda") for leaf in n.leaves)]
    makers: dict[str, dict[int, ScheduledNode]] = defaultdict(dict)
    for node in on_gpu:
        for part in _reductions(node):
            for name in part.writes:
                makers[name][id(node)] = node
    order = {id(node): number for number, node in enumerate(nodes)}
    found = {
        (order[id(first)], order[id(second)])
        for second in on_gpu
        for last in _reductions(second)
        # What it finishes has written all that it reads.
        for first in makers.get(last.reads[0] if last.reads else "", {}).values()
        if first is not second and any(_finishes(part, last) for part in _reductions(first))
    }
    for first_place, second_place in sorted(found):
        yield nodes[first_place], nodes[second_place]


def _reductions(node: ScheduledNode) -> list[ScheduledNode]:
    return [leaf for leaf in node.leaves if leaf.loops == "Reduction"]


def _finishes(part: ScheduledNode, last: ScheduledNode) -> bool:
    return set(last.reads) <= set(part.writes) and bool(set(last.origins) & set(part.origins))


def _finding(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    pair: tuple[ScheduledNode, ScheduledNode],
) -> Finding:
    first, second = pair
    where, code = place_of(recording, compile_, graph, second.leaves[-1].origins)
    return Finding(
        rule="split_reductions",
        title=f"A reduction of {sum(first.bytes.values()):,} bytes is computed in two kernels",
        is_problem=False,
        confidence="proven",
        evidence=(f"{first.name} computes parts of it, and {second.name} only puts them together",),
        advice="torch._inductor.config.split_reductions = False computes it in one.",
        stage=stages.LOWERING,
        source=where,
        compile=compile_.id,
        code=code,
    )
