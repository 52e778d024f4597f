"""Takes the time of every kernel that a Python wrapper calls, inside the program."""

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductoscope.inside.profiling.call_clock import Agent, Reservoir
from inductoscope.inside.profiling.kernel_traces import (
    CallRange,
    DeviceTimes,
    SiteRange,
    times_of_sites,
    with_kernels,
)
from inductoscope.inside.profiling.profiled_packages import JIT_WRAPPERS, ProfiledPackages
from inductoscope.inside.profiling.torch_profiler import ProgramProfilers
from inductoscope.inside.start import InsidePart
from inductoscope.profiling.orders import Orders, orders_from
from inductoscope.profiling.timings import (
    CLOCK,
    MOST_SIZES,
    WHOLE,
    GraphTimes,
    KernelSpan,
    KernelTimes,
    SiteTimes,
    WholeCall,
    write_kernel_times,
)
from inductoscope.torch_facts import python_wrappers
from inductoscope.torch_facts.python_wrappers import Site, TimedWrapper, exchange, timed_wrapper
from inductoscope.torch_facts.torch_names import Hook

if TYPE_CHECKING:
    from inductoscope.inside.profiling.profiler_clock import ProfilerClock


# Calls of one kernel whose times are kept.
_MOST_KEPT = 512
# Calls of a wrapper that are kept as they were, with the times of all kernels.
_MOST_WHOLE = 8

_Sizes = tuple[tuple[str, int], ...]


def _few() -> Reservoir:
    return Reservoir(_MOST_KEPT)


@dataclass(frozen=True)
class _TimedCall:
    """One call of a wrapper: when it began, how long it took, and the times of its kernels."""

    begun: int
    duration: int
    times: Sequence[int]


@dataclass
class _KeptCalls:
    """Some calls of a wrapper as they were, each with the same chance to be among them."""

    count: int = 0
    kept: list[_TimedCall] = field(default_factory=list)
    # Of its own: the program's random numbers stay as they are.
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, call: _TimedCall) -> None:
        """One more call."""
        self.count += 1
        if len(self.kept) < _MOST_WHOLE:
            self.kept.append(call)
            return
        place = self._random.randrange(self.count)
        if place < _MOST_WHOLE:
            self.kept[place] = call

    def usual(self, sites: Sequence[Site]) -> WholeCall | None:
        """The call in the middle, by time."""
        if not self.kept:
            return None
        call = sorted(self.kept, key=lambda one: one.duration)[len(self.kept) // 2]
        found = sorted(zip(*(iter(call.times),) * 3, strict=True), key=lambda item: item[1])
        return WholeCall(
            call.duration,
            tuple(
                KernelSpan(sites[n].line, sites[n].kernel, begin - call.begun, end - begin)
                for n, begin, end in found
                if end >= begin >= call.begun
            ),
        )


@dataclass
class _CallsOfSizes:
    """The calls of a wrapper with one set of sizes."""

    sites: list[Reservoir]
    whole: Reservoir = field(default_factory=_few)
    between: Reservoir = field(default_factory=_few)
    calls: int = 0
    first: int = 0
    first_sites: dict[int, int] = field(default_factory=dict)
    as_they_were: _KeptCalls = field(default_factory=_KeptCalls)

    def note(self, times: Sequence[int]) -> int:
        """`times`: number of a site, begin, end, and so on. The first call is kept apart.

        Returns the time of these kernels.
        """
        is_first, busy = not self.calls, 0
        for place in range(0, len(times), 3):
            took = times[place + 2] - times[place + 1]
            if took < 0:
                continue  # The clock was set back.
            busy += took
            if is_first:
                self.first_sites[times[place]] = took
            else:
                self.sites[times[place]].add(took)
        return busy

    def note_whole(self, call: _TimedCall, busy: int) -> None:
        """The whole wrapper has ended; `busy` is the time of all its kernels."""
        self.calls += 1
        if call.duration < 0:
            return  # The clock was set back.
        if self.calls == 1:
            self.first = call.duration
        else:
            self.whole.add(call.duration)
            self.between.add(max(0, call.duration - busy))
            self.as_they_were.add(call)


class TimedGraph:
    """A loaded wrapper, and what was measured of it."""

    def __init__(self, path: str, wrapper: TimedWrapper | None, clock: Callable[[], int]) -> None:
        self.path, self.wrapper, self._clock = path, wrapper, clock
        self.sites = () if wrapper is None else wrapper.sites
        self.on_gpu = wrapper is not None and wrapper.on_gpu
        self.profiler: ProfilerClock | None = None
        # Its place among all wrappers.
        self.index = 0
        # How many calls have ended, and of those that were timed on a GPU, their sizes.
        self.number = 0
        self.sizes_of_calls: dict[int, _Sizes] = {}
        self._in_tf32: set[str] = set()
        self._by_sizes: dict[_Sizes, _CallsOfSizes] = {}
        # By thread: the times of kernels in parts of the call that is under way, and their sum.
        self._in_parts: dict[int, tuple[list[int], int]] = {}
        self._other_sizes = 0
        self._lock = threading.Lock()

    def traced(self, call: Callable[[], Any]) -> Any:
        """A call of a wrapper in C++, with a range around it in the trace."""
        if self.profiler is None:
            return call()
        return self.profiler.around(CallRange(self.index, self.number), call)

    def ended(
        self, times: Sequence[int], begun: int, sizes: Mapping[str, Any], is_entry: bool
    ) -> None:
        """The wrapper, or a part of it, is about to return."""
        duration = self._clock() - begun if is_entry else None
        # Sizes are numbers, or torch's, which compare like numbers.
        key = tuple((name, int(size)) for name, size in sizes.items())
        with self._lock:
            if is_entry:
                is_traced = self._note_traced(key)
                self.number += 1
                if is_traced and self._is_in_trace:
                    return
            thread = threading.get_ident()
            earlier, busy = self._in_parts.get(thread, ([], 0))
            self._in_parts[thread] = ([], 0)
            calls = self._by_sizes.get(key)
            if calls is None:
                if len(self._by_sizes) >= MOST_SIZES:
                    self._other_sizes += 1
                    return
                calls = self._by_sizes[key] = _CallsOfSizes([_few() for _ in self.sites])
            busy += calls.note(times)
            every = [*earlier, *times] if earlier else times
            if duration is None:
                self._in_parts[thread] = (list(every), busy)
            else:
                calls.note_whole(_TimedCall(begun, duration, every), busy)

    @property
    def _is_in_trace(self) -> bool:
        """Whether the profiler has the time of a wrapper in C++."""
        return self.wrapper is None and self.profiler is not None and self.profiler.has_trace

    def _note_traced(self, key: _Sizes) -> bool:
        """Whether the call that ends is traced."""
        if self.profiler is None or not self.profiler.notes_call(self.index):
            return False
        self.sizes_of_calls[self.number] = key
        self._in_tf32 |= self.profiler.allowed_in_tf32()
        return True

    def as_data(self) -> list[GraphTimes]:
        """What was measured so far, for each set of sizes."""
        with self._lock:
            return [self._of_sizes(dict(key), calls) for key, calls in self._by_sizes.items()]

    @property
    def no_times(self) -> GraphTimes:
        """What is written down if every call was traced."""
        return self._of_sizes({}, _CallsOfSizes([]))

    def _of_sizes(self, sizes: Mapping[str, int], calls: _CallsOfSizes) -> GraphTimes:
        return GraphTimes(
            self.path,
            sizes,
            CLOCK if self.sites else WHOLE,
            "cuda" if self.on_gpu else "cpu",
            calls.calls,
            tuple(calls.whole.kept),
            tuple(calls.between.kept) if self.sites else (),
            calls.first,
            tuple(
                SiteTimes(site.line, site.kernel, kept.count, kept.total, tuple(kept.kept))
                if kept.count
                else SiteTimes(site.line, site.kernel, sample=_only(calls.first_sites, site.number))
                for site, kept in zip(self.sites, calls.sites, strict=True)
            ),
            threads=len(self._in_parts),
            other_sizes=self._other_sizes,
            usual=calls.as_they_were.usual(self.sites),
            in_tf32=tuple(sorted(self._in_tf32)),
        )


def _only(first: Mapping[int, int], number: int) -> tuple[int, ...]:
    """The only call there was; its count stays at 0."""
    return (first[number],) if number in first else ()


class KernelClock:
    """Rewrites wrappers as they are loaded, and collects what they measure."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self.graphs: list[TimedGraph] = []
        self.profiler: ProfilerClock | None = None
        self.programs_profilers = ProgramProfilers(self._make_way)
        self.notes: dict[str, None] = {}
        self._packages: dict[str, TimedGraph] = {}

    def note_module(self, module: Any, path: str) -> None:
        """A wrapper was loaded: from now on it takes the time of its kernels."""
        try:
            text = Path(path).read_text("utf-8")
            wrapper = timed_wrapper(path, text)
        except (OSError, SyntaxError, ValueError) as error:
            self.notes[f"{path} cannot be rewritten: {error}"] = None
            wrapper = None
        if wrapper is None:
            module.call = self._in_cpp(module.call, self._cpp_graph(path))
            return
        graph = TimedGraph(path, wrapper, self._clock)
        self.graphs.append(graph)
        names = {python_wrappers.CLOCK: self._clock, python_wrappers.ENDED: graph.ended}
        exchange(module, wrapper.code, {**names, **self._names_on_gpu(graph)})

    def _names_on_gpu(self, graph: TimedGraph) -> dict[str, Any]:
        """What a wrapper for a GPU calls besides."""
        if not graph.on_gpu:
            return {}
        gpu, index = self._followed(graph), graph.index

        def before(site: int) -> None:
            gpu.before(SiteRange(index, graph.number, site))

        def after(site: int) -> None:
            gpu.after(SiteRange(index, graph.number, site))

        return {python_wrappers.BEFORE: before, python_wrappers.AFTER: after}

    def _followed(self, graph: TimedGraph) -> ProfilerClock:
        """The clock that traces some calls of a graph, the last one that was loaded."""
        if self.profiler is None:
            from inductoscope.inside.profiling.profiler_clock import ProfilerClock

            self.profiler = ProfilerClock(self.programs_profilers)
        graph.profiler, graph.index = self.profiler, len(self.graphs) - 1
        self.profiler.wrappers += 1
        return self.profiler

    def _cpp_graph(self, path: str) -> TimedGraph:
        """A graph whose wrapper is C++ code."""
        graph = TimedGraph(path, None, self._clock)
        self.graphs.append(graph)
        self._followed(graph).has_cpp = True
        return graph

    def _in_cpp(self, call: Callable[..., Any], graph: TimedGraph) -> Callable[..., Any]:
        """A wrapper in C++: from here only the whole of it can be timed, or traced."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = self._clock()
            result = graph.traced(lambda: call(*args, **kwargs))
            graph.ended((), begun, {}, True)
            return result

        return timed

    def package_call(self, package: str, call: Callable[[], Any]) -> Any:
        """A call of a package of AOTInductor that was loaded from this file."""
        graph = self._packages.get(package)
        if graph is None:
            graph = self._packages[package] = self._cpp_graph(package)
        return self._in_cpp(call, graph)()

    def call_begins(self, thing: tuple[str, str, str]) -> bool:
        """A warm call of a thing begins; True if the GPU is timed during it."""
        return self.profiler is not None and self.profiler.call_begins(thing)

    def call_ended(self) -> None:
        """A call during which the GPU was timed has ended."""
        if self.profiler is not None:
            self.profiler.call_ended()

    def _make_way(self) -> None:
        if self.profiler is not None:
            self.profiler.make_way()

    def finish(self) -> None:
        """The program ends."""
        if self.profiler is not None:
            self.profiler.finish()
            if self.profiler.note:
                self.notes[self.profiler.note] = None

    def as_data(self) -> tuple[GraphTimes, ...]:
        """What was measured so far."""
        found: list[GraphTimes] = []
        for number, graph in enumerate(self.graphs):
            if graph.wrapper is None and graph.profiler is not None:
                calls = graph.profiler.in_cpp.get(number, [])
                found += [
                    with_kernels(times, calls) for times in graph.as_data() or [graph.no_times]
                ]
                continue
            found += _on_gpu(number, graph) if graph.on_gpu else graph.as_data()
        return tuple(found)


def _on_gpu(number: int, graph: TimedGraph) -> Iterator[GraphTimes]:
    """The graph with times of the device, for each set of sizes that was called meanwhile."""
    names = [site.kernel for site in graph.sites]
    first = min(graph.sizes_of_calls, default=-1)
    for times in graph.as_data():
        key = tuple(times.sizes.items())
        traced = [call for call, sizes in graph.sizes_of_calls.items() if sizes == key]
        # The profiler starts up in the first one, and torch may still choose among its kernels.
        calls = [call for call in traced if call != first]
        gpu = graph.profiler
        if gpu is None or not (traced or gpu.times.others):
            continue
        sites, spans, gaps = times_of_sites(gpu.times, number, calls or traced, names)
        is_only = bool(traced) and not calls
        yield replace(
            times,
            how=gpu.how,
            sample=tuple(spans),
            between=tuple(gaps),
            usual=_usual_on_gpu(gpu.times, number, calls or traced, graph.sites),
            sites=tuple(
                SiteTimes(site.line, site.kernel, sample=tuple(took))
                if is_only
                else SiteTimes(site.line, site.kernel, len(took), sum(took), tuple(took))
                for site in graph.sites
                if (took := sites.get(site.number, []))
            ),
        )


def _usual_on_gpu(
    times: DeviceTimes, graph: int, calls: Sequence[int], sites: Sequence[Site]
) -> WholeCall | None:
    """The call in the middle, by time, as the GPU saw it."""
    spans = {call: times.spans[graph, call] for call in calls if (graph, call) in times.spans}
    if not spans:
        return None
    middle = sorted(spans, key=lambda call: spans[call][1] - spans[call][0])[len(spans) // 2]
    begin, end = spans[middle]
    found = [
        KernelSpan(sites[where.site].line, sites[where.site].kernel, first - begin, last - first)
        for where, (first, last) in times.sites.items()
        if (where.graph, where.call) == (graph, middle) and where.site < len(sites)
    ]
    return WholeCall(end - begin, tuple(sorted(found, key=lambda span: span.start)))


# --- The kernel profiler inside a process of the user's program -----------------------------------


def kernel_profiler(folder: Path) -> InsidePart:
    """Time compiled calls, and every kernel in them."""
    return KernelAgent(orders_from(), folder).part()


class KernelAgent(Agent):
    """Times compiled calls and the kernels in them."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        super().__init__(orders, folder)
        self._kernels = KernelClock()
        self._packages = ProfiledPackages(self.place)
        self.clock.disturbs = self._kernels.call_begins
        self.clock.disturbed_ended = self._kernels.call_ended

    def hooks(self) -> tuple[Hook, ...]:
        """Those of every profiler, of C++ wrappers, and of the program's own profilers."""
        return (
            *super().hooks(),
            JIT_WRAPPERS,
            *self._packages.hooks(),
            self._kernels.programs_profilers.hook,
        )

    def around_packages(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Calls of packages are timed as a whole, and some of them kernel by kernel."""

        @functools.wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            path = self._packages.path_of(model)
            return self._kernels.package_call(path, lambda: original(model, *args, **kwargs))

        return super().around_packages(call)

    def graph_loaded(self, module: Any, path: str) -> None:
        """A wrapper was loaded: it takes the time of its kernels."""
        self._kernels.note_module(module, path)
        super().graph_loaded(module, path)

    def ends(self) -> None:
        """The program ends."""
        self._kernels.finish()
        self._packages.remove_copies()

    def write_files(self) -> None:
        """Write the times of calls, and of kernels."""
        super().write_files()
        graphs = self._kernels.as_data()
        if graphs or self._kernels.notes:
            self.place.mkdir(parents=True, exist_ok=True)
            found = KernelTimes(self.pid, graphs, tuple(self._kernels.notes))
            write_kernel_times(found, self.place)
