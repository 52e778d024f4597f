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

# The most times kept per thing; of more calls, a random sample of this size.
_MOST_KEPT = 4096
_MOST_APART = 256


@dataclass
class Reservoir(Generic[T]):
    """A uniform random sample of fixed size from a stream of values."""

    size: int = _MOST_KEPT
    count: int = 0
    kept: list[T] = field(default_factory=list)
    # A separate generator, so that the program's random numbers stay the same.
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, value: T) -> None:
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
    # The rank of the first call among the first calls of all things, from 1; 0 before that.
    order: int = 0

    def note(self, duration: int, *, compiled: bool) -> None:
        """Note a call; its time is negative if it could not be measured."""
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
        """`after_call` is called after every call, outside of the timed span."""
        self._clock = clock
        self._after_call = after_call
        # Returns before a warm call of a thing whether another profiler measures it, which distorts
        # its time. A thing is a kind, name and place.
        self.disturbs: Callable[[tuple[str, str, str]], bool] = lambda thing: False
        self.disturbed_ended: Callable[[], None] = lambda: None
        self._depth = _CallDepth()
        self._timed: dict[tuple[str, str, str, str], TimedCalls] = {}
        # Incremented whenever a compile begins, on any thread.
        self.compiles = 0
        self.waited_for_gpu = False

    def compile_begins(self) -> None:
        self.compiles += 1

    def entry(self, kind: str, name: str, place: str, group: str = "") -> TimedCalls:
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
        """Wrap a function so that its outermost calls are timed, those of a group together."""
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
        """Number a thing on its first call."""
        if timed.order:
            return
        timed.order = 1 + sum(1 for other in list(self._timed.values()) if other.order)
        if timed.kind == GRAPH:
            # torch's name of a graph depends on how it is compiled; its order of calls does not.
            known = [t for t in list(self._timed.values()) if t.kind == GRAPH and t.order]
            timed.name = f"graph {len(known)}"

    def _started(self, thing: tuple[str, ...]) -> Any:
        self._wait_for_gpu()
        return self._clock()

    def _took(self, started: Any, thing: tuple[str, ...], *, compiled: bool) -> int:
        """Return the nanoseconds that a call took; negative if they could not be measured."""
        self._wait_for_gpu()
        return int(self._clock() - started)

    def _wait_for_gpu(self) -> None:
        """Synchronize with the GPU, where a call returns before its work is done."""
        if uses_cuda():
            sys.modules["torch.cuda"].synchronize()
            self.waited_for_gpu = True

    def as_data(self, pid: int, settings: Mapping[str, str] | None = None) -> ProcessTimes:
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
    compiler: Any = sys.modules.get("torch.compiler")
    return bool(compiler is not None and compiler.is_compiling())


def in_eager(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        torch: Any = sys.modules["torch"]
        with torch.compiler.set_stance("force_eager"):
            return function(*args, **kwargs)

    return call
