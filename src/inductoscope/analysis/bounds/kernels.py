"""All memory accesses of a recording's kernels, judged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from inductoscope.analysis.bounds.bodies import read_body
from inductoscope.analysis.bounds.expressions import FAILURES, NotUnderstood
from inductoscope.analysis.bounds.judging import judge_body, judge_parts
from inductoscope.analysis.bounds.points import OutOfTime, Purse
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import JudgedAccess, OutOfReach, Verdict
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.memory import GraphMemory, read_memory
from inductoscope.model.schedule import ScheduledNode, read_schedule

# Points of loops that are computed for one graph where a proof is not found; a few seconds.
MOST_POINTS = 2_000_000
# For a whole recording.
MOST_SECONDS = 300.0


@dataclass(frozen=True)
class JudgedGraph:
    """The accesses of one graph that Inductor compiled."""

    compile: Compile
    graph: InductorGraph
    memory: GraphMemory
    accesses: tuple[JudgedAccess, ...]
    # Kernels without a loop body: calls of a library, and templates.
    without_body: tuple[str, ...]


def judge_recording(
    recording: Recording, *, points: int = MOST_POINTS, seconds: float = MOST_SECONDS
) -> Iterator[JudgedGraph]:
    """Every graph that was compiled, in order. One that came from a cache has no loop bodies."""
    until = time.monotonic() + seconds
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            if graph.scheduled_after or graph.scheduled_before:
                yield judge_graph(recording, compile_, graph, points=points, until=until)


def judge_graph(
    recording: Recording, compile_: Compile, graph: InductorGraph, *, points: int, until: float
) -> JudgedGraph:
    """The accesses of one graph."""
    memory = read_memory(recording, compile_, graph)
    sizes, purse = AdmittedSizes(memory), Purse(points, until)
    scheduled = read_schedule(recording, graph.scheduled_after or graph.scheduled_before)
    leaves = [leaf for node in scheduled for leaf in node.leaves]
    kernels = {node: kernel.name for kernel in graph.kernels for node in kernel.nodes}
    work = _GraphWork(sizes, purse, {})
    judged = [
        access
        for leaf in leaves
        if leaf.body
        for access in _judge_leaf(recording, leaf, kernels.get(leaf.name, ""), work)
    ]
    judged += [
        JudgedAccess("", "", "", access.operation, access.buffer, str(access.index), verdict)
        for access, verdict in judge_parts(sizes, purse)
    ]
    with_body = {kernels.get(leaf.name, "") for leaf in leaves if leaf.body}
    others = tuple(k.name for k in graph.kernels if k.name not in with_body)
    return JudgedGraph(compile_, graph, memory, tuple(judged), others)


@dataclass(frozen=True)
class _GraphWork:
    """What the loop bodies of a graph share."""

    sizes: AdmittedSizes
    purse: Purse
    known: dict[object, Verdict]


def _judge_leaf(
    recording: Recording, leaf: ScheduledNode, kernel: str, work: _GraphWork
) -> Iterator[JudgedAccess]:
    text = recording.payload(leaf.body)
    try:
        if work.purse.is_late:
            raise OutOfTime
        body = read_body(text)
        judged = list(judge_body(body, work.sizes, leaf.indirect, work.purse, work.known))
    except (NotUnderstood, OutOfTime, *FAILURES) as why:
        lost = OutOfReach(_why_lost(why))
        yield JudgedAccess(kernel, leaf.name, "", "", "", "", lost, leaf.origins)
        return
    written = _written_indices(text)
    for access, verdict in judged:
        yield JudgedAccess(
            kernel=kernel,
            node=leaf.name,
            line=access.line,
            operation=access.operation,
            buffer=access.buffer,
            index=written.get((access.operation, access.line), str(access.index)),
            verdict=verdict,
            origins=leaf.origins,
        )


def _why_lost(why: Exception) -> str:
    if isinstance(why, OutOfTime):
        return str(why)
    return f"not understood: {why if isinstance(why, NotUnderstood) else type(why).__name__}"


def _written_indices(text: str) -> dict[tuple[str, str], str]:
    """The index of each line as torch printed it."""
    indices: dict[str, str] = {}
    names: dict[str, str] = {}
    found: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" = ")
        if rest.startswith("self.get_index('"):
            names[name] = indices.get(rest.partition("'")[2].partition("'")[0], "")
        elif rest.startswith("ops."):
            operation, _, arguments = rest.removeprefix("ops.").partition("(")
            parts = arguments.split(", ")
            if len(parts) > 1 and parts[1].rstrip(")") in names:
                found[operation, name] = names[parts[1].rstrip(")")]
        elif name and not line.startswith(" "):
            indices[name] = rest
    return found
