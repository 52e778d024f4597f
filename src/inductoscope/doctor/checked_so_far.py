"""How many calls of a running program have been compared with eager so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.recording.events import (
    CallChecked,
    CallsUnchecked,
    CompileEnd,
    CompileStart,
    Event,
    GraphLeft,
    ProcessEnd,
)
from inductoscope.recording.reader import StreamReader, stream_paths
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

_AGREE = ("right", "within-rounding")
_DISAGREE = ("wrong", "error")


class CheckedSoFar:
    """Follows the recording of a program while it is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._readers: dict[Path, StreamReader] = {}
        self._processes: dict[str, _Process] = {}
        self._verdicts: Counter[str] = Counter()

    def look(self) -> None:
        """Read what was written since the last time."""
        for path in stream_paths(self._folder):
            reader = self._readers.setdefault(path, StreamReader(path))
            process = self._processes.setdefault(reader.name, _Process())
            for entry in reader.read_new():
                process.take(entry.event)
                if isinstance(entry.event, CallChecked):
                    self._verdicts[entry.event.verdict] += 1

    @property
    def is_complete(self) -> bool:
        """Whether the first calls of every graph that is in use have been checked."""
        running = [each for each in self._processes.values() if not each.has_ended]
        return any(each.has_gone_on for each in running) and all(
            each.is_complete for each in running
        )

    def __str__(self) -> str:
        checked = self._verdicts.total()
        if not checked:
            return "no call of a compiled graph has been checked yet"
        graphs = sum(len(process.graphs) for process in self._processes.values())
        said = f"{count_of(checked, 'call')} of {count_of(graphs, 'compiled graph')} checked"
        agree, disagree = (sum(self._verdicts[name] for name in s) for s in (_AGREE, _DISAGREE))
        if agree == checked:
            return f"{said}, all agree"
        parts = []
        if agree:
            parts.append(f"{agree} {'agrees' if agree == 1 else 'agree'}")
        if disagree:
            parts.append(f"{disagree} {'does' if disagree == 1 else 'do'} not agree")
        if uncompared := checked - agree - disagree:
            parts.append(f"{uncompared} could not be compared")
        return f"{said}: {', '.join(parts)}"


@dataclass
class _Calls:
    """When a graph was first and last checked, by the number of the event."""

    first: int
    last: int
    # Whether it has been called more often than is checked.
    has_gone_on: bool = False


@dataclass
class _Process:
    """What one process of the program has compiled and called."""

    graphs: dict[str, _Calls] = field(default_factory=dict)
    has_ended: bool = False
    _compiling: set[str] = field(default_factory=set)
    # Graphs that are compiled, or being compiled, and have not been called.
    _new: set[str] = field(default_factory=set)
    _events: int = 0

    def take(self, event: Event) -> None:
        """Note what an event says."""
        self._events += 1
        match event:
            case CompileStart():
                self._compiling.add(event.compile)
            case GraphLeft(stage=stages.DYNAMO):
                self._new.add(event.compile)
            case CompileEnd():
                self._compiling.discard(event.compile)
                if event.outcome != "compiled":
                    self._new.discard(event.compile)
            case CallChecked():
                self._new.discard(event.compile)
                calls = self.graphs.setdefault(event.compile, _Calls(self._events, self._events))
                calls.last = self._events
            case CallsUnchecked() if event.compile in self.graphs:
                self.graphs[event.compile].has_gone_on = True
            case ProcessEnd():
                self.has_ended = True

    @property
    def has_gone_on(self) -> bool:
        """Whether a graph has been called more often than is checked."""
        return any(calls.has_gone_on for calls in self.graphs.values())

    @property
    def is_complete(self) -> bool:
        """Whether no graph is waited for: none is new, and each has gone on or is out of use.

        One is out of use if another went through all its calls that are checked since: the program
        calls it once, or Dynamo has compiled the function again for other sizes.
        """
        if self._compiling or self._new:
            return False
        latest = max((each.first for each in self.graphs.values() if each.has_gone_on), default=0)
        return all(each.has_gone_on or each.last < latest for each in self.graphs.values())
