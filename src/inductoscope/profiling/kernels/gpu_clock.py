"""Times kernels on a GPU for a few calls: by torch.profiler, else between CUDA events.

A kernel runs long after Python has launched it, so the clock says nothing. For some calls after the
warm-up torch.profiler notes what runs on the device. Where it cannot, as without permission for
CUPTI or beside another profiler, two events around each launch are timed; the device may wait for
a launch between them, so a short kernel then looks longer than it is.
"""

from __future__ import annotations

import threading
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
    "torch._C._profiler": ("_RecordFunctionFast",),
}

# Calls of compiled functions that are traced.
_CALLS = 20


@dataclass
class _OpenRanges(threading.local):
    """The ranges that are open on this thread."""

    ranges: list[Any] = field(default_factory=list)


class GpuClock:
    """Times the kernels of all graphs during a window of a few calls."""

    def __init__(self) -> None:
        self.how = ""
        self.note = ""
        self.times = DeviceTimes()
        self._profiler: Any = None
        self._open = _OpenRanges()
        self._events: list[tuple[SiteRange, Any, Any]] = []
        self._left = _CALLS

    @property
    def is_on(self) -> bool:
        """Whether kernels are timed at the moment."""
        return bool(self.how) and self._left > 0

    def call_begins(self) -> bool:
        """A warm call of a compiled function begins; True if it is timed on the GPU."""
        if self._left <= 0 or not torch.cuda.is_initialized():
            return False
        if not self.how:
            self._start()
        return True

    def call_ended(self) -> None:
        """A call that was timed has ended."""
        self._left -= 1
        if self._left <= 0:
            self.finish()

    def _start(self) -> None:
        try:
            activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
            profiler = torch.profiler.profile(activities=activities)
            profiler.start()
        except Exception as error:
            self._without_profiler(f"{type(error).__name__}: {error}"[:200])
            return
        self._profiler, self.how = profiler, PROFILER

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
        """The window is over, or the program is: read what was measured."""
        self._left = 0
        if self._profiler is not None:
            profiler, self._profiler = self._profiler, None
            torch.cuda.synchronize()
            profiler.stop()
            self.times = device_times(_trace(profiler))
            if not self.times.busy and not self.times.others:
                self.note = "torch.profiler saw nothing on the GPU: CUPTI may not be permitted."
        elif self._events:
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
