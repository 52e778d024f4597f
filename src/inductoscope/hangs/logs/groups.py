"""A group of choices, and how far each of them got."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from inductoscope.hangs.logs.choice import Choice, parse_choice
from inductoscope.hangs.logs.origin import Origin


class Progress(str, Enum):
    """How far a choice got."""

    SUBMITTED = "submitted"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"


_UNFINISHED = (Progress.SUBMITTED, Progress.STARTED)


@dataclass
class ChoiceState:
    """One choice in one group, and the lines that show its state."""

    text: str
    progress: Progress = Progress.SUBMITTED
    to_pool: bool = False
    seconds: float | None = None
    message: str = ""
    origins: list[Origin] = field(default_factory=list)

    @property
    def choice(self) -> Choice:
        """What is tried."""
        return parse_choice(self.text)


class GroupState(str, Enum):
    """What a group is going through."""

    SUBMITTED = "submitted"
    AWAITED = "awaited"
    COMPILED = "compiled"
    BENCHMARKING = "being benchmarked"
    OVER = "over"


@dataclass
class Group:
    """The choices of one operation."""

    origin: Origin
    announced: int | None = None
    threads: int | None = None
    operation: str = ""
    shapes: str = ""
    stage: GroupState = GroupState.SUBMITTED
    awaited_at: Origin | None = None
    last: Origin | None = None
    timed_out_after: int | None = None
    choices: dict[str, ChoiceState] = field(default_factory=dict)
    starts: int = 0  # How many are seen to have begun.
    cut: int = 0  # How many lines end before the choice that they name does.

    def _in(self, *wanted: Progress) -> list[ChoiceState]:
        return [state for state in self.choices.values() if state.progress in wanted]

    @property
    def finished(self) -> list[ChoiceState]:
        return self._in(Progress.FINISHED)

    @property
    def failed(self) -> list[ChoiceState]:
        return self._in(Progress.FAILED)

    @property
    def timed_out(self) -> list[ChoiceState]:
        return self._in(Progress.TIMED_OUT)

    @property
    def submitted(self) -> list[ChoiceState]:
        """All that were submitted to a compiler, in any state."""
        return [s for s in self.choices.values() if s.progress is not Progress.SKIPPED]

    @property
    def pending(self) -> list[ChoiceState]:
        """Not finished, and torch does not wait for them."""
        return self._in(*_UNFINISHED) if self.stage is GroupState.SUBMITTED else []

    @property
    def queued(self) -> list[ChoiceState]:
        """Waiting for a thread: they have not started, so they do not hang."""
        if self.stage is not GroupState.AWAITED or not self.starts:
            return []
        return [state for state in self._in(Progress.SUBMITTED) if not state.to_pool]

    @property
    def stuck(self) -> list[ChoiceState]:
        """Not finished while the program waits for them.

        After a timeout the program still waits for the threads that hang, though no longer for
        the worker processes.
        """
        if self.stage is not GroupState.AWAITED:
            return []
        queued = {state.text for state in self.queued}
        open_ = [state for state in self._in(*_UNFINISHED) if state.text not in queued]
        return open_ + [state for state in self.timed_out if not state.to_pool]

    @property
    def unnamed(self) -> int:
        """At least so many are missing whose names the log does not hold (its level is INFO)."""
        seen = len(self.choices)
        if self.stage is not GroupState.AWAITED or self.announced is None:
            return 0
        if self.submitted_seen or self.cut:
            return 0
        return max(0, self.announced - seen)

    @property
    def is_illegible(self) -> bool:
        """Whether torch waits for it, and every line that names one of its choices is cut."""
        return self.stage is GroupState.AWAITED and bool(self.cut) and not self.choices

    @property
    def submitted_seen(self) -> bool:
        """Whether the log says what was submitted."""
        return any(s.progress in _UNFINISHED or len(s.origins) > 1 for s in self.choices.values())
