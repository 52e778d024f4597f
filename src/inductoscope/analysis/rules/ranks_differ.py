"""Ranks of one job that compiled something else than the others.

What it finds: the first decision with which a rank leaves the majority of the ranks: another graph,
other collectives or another order of them, a guard that failed only there. Where no value has a
majority, nobody is accused.

Why it matters: ranks of one process group that call different collectives wait for each other
forever. Different graphs are by design where ranks do different work, as stages of a pipeline do.

Example: `if rank == 0: loss = all_reduce(loss)` inside the compiled function.

What to do: make the branch the same on all ranks. `inductoscope preflight --world N SCRIPT` tells
before a job is started whether its ranks agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.ranks.comparing import OddRanks, RankSide, RankSplit
from inductoscope.analysis.ranks.decisions import KINDS, Weight
from inductoscope.analysis.ranks.recorded import ranks_of
from inductoscope.analysis.ranks.report import (
    RankReport,
    is_deadly,
    is_deadly_split,
    ranks_text,
)
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording

_ADVICE = (
    "Make the branch that leads there the same on all ranks. Before the next job: inductoscope "
    "preflight --world N SCRIPT."
)
_BY_DESIGN = "Nothing to do if these ranks are to do different work, as stages of a pipeline do."


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per group of ranks that decided the same, and one per split."""
    report = ranks_of(recording)
    if report is None:
        return
    for odd in report.comparison.odd:
        if odd.weight is not Weight.COST and not odd.others_may_follow:
            yield _finding(report, odd, _title_of_odd(odd), is_deadly(odd))
    for split in report.comparison.splits:
        if split.weight is not Weight.COST and not split.is_by_rank:
            title = f"Ranks are divided over {KINDS[split.kind].words} at {split.key}"
            yield _finding(report, split, title, is_deadly_split(split))


def _title_of_odd(odd: OddRanks) -> str:
    ranks = ranks_text(odd.odd.ranks)
    return f"{ranks[0].upper()}{ranks[1:]} left the others at {odd.key}: {KINDS[odd.kind].words}"


def _finding(
    report: RankReport, difference: OddRanks | RankSplit, title: str, deadly: bool
) -> Finding:
    sides: tuple[RankSide, ...] = (
        (difference.odd, difference.majority)
        if isinstance(difference, OddRanks)
        else difference.sides[:2]
    )
    evidence = [f"{ranks_text(side.ranks)}: {side.text}" for side in sides]
    line = report.first_lines.get((difference.kind, difference.key))
    if line is not None:
        evidence.append(f"line {line.number}: {line.odd or '(nothing)'}")
        evidence.append(f"instead of: {line.majority or '(nothing)'}")
    return Finding(
        rule="ranks_differ",
        title=title,
        is_problem=deadly,
        confidence="likely",
        evidence=tuple(evidence),
        advice=_ADVICE if deadly else _BY_DESIGN,
        compile=difference.key.partition(" ")[0],
    )
