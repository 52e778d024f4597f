"""A kernel, a call of a library, or a buffer's memory in new hands, as the event describes it."""

from __future__ import annotations

from inductoscope.model.entities import Kernel, Reuse
from inductoscope.recording.events.code import BufferReused, KernelDefined
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


def reuse(event: BufferReused) -> Reuse:
    """What the event says."""
    return Reuse(event.old, event.new, event.how)
