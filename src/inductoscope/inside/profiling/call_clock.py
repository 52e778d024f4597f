"""Times compiled calls inside the program: functions, graphs, packages.

Only the outermost call is timed: a compiled function with all the graphs that it runs, or a graph
that no function calls, as autograd does for a backward pass. A call in which something is compiled
is kept apart, and so is the first one after that, which still fills caches.
"""

from __future__ import annotations

import functools
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from inductoscope.inside.gpu_use import uses_cuda
from inductoscope.profiling.timings import FUNCTION, GRAPH, CallTimes, ProcessTimes

T = TypeVar("T")

# Calls of one thing whose times are kept; of more, as many that are chosen at random.
_MOST_KEPT = 4096
_MOST_APART = 256


@dataclass
class Reservoir(Generic[T]):
    """So many of a stream of values, each with the same chance to be among them."""

    size: int = _MOST_KEPT
    count: int = 0
    kept: list[T] = field(default_factory=list)
    # Of its own: the program's random numbers stay as they are.
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, value: T) -> None:
        """One more value."""
        self.count += 1
        if len(self.kept) < self.size:
            self.kept.append(value)
            return
        place = self._random.randrange(self.count)
        if place < self.size:
            self.kept[place] = value


@dataclass
class TimedCalls:
    """The calls of one compiled thing so far; times in nanoseconds."""

    name: str
    kind: str
    place: str
    group: str = ""
    steady: Reservoir[int] = field(default_factory=Reservoir)
    total: int = 0
    compiling: list[int] = field(default_factory=list)
    warming: list[int] = field(default_factory=list)
    dropped: int = 0
    is_warm: bool = False
    # The place of its first call among the first calls of all of them; 0 before that.
    order: int = 0

    def note(self, duration: int, *, compiled: bool) -> None:
        """One more call; its time is negative if it could not be measured."""
        if duration < 0:
            self.dropped += 1
        elif compiled:
            self.compiling.append(duration)
            self.is_warm = False
        elif not self.is_warm:
            self.warming.append(duration)
            self.is_warm = True
        else:
            self.steady.add(duration)
            self.total += duration

    def as_data(self) -> CallTimes:
        """The calls as they are written."""
        return CallTimes(
            self.name,
            self.kind,
            self.place,
            self.steady.count,
            self.total,
            tuple(self.steady.kept),
            tuple(self.compiling[:_MOST_APART]),
            tuple(self.warming[:_MOST_APART]),
            self.dropped,
            self.group,
        )


class _CallDepth(threading.local):
    value = 0


class CallClock:
    """Times the outermost compiled calls of this process, on all its threads."""

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        after_call: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_call` is called after every call, when its time has been taken."""
        self._clock = clock
        self._after_call = after_call
        # Asked before a warm call of a thing: whether something else measures it, and disturbs its
        # time. A thing is its kind, name and place.
        self.disturbs: Callable[[tuple[str, str, str]], bool] = lambda thing: False
        self.disturbed_ended: Callable[[], None] = lambda: None
        self._depth = _CallDepth()
        self._timed: dict[tuple[str, str, str, str], TimedCalls] = {}
        # Raised whenever a compile begins, on any thread.
        self.compiles = 0
        self.waited_for_gpu = False

    def compile_begins(self) -> None:
        """Something is about to be compiled."""
        self.compiles += 1

    def entry(self, kind: str, name: str, place: str, group: str = "") -> TimedCalls:
        """The calls of one thing so far."""
        key = kind, name, place, group
        return self._timed.setdefault(key, TimedCalls(name, kind, place, group))

    def timed(
        self,
        function: Callable[..., Any],
        name: str,
        kind: str = FUNCTION,
        place: str = "",
        group: str = "",
    ) -> Callable[..., Any]:
        """The function; its outermost calls are timed, those of a group together."""
        depth = self._depth
        key = kind, name, place, group
        timed = self.entry(kind, name, place, group)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if depth.value or is_traced():
                return function(*args, **kwargs)
            depth.value = 1
            try:
                compiles = self.compiles
                is_disturbed = timed.is_warm and self.disturbs((kind, name, place))
                started = self._started(key)
                try:
                    result = function(*args, **kwargs)
                    has_compiled = compiles != self.compiles
                    took = self._took(started, key, compiled=has_compiled)
                finally:
                    if is_disturbed:
                        self.disturbed_ended()
                if has_compiled or not is_disturbed:
                    timed.note(took, compiled=has_compiled)
                self.called(timed)
            finally:
                depth.value = 0
            self._after_call()
            return result

        return call

    def called(self, timed: TimedCalls) -> None:
        """It was called: things are numbered by their first call."""
        if timed.order:
            return
        timed.order = 1 + sum(1 for other in list(self._timed.values()) if other.order)
        if timed.kind == GRAPH:
            # What torch calls it depends on how it is compiled; its place in the program does not.
            known = [t for t in list(self._timed.values()) if t.kind == GRAPH and t.order]
            timed.name = f"graph {len(known)}"

    def _started(self, thing: tuple[str, ...]) -> Any:
        """The moment before a call, as `_took` needs to know it."""
        self._wait_for_gpu()
        return self._clock()

    def _took(self, started: Any, thing: tuple[str, ...], *, compiled: bool) -> int:
        """Nanoseconds that the call took; negative if that could not be measured."""
        self._wait_for_gpu()
        return int(self._clock() - started)

    def _wait_for_gpu(self) -> None:
        """On a GPU a call returns before its work is done."""
        if uses_cuda():
            sys.modules["torch.cuda"].synchronize()
            self.waited_for_gpu = True

    def as_data(self, pid: int, settings: Mapping[str, str] | None = None) -> ProcessTimes:
        """The calls so far, of all that was called."""
        torch: Any = sys.modules.get("torch")
        called = sorted(
            (timed for timed in list(self._timed.values()) if timed.order),
            key=lambda timed: timed.order,
        )
        return ProcessTimes(
            pid,
            tuple(timed.as_data() for timed in called),
            threads=torch.get_num_threads() if torch is not None else 0,
            torch=str(getattr(torch, "__version__", "")),
            waited_for_gpu=self.waited_for_gpu,
            settings=settings or {},
        )


def is_traced() -> bool:
    """Whether Dynamo follows the call rather than making it."""
    compiler: Any = sys.modules.get("torch.compiler")
    return bool(compiler is not None and compiler.is_compiling())


def in_eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function, called without compiled code."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        torch: Any = sys.modules["torch"]
        with torch.compiler.set_stance("force_eager"):
            return function(*args, **kwargs)

    return call
