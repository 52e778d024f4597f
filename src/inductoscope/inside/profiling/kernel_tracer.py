"""Times kernels in a few calls with torch.profiler: on a GPU, and in C++ wrappers.

A kernel on a GPU runs asynchronously, long after its launch, so the host clock cannot time it. For
some calls after the warm-up, torch.profiler, started and stopped in each, records device activity.

A wrapper in C++ cannot be rewritten, but with `cpp.enable_kernel_profile` torch puts ranges around
its kernels, which torch.profiler sees on the CPU, too.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from inductoscope.inside.profiling.torch_profiler import (
    LONGEST_WAIT,
    ProgramProfilers,
    used_by_the_tool,
)
from inductoscope.profiling.timings import CONVOLUTIONS, PRODUCTS

# Traced calls of each thing, besides the first, in which the profiler starts up. The same number is
# granted again once another wrapper is loaded, which the thing may call.
_CALLS = 20
_MOST = 10 * _CALLS

OWN_PROFILER = "Kernels of calls under the program's own torch.profiler were not timed."

# The kind, name and place of a compiled function or graph that the program calls.
Thing = tuple[str, str, str]
# A call of a graph: the number of the graph, and of the call.
GraphCall = tuple[int, int]
# A kernel in a call: the number of its site; in C++, its name and occurrence.
Label = int | tuple[str, int]


# --- reading a trace ------------------------------------------------------------------------------

_PREFIX = "inductoscope:"
# Calls of the CUDA and HIP runtimes and drivers.
_RUNTIME = ("cuda", "cu", "hip")
# graph_0_cpp_fused_add_0, kernels_.triton_poi_fused_add_0, aoti_torch_cpu_mm_out
_CPP_KERNEL = re.compile(
    r"graph_\d+_(?P<named>\w+)"
    r"|(?:kernels_?\.)?(?P<generated>(?:cpp|triton|cuda|cutlass)_\w+)"
    r"|(?P<library>aoti_torch_\w+)"
)


@dataclass(frozen=True)
class TraceEvent:
    """One event of a trace; times in nanoseconds."""

    name: str
    start: int
    duration: int
    correlation: int = 0
    on_device: bool = False
    thread: int = 0

    @property
    def end(self) -> int:
        return self.start + self.duration


@dataclass(frozen=True)
class TracedCall:
    """One call of a graph: each kernel with its start relative to the call, and its duration."""

    duration: int
    kernels: tuple[tuple[Label, int, int], ...] = ()
    on_device: bool = False


@dataclass(frozen=True)
class Trace:
    calls: dict[GraphCall, TracedCall]
    # Device activity that no wrapper launched, in order of time, such as the kernels of a CUDA
    # graph replay.
    loose: tuple[TraceEvent, ...]
    # Whether a wrapper launched kernels, but no device activity was seen at all.
    is_blind: bool = False


@dataclass
class _KernelRange:
    """The range that a wrapper opens around a kernel, and the device activity launched in it."""

    event: TraceEvent
    call: GraphCall
    label: Label
    works: list[TraceEvent] = field(default_factory=list)


def range_name(*numbers: int) -> str:
    return _PREFIX + ":".join(map(str, numbers))


def read_trace(events: Iterable[TraceEvent]) -> Trace:
    """Join device activity with the ranges that launched it, by correlation ids.

    Without device activity, as on the CPU, the range itself is the time of the kernel.
    """
    known = sorted(events, key=lambda event: (event.start, -event.duration))
    around: dict[GraphCall, TraceEvent] = {}
    ranges = list(_kernel_ranges(known, around))
    starts = [one.event.start for one in ranges]
    loose = []
    for launched, work in _works(known):
        place = -1 if launched is None else bisect_right(starts, launched) - 1
        if launched is not None and place >= 0 and launched <= ranges[place].event.end:
            ranges[place].works.append(work)
        else:
            loose.append(work)
    by_call: dict[GraphCall, list[_KernelRange]] = {call: [] for call in around}
    for one in ranges:
        by_call.setdefault(one.call, []).append(one)
    calls = {
        call: _on_device(own) or _on_cpu(own, around.get(call)) for call, own in by_call.items()
    }
    is_blind = any(isinstance(one.label, int) for one in ranges) and not any(
        event.on_device for event in known
    )
    return Trace({c: found for c, found in calls.items() if found}, tuple(loose), is_blind)


def _kernel_ranges(
    events: Sequence[TraceEvent], around: dict[GraphCall, TraceEvent]
) -> Iterator[_KernelRange]:
    """Yield the ranges of kernels in order of time; collect ranges of C++ calls in `around`."""
    # By thread: the open C++ call with its kernel names so far, and the end of its last kernel.
    within: dict[int, tuple[GraphCall, Counter[str]]] = {}
    ended: Counter[int] = Counter()
    for event in events:
        if event.on_device:
            continue
        numbers = _numbers(event.name)
        if len(numbers) == 3:
            yield _KernelRange(event, (numbers[0], numbers[1]), numbers[2])
        elif len(numbers) == 2:
            call = numbers[0], numbers[1]
            around[call], within[event.thread] = event, (call, Counter())
        elif event.thread in within and (kernel := _CPP_KERNEL.fullmatch(event.name)):
            call, seen = within[event.thread]
            is_outermost = event.start >= ended[event.thread]
            if is_outermost and event.end <= around[call].end:
                name = kernel[kernel.lastgroup or 0]
                yield _KernelRange(event, call, (name, seen[name]))
                seen[name] += 1
                ended[event.thread] = event.end


def _numbers(name: str) -> tuple[int, ...]:
    """Parse the graph, call and site from the name of the tool's range; () for other ranges."""
    parts = name.removeprefix(_PREFIX).split(":")
    is_own = name.startswith(_PREFIX) and all(part.isdecimal() for part in parts)
    return tuple(map(int, parts)) if is_own else ()


def _works(events: Sequence[TraceEvent]) -> Iterator[tuple[int | None, TraceEvent]]:
    """Yield device activity, with the time of its launch; None if that is unknown."""
    launched = {
        event.correlation: event.start
        for event in events
        if not event.on_device and event.correlation and event.name.startswith(_RUNTIME)
    }
    for event in events:
        if event.on_device and not event.name.startswith(_PREFIX):  # Ranges appear there, too.
            yield launched.get(event.correlation), event


def _on_device(ranges: Sequence[_KernelRange]) -> TracedCall | None:
    works = [work for one in ranges for work in one.works]
    if not works:
        return None
    begin = min(work.start for work in works)
    kernels = tuple(
        (one.label, one.works[0].start - begin, sum(work.duration for work in one.works))
        for one in ranges
        if one.works
    )
    return TracedCall(max(work.end for work in works) - begin, kernels, on_device=True)


def _on_cpu(ranges: Sequence[_KernelRange], call: TraceEvent | None) -> TracedCall | None:
    if call is None:
        return None
    kernels = ((one.label, one.event.start - call.start, one.event.duration) for one in ranges)
    return TracedCall(call.duration, tuple(kernels))


# --- choosing calls, and tracing them -------------------------------------------------------------


@dataclass
class _TracedThing:
    calls: int = 0
    left: int = _CALLS + 1
    # The number of loaded wrappers when calls were last granted.
    wrappers: int = 0


class _OpenRanges(threading.local):
    def __init__(self) -> None:
        self.ranges: list[Any] = []


class KernelTracer:
    """Traces the kernels of a few calls of each thing.

    The profiler runs during those calls alone: the program may have its own before and after.
    """

    def __init__(self, traced: Callable[[Trace], None]) -> None:
        """`traced` receives every trace."""
        self._hand_over = traced
        self.profilers = ProgramProfilers(self.make_way)
        self.note = ""
        # The number of wrappers loaded so far, and whether one of them is C++ code.
        self.wrappers = 0
        self.has_cpp = False
        self._profiler: Any = None
        # The thread and the thing whose call is being traced.
        self._thread: int | None = None
        self._thing: Thing | None = None
        self._things: dict[Thing, _TracedThing] = {}
        self._open = _OpenRanges()
        # Notified when a call that was traced has ended.
        self._ended = threading.Condition()
        self._has_failed = False

    @property
    def is_on(self) -> bool:
        """Whether kernels that this thread launches are timed at the moment."""
        return self._thread == threading.get_ident()

    def call_begins(self, thing: Thing) -> bool:
        """Begin a warm call of a compiled thing; return whether it is traced."""
        with self._ended:
            if self._thread is not None or self._has_failed or not self._wants(thing):
                return False
            if not self._start():
                return False
            self._thread, self._thing = threading.get_ident(), thing
            return True

    def _wants(self, thing: Thing) -> bool:
        known = self._things.setdefault(thing, _TracedThing(wrappers=self.wrappers))
        if known.wrappers < self.wrappers:
            known.left, known.wrappers = _CALLS + 1, self.wrappers
        return known.left > 0 and known.calls < _MOST

    def call_ended(self) -> None:
        with self._ended:
            if not self.is_on:
                return
            try:
                self._stop()
            finally:
                self._is_over()
                self._ended.notify_all()

    def _is_over(self) -> None:
        if self._thing is not None:
            known = self._things[self._thing]
            known.calls, known.left = known.calls + 1, known.left - 1
        self._thread = self._thing = None

    def make_way(self) -> None:
        """End the tool's trace, because the program is about to use torch's profiler."""
        with self._ended:
            profiler = self._profiler
            if self.is_on and profiler is not None:
                # The program's profiler begins in the traced call itself, whose trace is discarded.
                self._profiler = None
                self._is_over()
                self.note = OWN_PROFILER
                _end(profiler)
            elif not self._ended.wait_for(lambda: self._profiler is None, LONGEST_WAIT):
                self._profiler = None  # Discarded: only its own thread can end it.
                self.note = OWN_PROFILER

    def _start(self) -> bool:
        import torch

        on_gpu = torch.cuda.is_initialized()
        if not on_gpu and not self.has_cpp:
            return False
        if not self.profilers.leave_it_free:
            self.note = OWN_PROFILER
            return False
        try:
            known = torch.profiler.ProfilerActivity
            activities = [known.CPU, known.CUDA] if on_gpu else [known.CPU]
            # With acc_events, torch does not warn that events of earlier cycles are lost.
            profiler = torch.profiler.profile(activities=activities, acc_events=True)
            with used_by_the_tool():
                profiler.start()
        except Exception as error:
            self._give_up(f"torch.profiler is not available ({type(error).__name__}: {error}")
            return False
        self._profiler = profiler
        return True

    def _give_up(self, why: str) -> None:
        self._has_failed = True
        self.note = f"{why[:200]}): only whole calls are timed."

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        try:
            _end(profiler)
            trace = read_trace(_events(profiler))
        except Exception as error:
            self._give_up(f"torch.profiler failed ({type(error).__name__}: {error}")
            return
        self._hand_over(trace)
        if trace.is_blind:
            self._give_up("torch.profiler saw nothing on the GPU (CUPTI may not be permitted")

    # --- inside a traced call ---------------------------------------------------------------------

    def around(self, name: str, call: Callable[[], Any]) -> Any:
        if not self.is_on:
            return call()
        import torch

        with torch._C._profiler._RecordFunctionFast(name):
            return call()

    def before(self, graph: int, call: int, site: int) -> None:
        if self.is_on:
            import torch

            opened = torch._C._profiler._RecordFunctionFast(range_name(graph, call, site))
            opened.__enter__()
            self._open.ranges.append(opened)

    def after(self) -> None:
        if self._open.ranges:
            self._open.ranges.pop().__exit__(None, None, None)


def allowed_in_tf32() -> set[str]:
    import torch

    try:
        found = {CONVOLUTIONS} if torch.backends.cudnn.allow_tf32 else set()
        if torch.get_float32_matmul_precision() != "highest":
            found.add(PRODUCTS)
    except RuntimeError:  # torch raises once a program has used the newer settings.
        return {PRODUCTS, CONVOLUTIONS}
    return found


def _end(profiler: Any) -> None:
    """Synchronize with the device, then end a trace, even if waiting is interrupted."""
    import torch

    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    finally:
        with used_by_the_tool():
            profiler.stop()


def _events(profiler: Any) -> Iterator[TraceEvent]:
    import torch

    results = profiler.profiler.kineto_results
    for event in results.events() if results is not None else ():
        yield TraceEvent(
            event.name(),
            event.start_ns(),
            event.duration_ns(),
            event.correlation_id(),
            event.device_type() != torch.autograd.DeviceType.CPU,
            event.start_thread_id(),
        )
