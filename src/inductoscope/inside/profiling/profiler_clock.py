"""Times kernels for a few calls by torch.profiler: on a GPU, and in C++ wrappers.

A kernel runs long after Python has launched it, so the clock says nothing. For some calls after the
warm-up torch.profiler notes what runs on the device, started and stopped in each of them. Where it
cannot, as without permission for CUPTI, two events around each launch are timed; the device may
wait for a launch between them, so a short kernel then looks longer than it is.

A wrapper in C++ cannot be rewritten, but torch puts ranges around its kernels if it is asked to,
which torch.profiler sees, on the CPU too.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from inductoscope.inside.profiling.kernel_traces import (
    CallRange,
    DeviceTimes,
    SiteRange,
    TracedCall,
    TraceEvent,
    device_times,
    range_from,
    traced_calls,
)
from inductoscope.inside.profiling.torch_profiler import (
    LONGEST_WAIT,
    ProgramProfilers,
    used_by_the_tool,
)
from inductoscope.profiling.timings import (
    CONVOLUTIONS,
    EVENTS,
    PRODUCTS,
    PROFILER,
)

# Calls of each graph that are traced, besides the first of them, in which the profiler starts up.
_CALLS = 20
# Most calls of one thing that are traced: of its graphs, one may never be called again.
_MOST = 10 * _CALLS

OWN_PROFILER = "Kernels of calls under the program's own torch.profiler were not timed."

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


class ProfilerClock:
    """Times the kernels of all graphs, each for a few calls.

    The profiler runs during those calls alone: the program may have its own before and after.
    """

    def __init__(self, programs: ProgramProfilers | None = None) -> None:
        """`programs` are the profilers of the program's own."""
        self._programs = programs or ProgramProfilers(self.make_way)
        self.how = ""
        self.note = ""
        self.times = DeviceTimes()
        # By graph: its traced calls, if its wrapper is C++ code.
        self.in_cpp: dict[int, list[TracedCall]] = {}
        # Wrappers that were loaded so far, and whether one of them is C++ code.
        self.wrappers = 0
        self.has_cpp = False
        self._profiler: Any = None
        # The thread whose call is being timed.
        self._thread: int | None = None
        self._thing: Thing | None = None
        self._traced: dict[Thing, _Traced] = {}
        self._calls_of_graphs: Counter[int] = Counter()
        self._open = _OpenRanges()
        self._events: list[tuple[SiteRange, Any, Any]] = []
        # Notified when a call that was timed has ended.
        self._ended = threading.Condition()
        self._has_failed = False

    @property
    def is_on(self) -> bool:
        """Whether kernels that this thread launches are timed at the moment."""
        return self._thread == threading.get_ident()

    @property
    def has_trace(self) -> bool:
        """Whether torch.profiler traces, and not events."""
        return self.how == PROFILER

    def call_begins(self, thing: Thing) -> bool:
        """A warm call of a compiled thing begins; True if it is timed on the GPU."""
        with self._ended:
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
        with self._ended:
            if not self.is_on or self._thing is None:
                return
            known = self._traced.setdefault(self._thing, _Traced())
            known.calls, known.wrappers = known.calls + 1, self.wrappers
            try:
                self._stop(is_first=known.calls == 1)
            finally:
                self._thread = self._thing = None
                self._ended.notify_all()

    def make_way(self) -> None:
        """The program is about to use torch's profiler: ours ends first."""
        with self._ended:
            profiler = self._profiler
            if self.is_on and self._thing is not None and profiler is not None:
                # It begins in the call that is being timed, of which nothing is kept.
                self._traced.setdefault(self._thing, _Traced()).calls += 1
                self._profiler = self._thread = self._thing = None
                self.note = OWN_PROFILER
                _end(profiler)
            elif not self._ended.wait_for(lambda: self._profiler is None, LONGEST_WAIT):
                self._profiler = None  # It goes on unread: only its own thread can end it.
                self.note = OWN_PROFILER

    def _start(self) -> bool:
        """Start tracing; False if this call cannot be timed."""
        on_gpu = torch.cuda.is_initialized()
        if not on_gpu and not self.has_cpp:
            return False
        if self.how == EVENTS:
            return True
        if not self._programs.leave_it_free:
            self.note = OWN_PROFILER
            return False
        try:
            known = torch.profiler.ProfilerActivity
            activities = [known.CPU, known.CUDA] if on_gpu else [known.CPU]
            # With acc_events torch does not warn that events of earlier rounds are lost.
            profiler = torch.profiler.profile(activities=activities, acc_events=True)
            with used_by_the_tool():
                profiler.start()
        except Exception as error:
            self._without_profiler(f"{type(error).__name__}: {error}"[:200])
            return not self._has_failed
        self._profiler, self.how = profiler, PROFILER
        return True

    def _stop(self, *, is_first: bool) -> None:
        """Read what was traced; in the first call of a thing, nothing but its ranges counts."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        try:
            _end(profiler)
            events = list(_trace(profiler))
            found = device_times(events)
            in_cpp = traced_calls(events) if self.has_cpp else {}
        except Exception as error:
            self._has_failed = True
            self.note = f"torch.profiler failed: {type(error).__name__}: {error}"[:200]
            return
        for where, call in in_cpp.items():
            self.in_cpp.setdefault(where.graph, []).append(call)
        self.times.busy.update(found.busy)
        self.times.spans.update(found.spans)
        for name, took in found.others.items() if not is_first else ():
            self.times.others.setdefault(name, []).extend(took)
        has_launched = any(range_from(event.name) for event in events)
        if has_launched and not any(event.on_device for event in events):
            self._without_profiler("it saw nothing on the GPU: CUPTI may not be permitted")

    def _without_profiler(self, why: str) -> None:
        if not torch.cuda.is_initialized():
            self._has_failed = True
            self.note = (
                f"torch.profiler is not available ({why}): of C++ wrappers and packages only whole "
                "calls are timed."
            )
            return
        self.how = EVENTS
        self.note = (
            f"torch.profiler is not available ({why}): kernels are timed between CUDA events, so "
            "that short ones include the wait for their launch."
        )

    def around(self, where: CallRange, call: Callable[[], Any]) -> Any:
        """A call of a wrapper in C++."""
        if not self.is_on or not self.has_trace:
            return call()
        with torch._C._profiler._RecordFunctionFast(where.name):
            return call()

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

    def allowed_in_tf32(self) -> set[str]:
        """The operations on float32 that torch may do in TF32 at the moment."""
        try:
            found = {CONVOLUTIONS} if torch.backends.cudnn.allow_tf32 else set()
            if torch.get_float32_matmul_precision() != "highest":
                found.add(PRODUCTS)
        except RuntimeError:  # Torch refuses to say once a program has used the newer settings.
            return {PRODUCTS, CONVOLUTIONS}
        return found

    def finish(self) -> None:
        """The program ends: read what was measured and not read yet."""
        self.call_ended()
        if self._events:
            torch.cuda.synchronize()
            self.times = _between_events(self._events)
            self._events = []


def _end(profiler: Any) -> None:
    """End a trace when the device has done its work, or when the program gives up waiting."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    finally:
        with used_by_the_tool():
            profiler.stop()


def _trace(profiler: Any) -> Iterator[TraceEvent]:
    results = profiler.profiler.kineto_results
    for event in results.events() if results is not None else ():
        on_device = event.device_type() != torch.autograd.DeviceType.CPU
        yield TraceEvent(
            event.name(),
            event.start_ns(),
            event.duration_ns(),
            event.correlation_id(),
            on_device,
            event.start_thread_id(),
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
