"""What ran on a GPU, from a trace of torch.profiler: which call of which kernel took how long.

A kernel on the GPU has the same correlation number as the call of the CUDA runtime that launched
it, and that call lies inside the range that the rewritten wrapper opened around it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
