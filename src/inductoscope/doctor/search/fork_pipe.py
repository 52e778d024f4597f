"""What a fork tells its parent while it works, through a pipe."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from inductoscope.recording.codec import encode
from inductoscope.recording.events.base import Event, written_fields
from inductoscope.recording.events.checking import KernelLaunched
from inductoscope.recording.events.code import NativeEnd, NativeStart
from inductoscope.recording.events.compiling import CompileFailed, StageEnd, StageStart
from inductoscope.recording.events.graphs import NodeLowered


class PipeWriter:
    """Replaces the recording's stream in a fork: sends the parent what says where the fork is."""

    stopped: str | None = None
    KINDS = (StageStart, StageEnd, CompileFailed, NativeStart, NativeEnd, KernelLaunched)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._texts: dict[str, str] = {}

    def emit(self, event: Event) -> None:
        """Send an event if the parent wants events of this kind."""
        if isinstance(event, NodeLowered):
            self.note(node=event.node)  # It gets on, though its stage lasts.
        if isinstance(event, self.KINDS):
            fields = {
                name: self._texts.get(str(value), value)
                for name, value in written_fields(event).items()
            }
            send(self._descriptor, {"kind": event.kind, **_clocks(), **fields})

    def note(self, **what: Any) -> None:
        """Tell the parent something that is no event."""
        send(self._descriptor, {"kind": "note", **_clocks(), **what})

    def payload(self, text: str) -> str:
        """Keep a text until the event that refers to it is sent."""
        key = f"payload {len(self._texts)}"
        self._texts[key] = text[:20000]
        return key

    def close(self) -> None:
        """Nothing to close."""


def _clocks() -> dict[str, float]:
    """The time, by a clock that parent and child share, and what the child has used of it."""
    return {"t": time.monotonic(), "cpu": time.process_time()}


def send(descriptor: int, event: dict[str, Any]) -> None:
    """Write one event to the parent."""
    data = json.dumps(event, default=encode).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]
