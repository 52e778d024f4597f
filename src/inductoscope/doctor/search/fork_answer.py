"""What comes back from work that was done in a fork."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inductoscope.model.position import OpenStages, ProcessPosition
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.checking import KernelLaunched
from inductoscope.recording.events.compiling import StageStart
from inductoscope.recording.events.reading import Entry

Work = Callable[[], Any]


@dataclass(frozen=True)
class ForkUse:
    """Seconds of processors that a fork has used, and that it has waited for one."""

    cpu: float
    # None where the system does not say.
    delayed: float | None
    # Of the child process that has used most.
    slowest_child: float = 0.0


@dataclass
class ForkAnswer:
    """The result of one piece of work."""

    result: Any = None
    error: str = ""
    signal: int | None = None
    timed_out: bool = False
    # Ended before its time was over, because it got nowhere.
    is_stuck: bool = False
    is_done: bool = False
    entries: list[Entry[Event]] = field(default_factory=list)
    started: float = 0.0
    seconds: float = 0.0
    # Seconds until it entered its last stage, which is where it hangs if it does.
    entered_at: float = 0.0
    # What the work wanted its parent to know besides events.
    notes: list[dict[str, Any]] = field(default_factory=list)
    # Of a fork that was ended: what it had used by then.
    used: ForkUse | None = None

    @property
    def events(self) -> list[Event]:
        """What happened in the fork."""
        return [entry.event for entry in self.entries]

    @property
    def launched_at(self) -> float:
        """Seconds until the last kernel was launched."""
        times = [entry.time for entry in self.entries if isinstance(entry.event, KernelLaunched)]
        return times[-1] - self.started if times else 0.0

    @property
    def last_stage(self) -> Entry[StageStart] | None:
        """The last stage that the fork entered and did not leave."""
        position = ProcessPosition(OpenStages(names_threads=True))
        for entry in self.entries:
            position.take(entry)
        return position.stages.all[-1] if position.stages else None
