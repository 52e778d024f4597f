"""Follows the streams of a recording while the program writes them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.model.position import ProcessPosition
from inductoscope.recording.events.compiling import TracingContinues
from inductoscope.recording.stream_reader import StreamReader, stream_paths


@dataclass
class FollowedStream:
    """How far one process has come, read from its stream bit by bit."""

    reader: StreamReader
    position: ProcessPosition = field(default_factory=ProcessPosition)
    # When it was last seen to get anywhere.
    moved: float = field(default_factory=time.monotonic)
    # When it was last seen to trace on: that may go on for ever.
    traced: float = 0.0

    @property
    def path(self) -> Path:
        """The stream's file."""
        return self.reader.path

    @property
    def pid(self) -> int:
        """The process that writes it; 0 where the name does not say."""
        return self.reader.pid

    def catch_up(self) -> None:
        """Read what was written since."""
        for entry in self.reader.read_new():
            self.position.take(entry)
            if entry.event.is_progress:
                self.moved = time.monotonic()
            elif isinstance(entry.event, TracingContinues):
                self.traced = time.monotonic()

    def last_sign(self, most: float) -> float:
        """When it was last seen to get anywhere; `most`: how often tracing is enough."""
        return self.traced if 0 < self.position.signs <= most else self.moved


class Streams:
    """All streams of a recording."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, FollowedStream] = {}

    def catch_up(self) -> list[FollowedStream]:
        """Every stream of the program, read to its end as of now."""
        for path in stream_paths(self._folder):
            self._known.setdefault(path, FollowedStream(StreamReader(path))).catch_up()
        return [stream for stream in self._known.values() if stream.position.role != "launcher"]
