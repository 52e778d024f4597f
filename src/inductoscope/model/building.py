"""One stream of events being folded: what is known so far, and what each kind of event adds.

One function per class of event, listed in `HANDLERS`. A class that only others read is listed in
`READ_ELSEWHERE`; a test finds one that is in neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from inductoscope.model import entities as E
from inductoscope.model.checks import CallableCheck, Check, NotedDifference
from inductoscope.model.counts import NO_CALLS
from inductoscope.model.fusions import fusion_round
from inductoscope.model.kernel import kernel
from inductoscope.model.later import LATER, LISTS
from inductoscope.model.position import ProcessPosition
from inductoscope.model.uncaught import UncaughtException, uncaught
from inductoscope.recording.events import autotuning, checking, code, compiling, graphs, process
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.reading import Entry, UndecodedEvents

OfGraph = TypeVar("OfGraph", bound=Event)


@dataclass
class Building:
    """A compile under construction: plain values, and lists that become tuples."""

    start: compiling.CompileStart
    end: compiling.CompileEnd | None = None
    # Spent after the end: the backward graph is compiled when it is first needed.
    later_seconds: float = 0.0
    guards: compiling.GuardsBuilt | None = None
    recompile: E.Recompile | None = None
    decompositions: dict[str, int] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    stage_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    graphs: dict[str, BuildingGraph] = field(default_factory=dict)


@dataclass
class BuildingGraph:
    """An Inductor graph under construction."""

    fields: dict[str, Any]
    lists: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass
class Stream:
    """One process's events, folded so far."""

    name: str
    position: ProcessPosition = field(default_factory=ProcessPosition)
    torch: process.TorchImported | None = None
    notes: dict[type[Event], list[Any]] = field(default_factory=lambda: defaultdict(list))
    compiles: dict[str, Building] = field(default_factory=dict)
    order: list[Building] = field(default_factory=list)
    natives: list[code.NativeStart | code.NativeEnd] = field(default_factory=list)
    launch_configs: list[E.LaunchConfigs] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    callable_checks: list[CallableCheck] = field(default_factory=list)
    noted: list[NotedDifference] = field(default_factory=list)
    # Compiles of which only the first calls were checked.
    unchecked: dict[str, None] = field(default_factory=dict)
    sizes_tried: dict[str, None] = field(default_factory=dict)
    # The last that is known of the compile of each autotuning choice.
    choices: dict[str, autotuning.ChoiceStart | autotuning.ChoiceEnd] = field(default_factory=dict)
    command_pid: int = 0
    ending: E.Ending | None = None
    uncaught: list[UncaughtException] = field(default_factory=list)
    current: str = ""
    now: float = 0.0
    latest: float = 0.0

    def take(self, entry: Entry[Event]) -> None:
        """Add what an event says."""
        self.now = entry.time
        self.latest = max(self.latest, entry.time)
        if isinstance(entry.event, UndecodedEvents):
            lists = self.graph_of(entry.event).lists
            for kind, lines in entry.event.lines.items():
                lists[LISTS[kind]] += lines
            return
        self.position.take(entry)
        handler = HANDLERS.get(type(entry.event))
        if handler is not None:
            handler(self, entry.event)

    def compile_of(self, event: Any) -> Building:
        """The compile that an event belongs to; made up if its beginning was not recorded."""
        graph = getattr(event, "graph", "")
        key = getattr(event, "compile", "") or graph.partition(" ")[0] or self.current or "?"
        if key not in self.compiles:
            self._begin(key, compiling.CompileStart(compile=key))
        return self.compiles[key]

    def _begin(self, key: str, start: compiling.CompileStart) -> None:
        building = self.compiles[key] = Building(start=start)
        self.order.append(building)

    def begin(self, event: compiling.CompileStart) -> None:
        """A compile starts. The same id again is a further attempt, which replaces nothing."""
        self.current = event.compile or "?"
        self._begin(self.current, event)

    def graph_of(self, event: Any) -> BuildingGraph:
        """The Inductor graph that an event belongs to."""
        key = event.graph or "?"
        known = self.compile_of(event).graphs
        if key not in known:
            known[key] = BuildingGraph({"key": key, "phase": key.partition(" ")[2]})
        return known[key]


# --- processes ------------------------------------------------------------------------------------


def _process_note(stream: Stream, event: Event) -> None:
    stream.notes[type(event)].append(event)


def _torch(stream: Stream, event: process.TorchImported) -> None:
    stream.torch = event


def _launched(stream: Stream, event: process.Launched) -> None:
    stream.command_pid = event.pid


def _exited(stream: Stream, event: process.Exited) -> None:
    stream.ending = E.Ending(event.exit_code, event.signal, event.seconds, event.by_tool)


# --- compiles -------------------------------------------------------------------------------------


def _compile_end(stream: Stream, event: compiling.CompileEnd) -> None:
    stream.compile_of(event).end = event


def _graph_break(stream: Stream, event: compiling.GraphBroke) -> None:
    found = E.GraphBreak(event.reason, event.source, event.stack, event.code)
    stream.compile_of(event).lists["breaks"].append(found)


def _guards(stream: Stream, event: compiling.GuardsBuilt) -> None:
    stream.compile_of(event).guards = event


def _cudagraphs_skipped(stream: Stream, event: graphs.CudaGraphsSkipped) -> None:
    stream.compile_of(event).lists["cudagraph_skips"].append(event.reason)


def _recompile(stream: Stream, event: compiling.Recompiled) -> None:
    stream.compile_of(event).recompile = E.Recompile(event.reasons, callers=event.callers)


def _recompile_limit(stream: Stream, event: compiling.RecompileLimitHit) -> None:
    building = stream.compile_of(event)
    building.recompile = replace(building.recompile or E.Recompile(()), limit=event.limit)


def _cache(stream: Stream, event: compiling.CacheLookedUp) -> None:
    if not stream.compiles and not event.compile:
        return  # A worker looks things up for a compile of another process.
    item = E.CacheLookup(event.cache, event.outcome, event.key, event.reason)
    stream.compile_of(event).lists["caches"].append(item)


def _decompositions(stream: Stream, event: compiling.Decomposed) -> None:
    known = stream.compile_of(event).decompositions
    for name, count in event.counts.items():
        known[name] = known.get(name, 0) + count


def _stage(stream: Stream, event: compiling.StageEnd) -> None:
    building = stream.compile_of(event)
    building.stage_seconds[event.stage] += event.seconds
    if building.end is not None:
        building.later_seconds += event.seconds
    if event.graph:
        stream.graph_of(event).seconds[event.stage] += event.seconds


def _error(stream: Stream, event: compiling.CompileFailed) -> None:
    item = E.CompileError(
        stage=event.stage,
        detail=event.detail,
        graph=event.graph,
        type=event.type,
        message=event.message,
        causes=event.cause,
        source=event.source,
        raised_in=event.raised_in,
        traceback=event.traceback,
    )
    stream.compile_of(event).lists["errors"].append(item)


def _eager_fallback(stream: Stream, event: compiling.FellBackToEager) -> None:
    errors = stream.compile_of(event).lists.get("errors", [])
    if errors:
        errors[-1] = replace(errors[-1], swallowed=True)


# --- graphs ---------------------------------------------------------------------------------------


def _graph(stream: Stream, event: graphs.GraphLeft) -> None:
    stream.compile_of(event).lists["graphs"].append(
        E.Graph(event.stage, event.payload, event.graph)
    )


def _pass(stream: Stream, event: graphs.PassApplied) -> None:
    item = E.PassChange(
        stage=event.stage,
        name=event.name,
        before=event.before,
        after=event.after,
        seconds=event.seconds,
        graph=event.graph,
        inside=event.inside,
    )
    stream.compile_of(event).lists["passes"].append(item)


def _inductor_start(stream: Stream, event: graphs.InductorStart) -> None:
    stream.graph_of(event).fields["phase"] = event.phase


def _inductor_end(stream: Stream, event: graphs.InductorEnd) -> None:
    stream.graph_of(event).fields["finished"] = True


def _cached_graph(stream: Stream, event: graphs.GraphFromCache) -> None:
    stream.graph_of(event).fields.update(
        phase=event.phase, wrapper=event.payload, cached=True, finished=True
    )


def _scheduler(stream: Stream, event: graphs.NodesScheduled) -> None:
    when = "before" if event.when == "before" else "after"
    stream.graph_of(event).fields[f"scheduled_{when}"] = event.payload


def _listed(name: str, make: Callable[[OfGraph], Any]) -> Callable[[Stream, OfGraph], None]:
    """Adds what `make` makes of an event to a list of its graph."""

    def handle(stream: Stream, event: OfGraph) -> None:
        stream.graph_of(event).lists[name].append(make(event))

    return handle


# --- code -----------------------------------------------------------------------------------------


def _kernel_defined(stream: Stream, event: code.KernelDefined) -> None:
    if event.name not in NO_CALLS:
        stream.graph_of(event).lists["kernels"].append(kernel(event))


def _wrapper(stream: Stream, event: code.WrapperGenerated) -> None:
    stream.graph_of(event).fields["wrapper"] = event.payload


def _wrapper_loaded(stream: Stream, event: code.WrapperLoaded) -> None:
    stream.graph_of(event).fields["wrapper_path"] = event.path


def _buffers(stream: Stream, event: code.BuffersListed) -> None:
    stream.graph_of(event).fields["buffers"] = event.payload


def _library(stream: Stream, event: code.LibraryWanted) -> None:
    stream.compile_of(event).lists["libraries"].append(event.payload)


def _native(stream: Stream, event: code.NativeStart | code.NativeEnd) -> None:
    stream.natives.append(event)


# --- autotuning -----------------------------------------------------------------------------------


def _choice(stream: Stream, event: autotuning.ChoiceStart | autotuning.ChoiceEnd) -> None:
    stream.choices[event.choice] = event


def _launch_configs(stream: Stream, event: autotuning.LaunchConfigsTimed) -> None:
    stream.launch_configs.append(E.LaunchConfigs(event.kernel, event.milliseconds))


def _as_it_is(event: OfGraph) -> OfGraph:
    return event


# --- what the doctor checked ----------------------------------------------------------------------


def _check(stream: Stream, event: checking.CallChecked) -> None:
    stream.checks.append(Check(**vars(event)))


def _callable_check(stream: Stream, event: checking.CallableChecked) -> None:
    item = CallableCheck(event.function, event.call, event.verdict, event.text)
    stream.callable_checks.append(item)


def _noted(stream: Stream, event: checking.DifferenceNoted) -> None:
    stream.noted.append(NotedDifference(event.compile, event.aspect, event.where, event.text))


def _calls_unchecked(stream: Stream, event: checking.CallsUnchecked) -> None:
    stream.unchecked[event.compile] = None


Handler = Callable[[Stream, Any], None]

HANDLERS: dict[type[Event], Handler] = {
    process.ExceptionUncaught: lambda stream, event: stream.uncaught.append(
        uncaught(event, stream.now)
    ),
    **dict.fromkeys((process.ProcessEnd, process.RecordingStopped), _process_note),
    **dict.fromkeys((process.HookOff, process.HookError), _process_note),
    **dict.fromkeys((compiling.TargetNoted, compiling.SettingsUsed), _process_note),
    checking.CppLibraryTaken: _process_note,
    process.TorchImported: _torch,
    process.Launched: _launched,
    process.Exited: _exited,
    compiling.CompileStart: Stream.begin,
    compiling.CompileEnd: _compile_end,
    compiling.GraphBroke: _graph_break,
    compiling.GuardsBuilt: _guards,
    graphs.CudaGraphsSkipped: _cudagraphs_skipped,
    compiling.Recompiled: _recompile,
    compiling.RecompileLimitHit: _recompile_limit,
    compiling.CacheLookedUp: _cache,
    compiling.Decomposed: _decompositions,
    compiling.StageEnd: _stage,
    compiling.CompileFailed: _error,
    compiling.FellBackToEager: _eager_fallback,
    graphs.GraphLeft: _graph,
    graphs.PassApplied: _pass,
    graphs.InductorStart: _inductor_start,
    graphs.InductorEnd: _inductor_end,
    graphs.GraphFromCache: _cached_graph,
    **{event: _listed(name, _as_it_is) for event, (name, _) in LATER.items()},
    graphs.NodesScheduled: _scheduler,
    graphs.FusionRoundDone: _listed("rounds", fusion_round),
    code.KernelDefined: _kernel_defined,
    code.WrapperGenerated: _wrapper,
    code.WrapperLoaded: _wrapper_loaded,
    code.BuffersListed: _buffers,
    code.MemoryListed: _listed("memory", lambda event: event.payload),
    code.LibraryWanted: _library,
    code.NativeStart: _native,
    code.NativeEnd: _native,
    autotuning.AutotuneStart: _listed("autotunes", _as_it_is),
    autotuning.AutotuneTimed: _listed("autotunes", _as_it_is),
    autotuning.AutotuneChosen: _listed("autotunes", _as_it_is),
    autotuning.LaunchConfigsTimed: _launch_configs,
    autotuning.ChoiceStart: _choice,
    autotuning.ChoiceEnd: _choice,
    checking.CallChecked: _check,
    checking.CallableChecked: _callable_check,
    checking.DifferenceNoted: _noted,
    checking.CallsUnchecked: _calls_unchecked,
    checking.SizesTried: lambda stream, event: stream.sizes_tried.update({event.text: None}),
}

_CALLS = checking.GraphCall, checking.GraphReturned, checking.EagerReturned
_SHADOWS = checking.CallShadowed, checking.ShadowsEnded, checking.BiasFound
_STUCK = autotuning.BenchmarkStart, autotuning.BenchmarkEnd, autotuning.TorchLogged
_COSTS = graphs.PassesTimed, compiling.CacheKeyMade

# What the model does not hold, and the module that reads it.
READ_ELSEWHERE: dict[type[Event], str] = {
    process.ProcessStart: "model/position.py",
    **dict.fromkeys((compiling.StageStart, *_CALLS), "model/position.py"),
    **dict.fromkeys(_STUCK, "hangs/choices/stuck_choices.py"),
    compiling.TracingContinues: "hangs/watch/following.py",
    **dict.fromkeys(_COSTS, "profiling/compile_time/recorded_costs.py"),
    **dict.fromkeys(_SHADOWS, "doctor/outside/long_run.py"),
    # Only ever sent by a fork to the process that started it.
    checking.KernelLaunched: "doctor/search/failure_signature.py",
}
