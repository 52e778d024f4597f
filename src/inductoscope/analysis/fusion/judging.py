"""The outcome of a pair, from torch's decisions each time it considered the pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inductoscope.analysis.fusion.decisions import Consideration
from inductoscope.analysis.fusion.evidence import Evidence
from inductoscope.analysis.fusion.never import Never
from inductoscope.analysis.fusion.pairs import SHARED, Pair
from inductoscope.analysis.fusion.row import FUSED, NEVER, REFUSED, Judgement
from inductoscope.recording.values import members

_OTHER_GROUPS = {"ForeachKernelSchedulerNode": "foreach kernel", "GroupedSchedulerNode": "group"}


def judge_fused(pair: Pair, items: Sequence[Consideration], final: str, kind: str) -> Judgement:
    """A pair that ended up in one kernel: the group `final`, of this kind."""
    joined = next((item for item in items if item.outcome == FUSED), None)
    if joined is None:
        # Joined outside the fusion rounds, or each with a third node.
        words = f"fused (through the group {final})"
        return Judgement(outcome=FUSED, kind=_OTHER_GROUPS.get(kind, ""), reason=words)
    direct = {joined.first, joined.second} == {pair.first, pair.second}
    words = f"fused in round {joined.round}"
    if not direct:
        words = f"fused (through the group {_through(pair, joined)}) in round {joined.round}"
    score = members(joined.score).get("memory_score")
    return Judgement(
        outcome=FUSED,
        kind=joined.kind,
        score=float(score) if isinstance(score, (int, float)) else None,
        reason=words,
    )


def _through(pair: Pair, joined: Consideration) -> str:
    """The group through which two nodes were joined."""
    names = [
        name for name in (joined.first, joined.second) if name not in (pair.first, pair.second)
    ]
    return " with ".join(names)


def judge_refused(pair: Pair, items: Sequence[Consideration], evidence: Evidence) -> Judgement:
    """The last refusal decides: later rounds try the remaining pairs again."""
    last = next((item for item in reversed(items) if item.outcome == REFUSED), items[-1])
    if last.outcome != REFUSED or items[-1].round > last.round:
        last = items[-1]
        judgement = Judgement(
            outcome=REFUSED,
            kind=last.kind,
            reason="torch found it possible but did not fuse; the reason is unknown.",
            condition="possible, not done",
            confidence="unknown",
        )
    else:
        judgement = _refused(items, last)
    judgement = replace(judgement, values=evidence.values(pair, last))
    is_read_by_both = pair.relation == SHARED and pair.certain
    if is_read_by_both and last.torch.startswith("no shared data"):
        return _other_parts(judgement) if not pair.bytes else _other_order(judgement)
    return judgement


def _refused(items: Sequence[Consideration], last: Consideration) -> Judgement:
    explanation = last.explanation
    return Judgement(
        outcome=REFUSED,
        kind=last.kind or next((item.kind for item in reversed(items) if item.kind), ""),
        reason=explanation.words or last.torch or "torch refused without giving a reason.",
        torch=last.torch,
        what_to_change=explanation.change,
        tries=explanation.tries,
        condition=explanation.label or last.torch or "no reason given",
        confidence=last.confidence,
    )


def _other_parts(judgement: Judgement) -> Judgement:
    return replace(
        judgement,
        condition="different parts of a buffer",
        reason="They read different parts of the same buffer, so they share no data.",
        what_to_change="Nothing to change: fused, they would read just as much.",
        tries=(),
    )


def _other_order(judgement: Judgement) -> Judgement:
    return replace(
        judgement,
        condition="no shared data: another order",
        reason="They read the same data, but in different orders or with a different number of "
        "steps. torch counts data as shared only if both read it in the same order.",
    )


def judge_never(never: Never) -> Judgement:
    """A pair that torch did not consider."""
    explanation = never.explanation
    return Judgement(
        outcome=NEVER,
        reason=explanation.words,
        what_to_change=explanation.change,
        tries=explanation.tries,
        condition=explanation.label,
        confidence=never.confidence,
    )
