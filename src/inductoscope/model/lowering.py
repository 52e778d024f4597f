"""What an FX node became, as its event describes it."""

from __future__ import annotations

from inductoscope.model.entities import LoweredNode
from inductoscope.recording.events.graphs import NodeLowered
from inductoscope.recording.values import filled


def lowered(event: NodeLowered) -> LoweredNode:
    """What the event says."""
    return filled(
        LoweredNode,
        node=event.node,
        target=event.target,
        ir=event.ir,
        made=event.made,
        fallback=event.fallback,
        seconds=event.seconds,
    )
