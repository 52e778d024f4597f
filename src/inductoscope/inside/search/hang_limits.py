"""Limits for hangs: a fork hangs if it makes no progress for several times as long as usual.

A fork makes progress when it reports something new. A fork that enters the same stage again and
again is in a loop, without progress. The usual time is learned from the fork's own past, which is
the same graph on an equally busy machine, and from forks that have finished.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from inductoscope.model.process_position import OpenStages, ProcessPosition
from inductoscope.processes.status import ProcessStatus, delayed_seconds, group_members
from inductoscope.recording.events import read_entry
from inductoscope.torch_facts.stages import NATIVE_COMPILES

# The activity of a fork: eager, Python code of the compiler, a native compiler, or a call of the
# compiled code.
_EAGER, _PYTHON, _NATIVE, _CALL = "eager", "python", "native", "call"

# The least limit in seconds for any activity, and the assumed time of a native compiler for a
# small kernel until one was seen to end.
_LEAST, _NATIVE_UNKNOWN = 1.0, 6.0
# The factor over healthy work that a fork may take while candidates are tried. For the smallest
# graph, where a wrong answer matters, the factor is larger.
_TIMES, _TIMES_NATIVE = 3.0, 2.0
_MORE_TO_BE_SURE = 2.5
# A fork is idle if it and all its children are asleep whenever they are looked at, so often and for
# so many seconds.
_LOOKS, _IDLE = 8, 2.0
# The factor for a fork in another stage than the one in which the program hangs.
_ELSEWHERE = 4.0
# The share of its time in which nobody may keep a fork from the processor, and the most seconds
# that it is given beyond its limit.
_SHARE, _STARVED = 0.8, 60.0


@dataclass
class ForkProgress:
    """The progress of a fork: its current activity, since when, and the longest of each kind."""

    started: float
    since: float = 0.0
    at: str = _EAGER
    # The longest time between two reports, by activity; for Python code it is processor time, which
    # does not depend on other processes.
    longest: dict[str, float] = field(default_factory=dict)
    # The processor time that the fork had used at its last report.
    used_before: float = 0.0
    # Seconds since that report without processor delay, as far as they were sampled.
    own: float = 0.0
    # The number of looks since all processes are asleep, and the time at which one last ran.
    asleep: int = 0
    awake: float = 0.0
    _position: ProcessPosition = field(
        default_factory=lambda: ProcessPosition(OpenStages(names_threads=True))
    )
    # The last look: when, and how long the fork and its children had waited for the processor.
    _looked: float | None = None
    _delayed: float = 0.0
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.since = self.awake = self.started

    @property
    def stage(self) -> str:
        """The innermost open stage; empty if there is none."""
        innermost = self._position.stages.innermost
        return innermost.stage if innermost is not None else ""

    def take(self, message: dict[str, object]) -> None:
        """Take note of a message from the fork, if it is not a repetition."""
        time, used = message.get("t"), message.get("cpu")
        said = {name: value for name, value in message.items() if name not in ("t", "cpu")}
        text = json.dumps(said, sort_keys=True)
        if not isinstance(time, float) or not isinstance(used, float) or text in self._seen:
            return
        self._seen.add(text)
        taken = used - self.used_before if self.at == _PYTHON else time - self.since
        self.longest[self.at] = max(self.longest.get(self.at, 0.0), taken)
        self.since, self.used_before, self.asleep, self._looked = time, used, 0, None
        if message["kind"] != "note":
            self._position.take(read_entry("", dict(message)))
        self.at = self._what()

    def _what(self) -> str:
        if not self.stage:
            return _CALL
        return _NATIVE if self.stage in NATIVE_COMPILES else _PYTHON

    def look(self, members: Sequence[ProcessStatus], now: float) -> None:
        """Sample the state of the fork and its children, and their processor delay."""
        self.asleep += 1
        if any(member.state in "RD" for member in members):
            self.asleep, self.awake = 0, now
        delayed = sum(delayed_seconds(member.pid) or 0.0 for member in members)
        if self._looked is None:
            used = sum(member.cpu_seconds for member in members)
            self.own = max(0.0, used - self.used_before)
        else:
            self.own += max(0.0, now - self._looked - max(0.0, delayed - self._delayed))
        self._looked, self._delayed = now, delayed

    def is_idle(self, now: float) -> bool:
        """Check whether the fork waits for an event that does not happen."""
        return self.asleep >= _LOOKS and now - max(self.awake, self.since) > _IDLE


@dataclass
class HangPatience:
    """How long forks may go without progress, in the search for a hang."""

    stage: str = ""
    # Whether certainty takes precedence over an early end.
    is_sure: bool = False
    # The most seconds that forks which ended needed, by what they were at.
    healthy: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def to_be_sure(self) -> Iterator[None]:
        """Wait longer inside the block."""
        self.is_sure = True
        try:
            yield
        finally:
            self.is_sure = False

    def learn(self, ended: ForkProgress) -> None:
        """Add the timings of a fork that ended by itself."""
        for at, seconds in ended.longest.items():
            self.healthy[at] = max(self.healthy.get(at, 0.0), seconds)

    def limit(self, progress: ForkProgress) -> float | None:
        """Return how long a fork may stay in its activity; None if there is no limit."""
        usual = self._usual(progress)
        if usual is None:
            return None
        times = _TIMES_NATIVE if progress.at == _NATIVE else _TIMES
        more = _MORE_TO_BE_SURE if self.is_sure else 1.0
        if progress.at == _PYTHON and progress.stage != self.stage:
            more = max(more, _ELSEWHERE)
        return more * max(_LEAST, times * usual)

    def _usual(self, progress: ForkProgress) -> float | None:
        if progress.at == _EAGER:
            return None
        own = progress.longest
        if progress.at == _CALL:
            # A compiled call takes about as long as eager, which ran before the compile.
            return max(own.get(_EAGER, 0.0), self.healthy.get(_CALL, 0.0))
        if progress.at == _NATIVE:
            known = [each[_NATIVE] for each in (own, self.healthy) if _NATIVE in each]
            return max([own.get(_PYTHON, 0.0), *(known or [_NATIVE_UNKNOWN])])
        return max(own.get(_PYTHON, 0.0), self.healthy.get(_PYTHON, 0.0))

    def is_over(
        self, group: int, progress: ForkProgress, others: Sequence[ForkProgress], now: float
    ) -> bool:
        """Check whether a fork, the leader of a process group, has to be considered hung."""
        limit = self.limit(progress)
        quiet = now - progress.since
        if limit is None or quiet < min(limit, _IDLE):
            return False
        progress.look(list(group_members(group)), now)
        if progress.is_idle(now):
            # The fork may wait for a lock that another fork holds while its native compiler works.
            return quiet > limit or not any(other.at == _NATIVE for other in others)
        if quiet < limit:
            return False
        return progress.own > _SHARE * limit or quiet > limit + _STARVED
