"""Rounds, pairs and fusions of the scheduler, read from the events that tell of them."""

from __future__ import annotations

from inductoscope.model.entities import Fusion, FusionPair, FusionRound
from inductoscope.recording.reader import Event
from inductoscope.recording.values import members


def fusion_round(event: Event) -> FusionRound:
    """One sweep over all pairs."""
    return FusionRound(
        number=event.whole("round"),
        before=event.whole("before"),
        after=event.whole("after"),
        seconds=event.real("seconds"),
        settings=members(event.fields.get("settings")),
    )


def fusion_pair(event: Event) -> FusionPair:
    """A pair that was considered. Recordings of old versions hold the first six fields only."""
    return FusionPair(
        round=event.whole("round"),
        first=event.text("first"),
        second=event.text("second"),
        type=event.text("type"),
        possible=bool(event.fields.get("possible")),
        reasons=event.texts("reasons"),
        shared=_number(event, "shared"),
        decided=members(event.fields.get("decided")),
        within=event.texts("within"),
        attempted=event.text("step") == "attempt",
    )


def fused(event: Event) -> Fusion:
    """Two nodes that became one."""
    return Fusion(
        round=event.whole("round"),
        first=event.text("first"),
        second=event.text("second"),
        result=event.text("result"),
        type=event.text("type"),
        bytes_saved=_number(event, "bytes_saved"),
        score=members(event.fields.get("score")),
    )


def _number(event: Event, name: str) -> int | None:
    value = event.fields.get(name)
    return value if isinstance(value, int) else None
