"""What stages and native compilers compute, and how long they wait for a processor.

On a busy machine seconds say little: a compile that shares its processor with others takes twice as
long and is no slower.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from inductoscope.processes.status import thread_delay

# A machine is calm if stages hardly ever wait for a processor.
_CALM = 0.8
# A native compiler that computes for less of its time waits for something.
_COMPUTES = 1 / 3


@dataclass(frozen=True)
class Spent:
    """Seconds without those spent waiting for a processor, and seconds of computing."""

    undelayed: float
    computing: float


@dataclass
class _OpenStage:
    computed: float
    delayed: float | None
    # The same of inner stages.
    inner_computed: float = 0.0
    inner_delayed: float = 0.0


@dataclass
class StageClocks:
    """Follows the stages of all threads; asked on the thread that enters and leaves them."""

    _open: dict[int, list[_OpenStage]] = field(default_factory=dict)

    def enter(self) -> None:
        """A stage begins on this thread."""
        stage = _OpenStage(time.thread_time(), thread_delay())
        self._open.setdefault(threading.get_ident(), []).append(stage)

    def leave(self, seconds: float) -> Spent | None:
        """The innermost stage of this thread ends; `seconds` are its own, without inner ones."""
        stages = self._open.get(threading.get_ident())
        if not stages:
            return None
        stage = stages.pop()
        computed, now = time.thread_time() - stage.computed, thread_delay()
        known = now is not None and stage.delayed is not None
        delayed = now - stage.delayed if known else 0.0  # type: ignore[operator]
        if stages:
            stages[-1].inner_computed += computed
            stages[-1].inner_delayed += delayed
        computing = max(computed - stage.inner_computed, 0.0)
        waited = max(delayed - stage.inner_delayed, 0.0)
        return Spent(max(seconds - waited, 0.0) if known else computing, computing)


@dataclass
class NativeClocks:
    """What each call of a native compiler computes, several of which may run at once."""

    _began: dict[str, tuple[float, float]] = field(default_factory=dict)
    _ended: list[tuple[float, float]] = field(default_factory=list)

    def enter(self, source: str) -> None:
        """A call begins."""
        self._began[source] = time.monotonic(), _children_seconds()

    def leave(self, source: str, seconds: float, *, is_calm: bool) -> Spent:
        """A call ends that took so many seconds."""
        now = time.monotonic()
        began, before = self._began.pop(source, (now, _children_seconds()))
        others = sum(took for ended, took in self._ended if ended > began)
        self._ended.append((now, seconds))
        used = _children_seconds() - before
        return native_spent(seconds, used, others, is_calm=is_calm)


def native_spent(seconds: float, used: float, others: float, *, is_calm: bool) -> Spent:
    """What a call has computed at least, where all that ended meanwhile have `used` so much.

    `others` are the seconds of those. One that hardly computes on a calm machine waits.
    """
    if is_calm and used < _COMPUTES * seconds:
        return Spent(seconds, used)
    least = min(max(used - others, 0.0), seconds)
    return Spent(least, least)


def _children_seconds() -> float:
    """Processor time of the children of this process that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def is_calm(seconds: Mapping[str, float], undelayed: Mapping[str, float]) -> bool:
    """Whether stages hardly had to wait for a processor."""
    whole = sum(seconds.get(name, 0.0) for name in undelayed)
    return whole > 0 and sum(undelayed.values()) >= _CALM * whole
