"""A kernel, or a call of a library, as its event describes it."""

from __future__ import annotations

from inductoscope.model.entities import Kernel
from inductoscope.recording.events.code import KernelDefined
from inductoscope.recording.values import filled


def kernel(event: KernelDefined) -> Kernel:
    """What the event says."""
    return filled(
        Kernel,
        name=event.name,
        language=event.language,
        digest=event.payload,
        nodes=event.nodes,
        origins=event.origins,
        reads=event.reads,
        writes=event.writes,
        lines=event.lines,
        numbered=event.numbered,
    )
