"""Times kernels on a GPU for a few calls: by torch.profiler, else between CUDA events.

A kernel runs long after Python has launched it, so the clock says nothing. For some calls after the
warm-up torch.profiler notes what runs on the device, started and stopped in each of them. Where it
cannot, as without permission for CUPTI, two events around each launch are timed; the device may
wait for a launch between them, so a short kernel then looks longer than it is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from inductoscope.profiling.kernels.device_trace import (
    DeviceTimes,
    SiteRange,
    TraceEvent,
    device_times,
)
from inductoscope.profiling.kernels.kernel_times import EVENTS, PROFILER

TORCH_NAMES = {
    "torch.autograd": ("_profiler_enabled",),
    "torch._C._profiler": ("_RecordFunctionFast",),
}

# Calls of each graph that are traced, besides the first of them, in which the profiler starts up.
_CALLS = 20
# Most calls of one thing that are traced: of its graphs, one may never be called again.
_MOST = 10 * _CALLS

# A compiled function or graph that the program calls: its kind, name and place.
Thing = tuple[str, str, str]


@dataclass
class _OpenRanges(threading.local):
    """The ranges that are open on this thread."""

    ranges: list[Any] = field(default_factory=list)


@dataclass
class _Traced:
    """What was traced of one thing: how many calls, and which graphs ran in them."""

    calls: int = 0
    graphs: set[int] = field(default_factory=set)
    # How many wrappers were loaded by the last of these calls.
    wrappers: int = 0


class GpuClock:
    """Times the kernels of all graphs, each for a few calls.

    The profiler runs during those calls alone: the program may have its own before and after.
    """

    def __init__(self) -> None:
        self.how = ""
        self.note = ""
        self.times = DeviceTimes()
        # Wrappers that were loaded so far.
        self.wrappers = 0
        self._profiler: Any = None
        # The thread whose call is being timed.
        self._thread: int | None = None
        self._thing: Thing | None = None
        self._traced: dict[Thing, _Traced] = {}
        self._calls_of_graphs: Counter[int] = Counter()
        self._open = _OpenRanges()
        self._events: list[tuple[SiteRange, Any, Any]] = []
        self._lock = threading.Lock()
        self._has_failed = False

    @property
    def is_on(self) -> bool:
        """Whether kernels that this thread launches are timed at the moment."""
        return self._thread == threading.get_ident()

    def call_begins(self, thing: Thing) -> bool:
        """A warm call of a compiled thing begins; True if it is timed on the GPU."""
        with self._lock:
            if self._thread is not None or self._has_failed or not self._wants(thing):
                return False
            if not self._start():
                return False
            self._thread, self._thing = threading.get_ident(), thing
            return True

    def _wants(self, thing: Thing) -> bool:
        """Whether one of its graphs has too few calls, as far as is known."""
        known = self._traced.get(thing, _Traced())
        if known.calls >= _MOST:
            return False
        # A wrapper that was loaded meanwhile may be called by it.
        if known.calls <= _CALLS or known.wrappers < self.wrappers:
            return True
        return any(self._calls_of_graphs[graph] <= _CALLS for graph in known.graphs)

    def notes_call(self, graph: int) -> bool:
        """A call of a graph has ended; True if its kernels were timed."""
        if not self.is_on or self._thing is None:
            return False
        self._calls_of_graphs[graph] += 1
        self._traced.setdefault(self._thing, _Traced()).graphs.add(graph)
        return True

    def call_ended(self) -> None:
        """A call that was timed has ended."""
        with self._lock:
            if not self.is_on or self._thing is None:
                return
            known = self._traced.setdefault(self._thing, _Traced())
            known.calls, known.wrappers = known.calls + 1, self.wrappers
            self._stop(is_first=known.calls == 1)
            self._thread = self._thing = None

    def _start(self) -> bool:
        """Start tracing; False if this call cannot be timed."""
        if not torch.cuda.is_initialized():
            return False
        if self.how == EVENTS:
            return True
        if torch.autograd._profiler_enabled():
            self.note = "Calls under the program's own torch.profiler were not timed on the GPU."
            return False
        try:
            activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
            # With acc_events torch does not warn that events of earlier rounds are lost.
            profiler = torch.profiler.profile(activities=activities, acc_events=True)
            profiler.start()
        except Exception as error:
            self._without_profiler(f"{type(error).__name__}: {error}"[:200])
            return True
        self._profiler, self.how = profiler, PROFILER
        return True

    def _stop(self, *, is_first: bool) -> None:
        """Read what was traced; in the first call of a thing, nothing but its ranges counts."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        try:
            torch.cuda.synchronize()
            profiler.stop()
            found = device_times(_trace(profiler))
        except Exception as error:
            self._has_failed = True
            self.note = f"torch.profiler failed: {type(error).__name__}: {error}"[:200]
            return
        self.times.busy.update(found.busy)
        self.times.spans.update(found.spans)
        for name, took in found.others.items() if not is_first else ():
            self.times.others.setdefault(name, []).extend(took)
        if not self.times.busy and not found.others:
            self.note = "torch.profiler saw nothing on the GPU: CUPTI may not be permitted."

    def _without_profiler(self, why: str) -> None:
        self.how = EVENTS
        self.note = (
            f"torch.profiler is not available ({why}): kernels are timed between CUDA events, so "
            "that short ones include the wait for their launch."
        )

    def before(self, where: SiteRange) -> None:
        """A kernel is about to be launched."""
        if not self.is_on:
            return
        if self.how == PROFILER:
            opened = torch._C._profiler._RecordFunctionFast(where.name)
            opened.__enter__()
        else:
            opened = torch.cuda.Event(enable_timing=True)
            opened.record()
        self._open.ranges.append(opened)

    def after(self, where: SiteRange) -> None:
        """A kernel was launched."""
        if not self._open.ranges:
            return
        opened = self._open.ranges.pop()
        if self.how == PROFILER:
            opened.__exit__(None, None, None)
            return
        closed = torch.cuda.Event(enable_timing=True)
        closed.record()
        self._events.append((where, opened, closed))

    def finish(self) -> None:
        """The program ends: read what was measured and not read yet."""
        self.call_ended()
        if self._events:
            torch.cuda.synchronize()
            self.times = _between_events(self._events)
            self._events = []


def _trace(profiler: Any) -> Iterator[TraceEvent]:
    results = profiler.profiler.kineto_results
    for event in results.events() if results is not None else ():
        on_device = event.device_type() != torch.autograd.DeviceType.CPU
        yield TraceEvent(
            event.name(), event.start_ns(), event.duration_ns(), event.correlation_id(), on_device
        )


def _between_events(events: Sequence[tuple[SiteRange, Any, Any]]) -> DeviceTimes:
    found = DeviceTimes()
    firsts: dict[tuple[int, int], Any] = {}
    for where, begin, end in events:
        took = int(begin.elapsed_time(end) * 1e6)  # It is in milliseconds.
        found.busy[where] = found.busy.get(where, 0) + took
        key = (where.graph, where.call)
        first = firsts.setdefault(key, begin)
        found.spans[key] = 0, int(first.elapsed_time(end) * 1e6)
    return found
