"""Kernels of C++ wrappers, from a trace of torch.profiler.

Torch opens a range around every kernel that such a wrapper calls if it was compiled with
`cpp.enable_kernel_profile`. Around the whole call lies a range of ours. What a range launched on a
GPU is found by correlation numbers; without any, the range itself is the time of the kernel.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inductoscope.profiling.kernels.device_trace import PREFIX, TraceEvent, launches

# graph_0_cpp_fused_add_0, kernels_.triton_poi_fused_add_0, aoti_torch_cpu_mm_out
_KERNEL = re.compile(
    r"graph_\d+_(?P<named>\w+)"
    r"|(?:kernels_?\.)?(?P<generated>(?:cpp|triton|cuda|cutlass)_\w+)"
    r"|(?P<library>aoti_torch_\w+)"
)


@dataclass(frozen=True)
class CallRange:
    """A call of a wrapper in C++: which graph, and which call of it."""

    graph: int
    call: int

    @property
    def name(self) -> str:
        """The name of the range in the trace."""
        return f"{PREFIX}{self.graph}:{self.call}"


@dataclass(frozen=True)
class TracedKernel:
    """One kernel in a call; times in nanoseconds, from the beginning of the call on."""

    name: str
    # How many calls of the same name came before it.
    occurrence: int
    start: int
    duration: int


@dataclass(frozen=True)
class TracedCall:
    """One call of a wrapper in C++."""

    duration: int
    on_device: bool
    kernels: tuple[TracedKernel, ...] = ()


def traced_calls(events: Iterable[TraceEvent]) -> dict[CallRange, TracedCall]:
    """The calls of C++ wrappers in a trace, with their kernels in order."""
    known = sorted(events, key=lambda event: event.start)
    launched = sorted(
        ((at, work) for at, work in launches(known) if at is not None), key=lambda item: item[0]
    )
    launch_times = [at for at, _ in launched]
    kernels = _KernelRanges(known)
    found = {}
    for event in known:
        where = None if event.on_device else _call_range(event.name)
        if where is not None:
            ranges = kernels.inside(event)
            works = launched[_inside(launch_times, event)]
            found[where] = _on_device(ranges, works) if works else _on_cpu(event, ranges)
    return found


def _call_range(name: str) -> CallRange | None:
    parts = name.removeprefix(PREFIX).split(":")
    if not name.startswith(PREFIX) or len(parts) != 2 or not all(p.isdecimal() for p in parts):
        return None
    return CallRange(*map(int, parts))


def _is_inside(time: int, event: TraceEvent) -> bool:
    return event.start <= time <= event.start + event.duration


def _inside(times: Sequence[int], event: TraceEvent) -> slice:
    """Those of these times, in their order, that lie in an event."""
    end = event.start + event.duration
    return slice(bisect_left(times, event.start), bisect_right(times, end))


class _KernelRanges:
    """The ranges of kernels on each thread, by time."""

    def __init__(self, events: Iterable[TraceEvent]) -> None:
        """The events are in the order of time."""
        self._ranges: dict[int, list[tuple[str, TraceEvent]]] = {}
        for event in events:
            kernel = None if event.on_device else _KERNEL.fullmatch(event.name)
            if kernel is not None:
                named = kernel[kernel.lastgroup or 0]
                self._ranges.setdefault(event.thread, []).append((named, event))
        self._starts = {
            thread: [event.start for _, event in ranges] for thread, ranges in self._ranges.items()
        }

    def inside(self, call: TraceEvent) -> list[tuple[str, TraceEvent]]:
        """The outermost ranges in a call, in order."""
        here = _inside(self._starts.get(call.thread, []), call)
        found: list[tuple[str, TraceEvent]] = []
        for name, event in self._ranges.get(call.thread, [])[here]:
            if not found or event.start >= found[-1][1].start + found[-1][1].duration:
                found.append((name, event))
        return found


def _on_cpu(call: TraceEvent, ranges: Sequence[tuple[str, TraceEvent]]) -> TracedCall:
    seen: Counter[str] = Counter()
    kernels = []
    for name, event in ranges:
        kernels.append(TracedKernel(name, seen[name], event.start - call.start, event.duration))
        seen[name] += 1
    return TracedCall(call.duration, False, tuple(kernels))


def _on_device(
    ranges: Sequence[tuple[str, TraceEvent]], launched: Sequence[tuple[int, TraceEvent]]
) -> TracedCall:
    begin = min(work.start for _, work in launched)
    end = max(work.start + work.duration for _, work in launched)
    starts = [event.start for _, event in ranges]
    works: list[list[TraceEvent]] = [[] for _ in ranges]
    for at, work in launched:
        place = bisect_right(starts, at) - 1
        if place >= 0 and _is_inside(at, ranges[place][1]):
            works[place].append(work)
    seen: Counter[str] = Counter()
    kernels = []
    for (name, _), own in zip(ranges, works, strict=True):
        if own:
            first = min(work.start for work in own) - begin
            took = sum(work.duration for work in own)
            kernels.append(TracedKernel(name, seen[name], first, took))
        seen[name] += 1
    return TracedCall(end - begin, True, tuple(kernels))
