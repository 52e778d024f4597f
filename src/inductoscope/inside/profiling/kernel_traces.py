"""What ran on a GPU, from a trace of torch.profiler: which call of which kernel took how long.

A kernel on the GPU has the same correlation number as the call of the CUDA runtime that launched
it, and that call lies inside the range that the rewritten wrapper opened around it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.profiling.timings import (
    PROFILER,
    GraphTimes,
    KernelSpan,
    SiteTimes,
    WholeCall,
)

PREFIX = "inductoscope:"
# Calls of the CUDA and HIP runtimes and drivers.
_RUNTIME = ("cuda", "cu", "hip")


@dataclass(frozen=True)
class TraceEvent:
    """One event of a trace; times in nanoseconds."""

    name: str
    start: int
    duration: int
    correlation: int
    on_device: bool
    thread: int = 0


@dataclass(frozen=True)
class SiteRange:
    """A call of a kernel in a wrapper: which graph, which call of it, which site."""

    graph: int
    call: int
    site: int

    @property
    def name(self) -> str:
        """The name of the range in the trace."""
        return f"{PREFIX}{self.graph}:{self.call}:{self.site}"


def range_from(name: str) -> SiteRange | None:
    """The call that a range in the trace stands for."""
    parts = name.removeprefix(PREFIX).split(":")
    if not name.startswith(PREFIX) or len(parts) != 3 or not all(p.isdecimal() for p in parts):
        return None
    return SiteRange(*map(int, parts))


@dataclass
class DeviceTimes:
    """Times on the device, in nanoseconds."""

    # By call of a kernel: the time of everything that it launched.
    busy: dict[SiteRange, int] = field(default_factory=dict)
    # By call of a kernel: from the start of the first thing launched to the end of the last.
    sites: dict[SiteRange, tuple[int, int]] = field(default_factory=dict)
    # By graph and call: from the start of its first kernel to the end of its last.
    spans: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    # What no range launched, by name: a CUDA graph replays kernels without its wrapper.
    others: dict[str, list[int]] = field(default_factory=dict)


def device_times(events: Iterable[TraceEvent]) -> DeviceTimes:
    """Join what ran on the device with the ranges that launched it."""
    known = list(events)
    ranges = _Ranges(known)
    found = DeviceTimes()
    for at, event in launches(known):
        where = None if at is None else ranges.around(at)
        if where is None:
            found.others.setdefault(event.name, []).append(event.duration)
            continue
        found.busy[where] = found.busy.get(where, 0) + event.duration
        span = event.start, event.start + event.duration
        found.sites[where] = _around(found.sites.get(where, span), span)
        key = where.graph, where.call
        found.spans[key] = _around(found.spans.get(key, span), span)
    return found


def launches(events: Sequence[TraceEvent]) -> Iterator[tuple[int | None, TraceEvent]]:
    """What ran on the device, with the time at which it was launched; None if that is unknown."""
    launched = {
        event.correlation: event.start
        for event in events
        if not event.on_device and event.correlation and event.name.startswith(_RUNTIME)
    }
    for event in events:
        if event.on_device and not event.name.startswith(PREFIX):  # Ranges are shown there, too.
            yield launched.get(event.correlation), event


def _around(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """From the earlier beginning to the later end."""
    return min(one[0], other[0]), max(one[1], other[1])


class _Ranges:
    """The ranges of a trace, by time. They do not overlap on one thread."""

    def __init__(self, events: Sequence[TraceEvent]) -> None:
        found = [(e, r) for e in events if not e.on_device and (r := range_from(e.name))]
        self._found = sorted(found, key=lambda item: item[0].start)
        self._starts = [event.start for event, _ in self._found]

    def around(self, time: int) -> SiteRange | None:
        """The range that a time lies in."""
        place = bisect_right(self._starts, time) - 1
        if place < 0:
            return None
        event, where = self._found[place]
        return where if time <= event.start + event.duration else None


def times_of_sites(
    times: DeviceTimes, graph: int, calls: Sequence[int], names: Sequence[str]
) -> tuple[Mapping[int, list[int]], list[int], list[int]]:
    """Of these calls of a graph: times of each site, spans of the calls, and gaps in them.

    `names` are the kernels of the sites. What a CUDA graph replayed is known by name alone.
    """
    wanted = set(calls)
    sites: dict[int, list[int]] = {}
    busy: dict[int, int] = {}
    for where, took in times.busy.items():
        if where.graph == graph and where.call in wanted:
            sites.setdefault(where.site, []).append(took)
            busy[where.call] = busy.get(where.call, 0) + took
    if not sites:
        for number, name in enumerate(names):
            if names.count(name) == 1 and name in times.others:
                sites[number] = times.others[name]
    spans = {
        call: end - start
        for (number, call), (start, end) in times.spans.items()
        if number == graph and call in wanted
    }
    gaps = [max(0, span - busy.get(call, 0)) for call, span in spans.items()]
    return sites, list(spans.values()), gaps


# --- Kernels of C++ wrappers, from a trace of torch.profiler --------------------------------------
#
# Torch opens a range around every kernel that such a wrapper calls if it was compiled with
# `cpp.enable_kernel_profile`. Around the whole call lies a range of ours. What a range launched
# on a GPU is found by correlation numbers; without any, the range itself is the time of the
# kernel.

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


# --- Times of the kernels of a C++ wrapper, from its traced calls ---------------------------------


def with_kernels(times: GraphTimes, traced: Sequence[TracedCall]) -> GraphTimes:
    """The graph with the times of its kernels; as it is if none was seen.

    The profiler starts up in the first traced call, which only counts if there is no other.
    """
    calls = traced[1:] or traced
    if not any(call.kernels for call in calls):
        return times
    on_device = any(call.on_device for call in calls)
    is_only = len(traced) == 1
    durations: dict[tuple[str, int], list[int]] = {}
    for call in calls:
        for kernel in call.kernels:
            durations.setdefault((kernel.name, kernel.occurrence), []).append(kernel.duration)
    # On a GPU a call returns before its work is done, so that the clock says nothing.
    whole = tuple(call.duration for call in calls)
    return replace(
        times,
        how=PROFILER,
        device="cuda" if on_device else "cpu",
        sample=whole if on_device or not times.sample else times.sample,
        between=tuple(_between(call) for call in calls),
        sites=tuple(
            SiteTimes(
                0,
                name,
                0 if is_only else len(took),
                0 if is_only else sum(took),
                tuple(took),
                occurrence,
            )
            for (name, occurrence), took in durations.items()
        ),
        usual=_usual(calls),
    )


def _between(call: TracedCall) -> int:
    return max(0, call.duration - sum(kernel.duration for kernel in call.kernels))


def _usual(calls: Sequence[TracedCall]) -> WholeCall:
    """The call in the middle, by time."""
    call = sorted(calls, key=lambda one: one.duration)[len(calls) // 2]
    return WholeCall(
        call.duration,
        tuple(KernelSpan(0, k.name, k.start, k.duration) for k in call.kernels),
    )
