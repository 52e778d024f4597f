"""What torch does otherwise than on a real device, noted in the recording."""

from __future__ import annotations

from inductoscope.capture.observe import current_compile_id
from inductoscope.capture.scope import SCOPE
from inductoscope.recording.events.compiling import TargetNoted


def note_difference(text: str) -> None:
    """Note it for the graph that is being compiled. Never raises."""
    SCOPE.guard(_emit, text)


def _emit(text: str) -> None:
    SCOPE.emit(TargetNoted(compile=current_compile_id(), note=text))
