"""The fold of a recording's events into the model. Streams are independent until the end.

Each class of event is about a process, a compile or a graph; the tables say which. Events that only
other modules read are in none of the tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from inductoscope.model.entities import (
    Autotune,
    Compile,
    CompileError,
    InductorGraph,
    NativeCompile,
    Process,
    Recompile,
    Recording,
    TimedChoice,
    UncaughtException,
    ending_of,
    joined,
)
from inductoscope.model.kernels import NO_CALLS
from inductoscope.model.process_position import ProcessPosition
from inductoscope.model.timeline import EVENTS as TIMED
from inductoscope.recording import events as E
from inductoscope.recording.events import Entry, Event, UnknownEvent, written_fields
from inductoscope.recording.reader import RecordingReader, open_recording

SomeEvent = TypeVar("SomeEvent", bound=Event)
Item = TypeVar("Item")

OF_GRAPH: frozenset[type[Event]] = frozenset(
    {
        *(E.InductorStart, E.InductorEnd, E.GraphFromCache, E.LoweredNode, E.NodesScheduled),
        *(E.FusionRound, E.FusionPair, E.Fusion, E.Kernel, E.Reuse, E.BuffersListed),
        *(E.MemoryListed, E.WrapperGenerated, E.WrapperLoaded),
        *(E.AutotuneStart, E.AutotuneTimed, E.AutotuneChosen),
    }
)
OF_COMPILE: frozenset[type[Event]] = frozenset(
    {
        *(E.CompileEnd, E.GraphBreak, E.GuardsBuilt, E.Recompiled, E.RecompileLimitHit),
        *(E.CacheLookup, E.Decomposed, E.StageEnd, E.CompileFailed, E.FellBackToEager),
        *(E.GraphState, E.PassChange, E.CudaGraphsSkipped, E.LibraryWanted, E.Settings),
    }
)
OF_PROCESS: frozenset[type[Event]] = frozenset(
    {
        *(E.CompileStart, E.ExceptionUncaught, E.ProcessEnd, E.RecordingStopped, E.HookOff),
        *(E.HookError, E.TargetNoted, E.CppLibraryTaken, E.TorchImported, E.Launched, E.Exited),
        *(E.NativeEnd, E.LaunchConfigs, E.ChoiceStart, E.ChoiceEnd),
        *(E.Check, E.CallableCheck, E.NotedDifference, E.CallsUnchecked),
        *(E.CallsShared, E.SizesTried),
    }
)


def load(path: Path) -> Recording:
    return fold(open_recording(path))


def fold(reader: RecordingReader) -> Recording:
    streams: dict[str, _ProcessFold] = {}
    unknown: Counter[str] = Counter()
    timed: list[Entry[Event]] = []
    for entry in reader.entries():
        stream = streams.get(entry.stream)
        if stream is None:
            stream = streams[entry.stream] = _ProcessFold(entry.stream)
        stream.take(entry)
        if type(entry.event) in TIMED:
            timed.append(entry)
        if isinstance(entry.event, UnknownEvent):
            unknown[entry.kind] += 1
    every = list(streams.values())
    exits = _all(every, E.Exited)
    return Recording(
        path=str(reader.path),
        manifest=reader.manifest,
        processes=tuple(map(_process, every)),
        compiles=tuple(_compile(found, stream) for stream in every for found in stream.order),
        natives=tuple(_natives(every)),
        ending=ending_of(exits[-1]) if exits else None,
        damage=tuple((item.where, item.what) for item in reader.damage),
        unknown_events=dict(unknown),
        payloads=reader,
        command_pid=next((event.pid for event in _all(every, E.Launched) if event.pid), 0),
        launch_configs=_all(every, E.LaunchConfigs),
        checks=_all(every, E.Check),
        callable_checks=_all(every, E.CallableCheck),
        noted=_all(every, E.NotedDifference),
        unchecked=_once(event.compile for event in _all(every, E.CallsUnchecked)),
        shared=_once(event.compile for event in _all(every, E.CallsShared)),
        sizes_tried=_once(event.text for event in _all(every, E.SizesTried)),
        copies_of_cpp_library=tuple((e.package, e.source) for e in _all(every, E.CppLibraryTaken)),
        target_notes=tuple((event.compile, event.note) for event in _all(every, E.TargetNoted)),
        timed=tuple(timed),
        latest={stream.name: stream.latest for stream in every},
    )


class _EventsByClass:
    """Events grouped by class, in the order in which they were written."""

    def __init__(self) -> None:
        self._found: dict[type[Event], list[Any]] = defaultdict(list)

    def add(self, event: Event) -> None:
        self._found[type(event)].append(event)

    def all(self, kind: type[SomeEvent]) -> tuple[SomeEvent, ...]:
        return tuple(self._found.get(kind, ()))

    def last(self, kind: type[SomeEvent]) -> SomeEvent | None:
        """Return the last event of a class, which overrides earlier ones; None if there is none."""
        found = self._found.get(kind)
        return found[-1] if found else None


@dataclass
class _GraphFold:
    key: str
    events: _EventsByClass = field(default_factory=_EventsByClass)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # The autotuning events in order, which distinguishes several searches.
    autotunes: list[Any] = field(default_factory=list)


@dataclass
class _CompileFold:
    start: E.CompileStart
    events: _EventsByClass = field(default_factory=_EventsByClass)
    # Seconds after the end, since the backward graph is compiled when it is first needed.
    later_seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    swallowed: set[int] = field(default_factory=set)
    graphs: dict[str, _GraphFold] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        self.events.add(event)
        if isinstance(event, E.StageEnd):
            self.stage_seconds[event.stage] += event.seconds
            if self.events.last(E.CompileEnd) is not None:
                self.later_seconds += event.seconds
        elif isinstance(event, E.FellBackToEager):
            self.swallowed.add(len(self.events.all(E.CompileFailed)) - 1)


@dataclass
class _ProcessFold:
    name: str
    position: ProcessPosition = field(default_factory=ProcessPosition)
    events: _EventsByClass = field(default_factory=_EventsByClass)
    compiles: dict[str, _CompileFold] = field(default_factory=dict)
    order: list[_CompileFold] = field(default_factory=list)
    uncaught: list[UncaughtException] = field(default_factory=list)
    # The latest state of each autotuning choice's compile.
    choices: dict[str, E.ChoiceStart | E.ChoiceEnd] = field(default_factory=dict)
    current: str = ""
    latest: float = 0.0

    def take(self, entry: Entry[Event]) -> None:
        event, kind = entry.event, type(entry.event)
        self.latest = max(self.latest, entry.time)
        self.position.take(entry)
        if kind in OF_GRAPH:
            graph = self._graph_of(event)
            graph.events.add(event)
            if isinstance(event, (E.AutotuneStart, E.AutotuneTimed, E.AutotuneChosen)):
                graph.autotunes.append(event)
        elif kind in OF_COMPILE:
            self._take_of_compile(event)
        elif kind in OF_PROCESS:
            self._take_of_process(event, entry.time)

    def _take_of_compile(self, event: Any) -> None:
        if isinstance(event, E.CacheLookup) and not self.compiles and not event.compile:
            return  # A worker's lookups are for a compile of another process.
        self._compile_of(event).take(event)
        if isinstance(event, E.StageEnd) and event.graph:
            self._graph_of(event).seconds[event.stage] += event.seconds

    def _take_of_process(self, event: Event, time: float) -> None:
        self.events.add(event)
        if isinstance(event, E.CompileStart):
            # A repeated id is a further attempt, which replaces nothing.
            self.current = event.compile or "?"
            self._begin(self.current, event)
        elif isinstance(event, E.ExceptionUncaught):
            self.uncaught.append(joined(UncaughtException, event, at=time))
        elif isinstance(event, (E.ChoiceStart, E.ChoiceEnd)):
            self.choices[event.choice] = event

    def _begin(self, key: str, start: E.CompileStart) -> None:
        found = self.compiles[key] = _CompileFold(start)
        self.order.append(found)

    def _compile_of(self, event: Any) -> _CompileFold:
        """Return the compile of an event; create it if its `compile_start` was not recorded."""
        graph = getattr(event, "graph", "")
        key = getattr(event, "compile", "") or graph.partition(" ")[0] or self.current or "?"
        if key not in self.compiles:
            self._begin(key, E.CompileStart(compile=key))
        return self.compiles[key]

    def _graph_of(self, event: Any) -> _GraphFold:
        key = event.graph or "?"
        return self._compile_of(event).graphs.setdefault(key, _GraphFold(key))


def _all(streams: Iterable[_ProcessFold], kind: type[SomeEvent]) -> tuple[SomeEvent, ...]:
    return tuple(event for stream in streams for event in stream.events.all(kind))


def _once(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(items))


# --- outcome --------------------------------------------------------------------------------------


def _process(stream: _ProcessFold) -> Process:
    events, position = stream.events, stream.position
    start, torch = position.process or E.ProcessStart(), events.last(E.TorchImported)
    stopped = events.all(E.RecordingStopped)
    return joined(
        Process,
        start,
        stream=stream.name,
        role=start.role or "program",
        torch=written_fields(torch) if torch else {},
        ended=bool(events.all(E.ProcessEnd)),
        stopped=(stopped[0].reason or "no reason") if stopped else "",
        dropped=sum(event.dropped for event in events.all(E.ProcessEnd)),
        unfinished=tuple(entry.event for entry in position.stages.all),
        views_off=tuple(
            f"{event.records} (missing: {', '.join(event.missing)})"
            for event in events.all(E.HookOff)
        ),
        hook_errors=tuple(f"{event.hook}: {event.error}" for event in events.all(E.HookError)),
        call=position.call.compile if position.call else "",
        is_judged=position.is_judged,
        uncaught=tuple(stream.uncaught),
    )


def _natives(streams: Iterable[_ProcessFold]) -> Iterator[NativeCompile]:
    """Yield all native compiles by time of completion, unfinished ones last."""
    running = []
    for stream in streams:
        for event in stream.events.all(E.NativeEnd):
            seconds = event.seconds or 0.0
            yield joined(NativeCompile, event, process=stream.name, seconds=seconds)
        running += [(stream.name, entry.event) for entry in stream.position.natives.values()]
    for name, begun in running:
        yield joined(NativeCompile, begun, process=name)


def _compile(found: _CompileFold, stream: _ProcessFold) -> Compile:
    events, end = found.events, found.events.last(E.CompileEnd)
    guards = events.last(E.GuardsBuilt)
    decompositions: Counter[str] = Counter()
    for event in events.all(E.Decomposed):
        decompositions.update(event.counts)
    return joined(
        Compile,
        found.start,
        compile=found.start.compile or "?",
        process=stream.name,
        outcome=(end.outcome if end else "") or _outcome_without_end(found),
        reason=end.reason if end else "",
        seconds=end.seconds + found.later_seconds if end else 0.0,
        stage_seconds=dict(found.stage_seconds),
        graphs=events.all(E.GraphState),
        passes=events.all(E.PassChange),
        decompositions=dict(decompositions),
        settings=events.last(E.Settings),
        guard_count=guards.count if guards else 0,
        guards=guards.payload if guards else "",
        guard_microseconds=guards.microseconds if guards else None,
        costly_guards=guards.costly if guards else (),
        cudagraph_skips=tuple(event.reason for event in events.all(E.CudaGraphsSkipped)),
        breaks=events.all(E.GraphBreak),
        recompile=_recompile(events),
        caches=events.all(E.CacheLookup),
        inductor=tuple(_graph(graph, stream.choices) for graph in found.graphs.values()),
        libraries=tuple(event.payload for event in events.all(E.LibraryWanted)),
        errors=tuple(
            joined(CompileError, event, swallowed=number in found.swallowed)
            for number, event in enumerate(events.all(E.CompileFailed))
        ),
    )


def _outcome_without_end(found: _CompileFold) -> str:
    """Return the outcome of a compile without end: graphs given to Inductor directly have none."""
    graphs = found.graphs.values()
    is_done = bool(graphs) and all(_is_finished(graph) for graph in graphs)
    return "compiled" if is_done and not found.start.function else "not finished"


def _recompile(events: _EventsByClass) -> Recompile | None:
    event, limit = events.last(E.Recompiled), events.last(E.RecompileLimitHit)
    if event is None and limit is None:
        return None
    return joined(Recompile, event or E.Recompiled(reasons=()), limit=limit.limit if limit else "")


def _is_finished(graph: _GraphFold) -> bool:
    events = graph.events
    return bool(events.last(E.InductorEnd) or events.last(E.GraphFromCache))


def _graph(graph: _GraphFold, choices: _Choices) -> InductorGraph:
    events = graph.events
    cached, started = events.last(E.GraphFromCache), events.last(E.InductorStart)
    wrapper, loaded = events.last(E.WrapperGenerated) or cached, events.last(E.WrapperLoaded)
    schedules = {event.when == "before": event.payload for event in events.all(E.NodesScheduled)}
    buffers, named = events.last(E.BuffersListed), cached or started
    return InductorGraph(
        key=graph.key,
        phase=named.phase if named else graph.key.partition(" ")[2],
        cached=cached is not None,
        finished=_is_finished(graph),
        seconds=dict(graph.seconds),
        lowered=events.all(E.LoweredNode),
        scheduled_before=schedules.get(True, ""),
        scheduled_after=schedules.get(False, ""),
        rounds=events.all(E.FusionRound),
        pairs=events.all(E.FusionPair),
        fusions=events.all(E.Fusion),
        kernels=tuple(k for k in events.all(E.Kernel) if k.name not in NO_CALLS),
        wrapper=wrapper.payload if wrapper else "",
        wrapper_path=loaded.path if loaded else "",
        buffers=buffers.payload if buffers else "",
        memory=tuple(event.payload for event in events.all(E.MemoryListed)),
        reuses=events.all(E.Reuse),
        autotunes=tuple(_autotunes(graph.autotunes, choices)),
    )


# --- autotuning -----------------------------------------------------------------------------------

_Choices = Mapping[str, E.ChoiceStart | E.ChoiceEnd]


def _autotunes(events: Iterable[Any], choices: _Choices) -> Iterator[Autotune]:
    """Yield the autotuning searches, each joined from its start, timing and decision events.

    torch takes an only choice without a search.
    """
    searches: list[tuple[E.AutotuneStart, list[E.AutotuneTimed], list[str]]] = []
    for event in events:
        if isinstance(event, E.AutotuneStart):
            searches.append((event, [], []))
            continue
        # Several searches of one operation run one after the other.
        own = [search for search in searches if search[0].operation == event.operation][-1:]
        for _, timed, taken in own:
            if isinstance(event, E.AutotuneTimed):
                timed.append(event)
                taken.clear()  # The times that are kept are the last ones.
            taken.append(event.winner if isinstance(event, E.AutotuneTimed) else event.choice)
    for start, timed, taken in searches:
        if len(start.choices) > 1 or timed:
            yield Autotune(
                operation=start.operation,
                choices=tuple(_choice(each, timed[-1:], choices) for each in start.choices if each),
                taken=next(filter(None, taken), ""),
                inputs=start.inputs,
            )


def _choice(
    choice: Mapping[str, Any], timed: list[E.AutotuneTimed], choices: _Choices
) -> TimedChoice:
    name = str(choice.get("name", ""))
    compiled = choices.get(name)
    end = compiled if isinstance(compiled, E.ChoiceEnd) else None
    return TimedChoice(
        name=name,
        description=str(choice.get("description", "")),
        milliseconds=timed[0].milliseconds.get(name) if timed else None,
        failed=bool(timed) and name in timed[0].failed,
        compile_seconds=end.seconds if end else None,
        compile_started=compiled is not None,
        error=end.error if end else "",
    )
