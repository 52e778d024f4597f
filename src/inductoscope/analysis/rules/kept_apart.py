"""Loops that a limit of torch's settings keeps apart.

What it finds: loops that share at least 1 MiB of data and were not fused because of a limit
that a setting holds, such as `max_fusion_size`; with the bytes that are moved again for it.

Why it matters: what the first loop writes, the second reads again from memory.

Example: `torch._inductor.config.max_fusion_size = 1`.

What to do: the setting is named. 'inductoscope fusion RECORDING --why FIRST,SECOND --try' compiles
with it, and 'inductoscope profile --advise SCRIPT' measures what it gains.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.fusion.ledger import (
    REFUSED,
    Condition,
    LedgerRow,
    conditions,
    graph_ledger,
)
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fold import may_mention
from inductoscope.model.join import place_of
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

FEWEST_BYTES = 1 << 20
# Refusals that a setting decides, as torch words them. Others say something about the program.
LIMITS = (
    "exceeds max fusion",
    "fusion_prevent_too_many_reads_and_writes",
    "score_fusion_memory_threshold",
    "prologue fusion turned off",
    "template epilogue not satisfied",
)


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per graph and setting."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            if may_mention(graph.pairs, LIMITS) and any(
                reason in LIMITS for pair in graph.pairs for reason in pair.reasons
            ):
                yield from _check_graph(recording, compile_, graph)


def _check_graph(
    recording: Recording, compile_: Compile, graph: InductorGraph
) -> Iterator[Finding]:
    rows = [row for row in graph_ledger(recording, compile_, graph) if _is_limited(row)]
    for condition in conditions(rows, REFUSED):
        if (condition.bytes or 0) >= FEWEST_BYTES:
            yield _finding(recording, compile_, graph, condition)


def _is_limited(row: LedgerRow) -> bool:
    return row.outcome == REFUSED and row.torch in LIMITS


def _finding(
    recording: Recording, compile_: Compile, graph: InductorGraph, condition: Condition
) -> Finding:
    loss = condition.losses[0]
    where, code = place_of(recording, compile_, graph, loss.row.second_operations)
    at_most = "up to " if loss.at_most else ""
    setting, value = next(iter(condition.tries[0].items())) if condition.tries else ("", None)
    return Finding(
        rule="kept_apart",
        title=f"{count_of(condition.places, 'pair')} of loops kept apart by a limit: {at_most}"
        f"{condition.bytes or 0:,} bytes are moved again on every call",
        is_problem=False,
        confidence="proven",
        evidence=(f"{loss.label}: {condition.torch}", condition.reason),
        advice=(f"torch._inductor.config.{setting} = {value!r} lifts it. " if setting else "")
        + condition.what_to_change,
        stage=stages.SCHEDULER,
        source=where,
        compile=compile_.id,
        code=code,
    )
