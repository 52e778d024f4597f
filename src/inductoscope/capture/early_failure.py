"""Records the exception that ends the command before it imports torch.

Only that of the command itself: Python processes without torch that it starts are none of ours, and
many fail by design, such as those that try whether a module can be imported.
"""

from __future__ import annotations

import os
from pathlib import Path

from inductoscope.capture.scope import SCOPE
from inductoscope.capture.uncaught import record_main_thread
from inductoscope.recording.events.process import ProcessStart
from inductoscope.recording.stream_reader import StreamReader, stream_paths


def record(folder: str) -> None:
    """Called when Python ends."""
    if SCOPE.active or not _was_started_by_the_tool(Path(folder)):
        return
    SCOPE.open(Path(folder))
    SCOPE.guard(record_main_thread)
    SCOPE.close()


def _was_started_by_the_tool(folder: Path) -> bool:
    """Whether the process that started this one says so in the stream that it writes."""
    for path in stream_paths(folder):
        if path.name.startswith(f"{os.getppid()}-"):
            first = next((entry.event for entry in StreamReader(path).read()), None)
            return isinstance(first, ProcessStart) and first.role == "launcher"
    return False
