"""The kernel profiler inside a process of the user's program.

Times every kernel that a wrapper calls. A Python wrapper for the CPU is rewritten as it is loaded,
so that it reads the clock itself; others are traced by torch.profiler for a few calls.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.inside.profiling.agent import Agent
from inductoscope.inside.profiling.call_clock import Reservoir
from inductoscope.inside.profiling.kernel_tracer import (
    KernelTracer,
    Label,
    Trace,
    TracedCall,
    allowed_in_tf32,
    range_name,
)
from inductoscope.inside.profiling.profiled_packages import JIT_WRAPPERS, ProfiledPackages
from inductoscope.profiling.orders import Orders
from inductoscope.profiling.timings import (
    CLOCK,
    MOST_SIZES,
    PROFILER,
    WHOLE,
    GraphTimes,
    KernelTimes,
    Site,
    TimedCall,
    write_measured,
)
from inductoscope.torch_facts import python_wrappers
from inductoscope.torch_facts.python_wrappers import TimedWrapper, exchange, timed_wrapper
from inductoscope.torch_facts.torch_names import Hook

# The most calls of a wrapper that are kept with the times of all kernels.
_MOST_KEPT = 128

_Sizes = tuple[tuple[str, int], ...]


@dataclass
class _CallsOfSizes:
    """The calls of a graph with one set of sizes; the first, cold one is kept apart."""

    first: TimedCall
    others: Reservoir[TimedCall] = field(default_factory=lambda: Reservoir(_MOST_KEPT))


class TimedGraph:
    """A loaded wrapper or package, and the calls of it that were timed."""

    def __init__(self, index: int, path: str, wrapper: TimedWrapper | None = None) -> None:
        """`wrapper` is the rewritten one; None for C++ code."""
        self.index, self.path, self.in_cpp = index, path, wrapper is None
        lines = () if wrapper is None else wrapper.lines
        self.on_gpu = wrapper is not None and wrapper.on_gpu
        self.how = WHOLE if wrapper is None else CLOCK
        self.in_tf32: set[str] = set()
        # The number of calls begun, and the sizes of those that are being traced.
        self.number = 0
        self.sizes_of_calls: dict[int, _Sizes] = {}
        self._sites = [Site(line.kernel, line.line) for line in lines]
        # The sites of a C++ wrapper are known once they have been traced.
        self._numbers: dict[Label, int] = {}
        self._by_sizes: dict[_Sizes, _CallsOfSizes] = {}
        self._threads: set[int] = set()
        self._other_sizes = 0
        self._lock = threading.Lock()

    def note(self, sizes: _Sizes, call: TimedCall) -> None:
        with self._lock:
            self._threads.add(threading.get_ident())
            if sizes in self._by_sizes:
                self._by_sizes[sizes].others.add(call)
            elif len(self._by_sizes) < MOST_SIZES:
                self._by_sizes[sizes] = _CallsOfSizes(call)
            else:
                self._other_sizes += 1

    def note_traced(self, number: int, call: TracedCall) -> None:
        """Note a traced call, which shows no kernels if C++ code has no ranges around them."""
        sizes = self.sizes_of_calls.pop(number, ())
        if not call.kernels:
            if self.how == WHOLE:
                self.note(sizes, TimedCall(call.duration))
            return
        if self.how != PROFILER:
            # Calls that were timed as a whole until now are not comparable.
            self.how, self._by_sizes = PROFILER, {}
        self.on_gpu = self.on_gpu or call.on_device
        spans = tuple((self._site(label), at, took) for label, at, took in call.kernels)
        self.note(sizes, TimedCall(call.duration, spans))

    def _site(self, label: Label) -> int:
        if isinstance(label, int):
            return label
        if label not in self._numbers:
            name, occurrence = label
            self._numbers[label] = len(self._sites)
            self._sites.append(Site(name, 0, occurrence))
        return self._numbers[label]

    def note_replayed(self, trace: Trace) -> None:
        """Note kernels of a CUDA graph replay, which bypasses the wrapper, by their names alone."""
        names = [site.kernel for site in self._sites]
        known = {name: number for number, name in enumerate(names) if names.count(name) == 1}
        if not any(work.name in known for work in trace.loose):
            return
        begin = trace.loose[0].start
        spans = tuple((known.get(w.name, -1), w.start - begin, w.duration) for w in trace.loose)
        self.how = PROFILER
        self.note((), TimedCall(max(work.end for work in trace.loose) - begin, spans))

    def as_data(self) -> Iterator[GraphTimes]:
        with self._lock:
            for sizes, calls in self._by_sizes.items():
                yield GraphTimes(
                    self.path,
                    dict(sizes),
                    self.how,
                    "cuda" if self.on_gpu else "cpu",
                    tuple(self._sites),
                    calls.first,
                    calls.others.count,
                    tuple(calls.others.kept),
                    len(self._threads),
                    self._other_sizes,
                    tuple(sorted(self.in_tf32)),
                )


class _OpenCall(threading.local):
    """The times of the current call on this thread: its start, then three numbers for each
    kernel, which are its site, start and end.
    """

    def __init__(self) -> None:
        self.times: list[int] = []


class KernelClock:
    """Rewrites wrappers as they are loaded, and collects what they measure."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self.graphs: list[TimedGraph] = []
        self.tracer = KernelTracer(self._note_trace)
        self._rewriting_failed: dict[str, None] = {}
        self._open = _OpenCall()
        self._packages: dict[str, TimedGraph] = {}

    @property
    def notes(self) -> list[str]:
        return [*self._rewriting_failed, *filter(None, [self.tracer.note])]

    def note_module(self, module: Any, path: str) -> None:
        try:
            wrapper = timed_wrapper(path, Path(path).read_text("utf-8"))
        except (OSError, SyntaxError, ValueError) as error:
            self._rewriting_failed[f"{path} cannot be rewritten: {error}"] = None
            wrapper = None
        graph = self._add(path, wrapper)
        if wrapper is None:
            module.call = self._in_cpp(module.call, graph)
        else:
            exchange(module, wrapper.code, self.names_for(graph))

    def _add(self, path: str, wrapper: TimedWrapper | None) -> TimedGraph:
        graph = TimedGraph(len(self.graphs), path, wrapper)
        self.graphs.append(graph)
        if graph.in_cpp or graph.on_gpu:
            self.tracer.wrappers += 1
            self.tracer.has_cpp = self.tracer.has_cpp or graph.in_cpp
        return graph

    def names_for(self, graph: TimedGraph) -> dict[str, Any]:
        mine = self._open

        def opened(is_entry: bool) -> list[int]:
            if is_entry:
                mine.times = [self._clock()]
            return mine.times

        def ended(times: Sequence[int], sizes: Mapping[str, Any]) -> None:
            now = self._clock()
            # Sizes are ints or SymInts, which compare like ints.
            self._ended(graph, times, now, tuple((name, int(n)) for name, n in sizes.items()))

        return {
            python_wrappers.CLOCK: self._clock,
            python_wrappers.OPENED: opened,
            python_wrappers.ENDED: ended,
            python_wrappers.BEFORE: lambda site: self.tracer.before(
                graph.index, graph.number, site
            ),
            python_wrappers.AFTER: lambda site: self.tracer.after(),
        }

    def _ended(self, graph: TimedGraph, times: Sequence[int], now: int, sizes: _Sizes) -> None:
        """Collect the times of a rewritten wrapper's call, just before it returns."""
        if graph.on_gpu:
            # The device is still running the kernels, whose times come from the trace.
            if self.tracer.is_on:
                graph.sizes_of_calls[graph.number] = sizes
                graph.in_tf32 |= allowed_in_tf32()
            graph.number += 1
            return
        begun, kernels = times[0], zip(times[1::3], times[2::3], times[3::3], strict=True)
        spans = tuple((site, begin - begun, end - begin) for site, begin, end in kernels)
        graph.note(sizes, TimedCall(now - begun, spans))

    def _in_cpp(self, call: Callable[..., Any], graph: TimedGraph) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            name, begun = range_name(graph.index, graph.number), self._clock()
            result = self.tracer.around(name, lambda: call(*args, **kwargs))
            graph.number += 1
            if self.tracer.is_on:
                graph.in_tf32 |= allowed_in_tf32()
            elif graph.how == WHOLE:
                graph.note((), TimedCall(self._clock() - begun))
            return result

        return timed

    def package_call(self, package: str, call: Callable[[], Any]) -> Any:
        """Make a call of the AOTInductor package that was loaded from this file, and time it."""
        if package not in self._packages:
            self._packages[package] = self._add(package, None)
        return self._in_cpp(call, self._packages[package])()

    def _note_trace(self, trace: Trace) -> None:
        for (index, number), call in trace.calls.items():
            self.graphs[index].note_traced(number, call)
        seen = {index for index, _ in trace.calls}
        for graph in self.graphs:
            if graph.on_gpu and graph.index not in seen:
                graph.note_replayed(trace)

    def as_data(self) -> tuple[GraphTimes, ...]:
        return tuple(times for graph in self.graphs for times in graph.as_data())


class KernelAgent(Agent):
    def __init__(self, orders: Orders, folder: Path) -> None:
        super().__init__(orders, folder)
        self._kernels = KernelClock()
        self._packages = ProfiledPackages(self.place)
        self.clock.disturbs = self._kernels.tracer.call_begins
        self.clock.disturbed_ended = self._kernels.tracer.call_ended

    def hooks(self) -> tuple[Hook, ...]:
        return (
            *super().hooks(),
            JIT_WRAPPERS,
            *self._packages.hooks(),
            self._kernels.tracer.profilers.hook,
        )

    def around_packages(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            path = self._packages.path_of(model)
            return self._kernels.package_call(path, lambda: original(model, *args, **kwargs))

        return super().around_packages(call)

    def graph_loaded(self, module: Any, path: str) -> None:
        self._kernels.note_module(module, path)
        super().graph_loaded(module, path)

    def ends(self) -> None:
        self._kernels.tracer.call_ended()
        self._packages.remove_copies()

    def write_files(self) -> None:
        super().write_files()
        graphs = self._kernels.as_data()
        if graphs or self._kernels.notes:
            write_measured(KernelTimes(self.pid, graphs, tuple(self._kernels.notes)), self.place)


kernel_profiler = KernelAgent.part
