"""Loop bodies in which the same values are computed over and over.

What it finds: a loop body of at least 1,000 operations, 20 times as many as the operations of the
graph that it comes from.

Why it matters: Inductor puts the computation of a value into everything that reads it. If each
value is read twice, and so is each that is computed from it, the loop body doubles with every step.
The C++ compiler and Triton remove what is repeated, but every stage before them goes through all of
it.

Example: `last = [last[0] + last[1], last[0] * last[1]]`, repeated 12 times.

What to do: Have values kept: lower `torch._inductor.config.realize_opcount_threshold` (30), so that
a value that takes several operations is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.join import place_of
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages

NAME = "repeated_expressions"
_FEWEST = 1_000
_FACTOR = 20
# What reads and writes memory; the rest computes.
_MEMORY = ("load", "store", "store_reduction", "index_expr", "constant")


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per compiled function, about its largest loop body."""
    seen: set[str] = set()
    for compile_ in recording.compiles:
        found = [
            (count, leaf, graph)
            for graph in compile_.inductor
            for node in read_schedule(recording, graph.scheduled_after)
            for leaf in node.leaves
            if (count := _operations(recording, leaf)) >= max(_FEWEST, _FACTOR * len(leaf.origins))
        ]
        if found and compile_.function not in seen:
            seen.add(compile_.function)
            count, leaf, graph = max(found, key=lambda each: each[0])
            yield _finding(recording, compile_, graph, leaf, count)


def _operations(recording: Recording, leaf: ScheduledNode) -> int:
    """How many operations its loop body has, besides those on memory."""
    if not leaf.body or not leaf.origins:
        return 0
    body = recording.payload(leaf.body)
    return body.count("= ops.") - sum(body.count(f"= ops.{name}(") for name in _MEMORY)


def _finding(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    leaf: ScheduledNode,
    count: int,
) -> Finding:
    where, code = place_of(recording, compile_, graph, leaf.origins)
    return Finding(
        rule=NAME,
        title=f"A loop body has {count:,} operations for {len(leaf.origins)} of the graph: values "
        "are computed again wherever they are read",
        is_problem=False,
        confidence="proven",
        evidence=(f"{leaf.name} of {graph.key}: {count:,} operations besides loads and stores",),
        advice="Have values kept instead: torch._inductor.config.realize_opcount_threshold = 4.",
        stage=stages.LOWERING,
        source=where,
        compile=compile_.id,
        code=code,
    )
