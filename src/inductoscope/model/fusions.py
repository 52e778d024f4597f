"""Rounds, pairs and fusions of the scheduler, as the events describe them."""

from __future__ import annotations

from inductoscope.model.entities import Fusion, FusionPair, FusionRound
from inductoscope.recording.events.graphs import FusionRoundDone, PairConsidered, PairFused
from inductoscope.recording.values import filled


def fusion_round(event: FusionRoundDone) -> FusionRound:
    """One sweep over all pairs."""
    return FusionRound(
        number=event.round,
        before=event.before,
        after=event.after,
        seconds=event.seconds,
        settings=event.settings,
    )


def fusion_pair(event: PairConsidered) -> FusionPair:
    """A pair that was considered. Old recordings have the first six fields only."""
    return filled(
        FusionPair,
        round=event.round,
        first=event.first,
        second=event.second,
        type=event.type,
        possible=event.possible,
        reasons=event.reasons,
        shared=event.shared,
        decided=event.decided,
        within=event.within,
        attempted=event.step == "attempt",
    )


def fused(event: PairFused) -> Fusion:
    """Two nodes that became one."""
    return filled(
        Fusion,
        round=event.round,
        first=event.first,
        second=event.second,
        result=event.result,
        type=event.type,
        bytes_saved=event.bytes_saved,
        score=event.score,
    )
