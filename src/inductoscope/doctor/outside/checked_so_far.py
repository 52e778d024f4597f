"""How many calls of a running program have been compared with eager so far."""

from __future__ import annotations

from pathlib import Path

from inductoscope.recording.events.base import Event
from inductoscope.recording.events.checking import CallChecked, CallsUnchecked
from inductoscope.recording.stream_reader import StreamReader, stream_paths
from inductoscope.vocabulary.counting import count_of

_AGREE = ("right", "within-rounding")


class CheckedSoFar:
    """Follows the recording of a program while it is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._readers: dict[Path, StreamReader] = {}
        self._checked: dict[str, int] = {}
        self._disagree = 0
        # Graphs of which as many calls were checked as are to be.
        self._done: set[str] = set()

    def look(self) -> None:
        """Read what was written since the last time."""
        for path in stream_paths(self._folder):
            reader = self._readers.setdefault(path, StreamReader(path))
            for entry in reader.read_new():
                self._take(reader.name, entry.event)

    def _take(self, process: str, event: Event) -> None:
        if isinstance(event, CallChecked):
            graph = f"{process} {event.compile}"
            self._checked[graph] = self._checked.get(graph, 0) + 1
            self._disagree += event.verdict not in _AGREE
        elif isinstance(event, CallsUnchecked):
            self._done.add(f"{process} {event.compile}")

    @property
    def is_complete(self) -> bool:
        """Whether every graph that was called has been called more often than is checked."""
        return bool(self._checked) and self._checked.keys() <= self._done

    def __str__(self) -> str:
        if not self._checked:
            return "no call of a compiled graph has been checked yet"
        calls = count_of(sum(self._checked.values()), "call")
        graphs = count_of(len(self._checked), "compiled graph")
        agree = f"{self._disagree} not compared" if self._disagree else "all agree"
        return f"{calls} of {graphs} checked, {agree}"
