"""Folds the events of a recording into the model. Streams are independent until the very end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from inductoscope.model import entities as E
from inductoscope.model.entities import (
    Autotune,
    CallableCheck,
    Check,
    NotedDifference,
    Settings,
    TimedChoice,
    UncaughtException,
    fused,
    fusion_pair,
    fusion_round,
    kernel,
    lowered,
    reuse,
    uncaught,
)
from inductoscope.model.kernels import NO_CALLS, fold_natives
from inductoscope.model.process_position import ProcessPosition
from inductoscope.model.timeline import KINDS as TIMED
from inductoscope.recording import events
from inductoscope.recording import events as code
from inductoscope.recording import events as graphs
from inductoscope.recording.decoding import (
    Entry,
    UndecodedEvents,
    UnknownEvent,
    UnreadEvent,
    decoded_events,
)
from inductoscope.recording.events import (
    AutotuneChosen,
    AutotuneStart,
    AutotuneTimed,
    ChoiceEnd,
    ChoiceStart,
    CppLibraryTaken,
    Event,
    HookError,
    HookOff,
    ProcessEnd,
    ProcessStart,
    RecordingStopped,
    SettingsUsed,
    TargetNoted,
    written_fields,
)
from inductoscope.recording.reader import RecordingReader, open_recording

Item = TypeVar("Item")


def load(path: Path) -> E.Recording:
    """Open the recording in `path` and fold it."""
    return fold(open_recording(path))


def fold(reader: RecordingReader) -> E.Recording:
    """The model of what `reader` reads."""
    streams: dict[str, Stream] = {}
    unknown: Counter[str] = Counter()
    timed: list[Entry[Event]] = []
    for entry in reader.entries(undecoded=LISTS):
        stream = streams.get(entry.stream)
        if stream is None:
            stream = streams[entry.stream] = Stream(entry.stream)
        stream.take(entry)
        if entry.event.kind in TIMED:
            timed.append(entry)
        if isinstance(entry.event, UnknownEvent):
            unknown[entry.kind] += 1
    every = list(streams.values())
    timed += [Entry(stream.name, -1, stream.latest, UnreadEvent()) for stream in every]
    endings = [stream.ending for stream in every if stream.ending]
    return E.Recording(
        path=str(reader.path),
        manifest=reader.manifest,
        processes=tuple(_freeze_process(stream) for stream in every),
        compiles=tuple(
            _freeze_compile(building, stream) for stream in every for building in stream.order
        ),
        natives=fold_natives((stream.name, event) for stream in every for event in stream.natives),
        ending=endings[-1] if endings else None,
        damage=tuple((item.where, item.what) for item in reader.damage),
        unknown_events=dict(unknown),
        payloads=reader,
        command_pid=next((stream.command_pid for stream in every if stream.command_pid), 0),
        launch_configs=_joined(stream.launch_configs for stream in every),
        checks=_joined(stream.checks for stream in every),
        callable_checks=_joined(stream.callable_checks for stream in every),
        noted=_joined(stream.noted for stream in every),
        unchecked=_joined(stream.unchecked for stream in every),
        sizes_tried=_joined(stream.sizes_tried for stream in every),
        copies_of_cpp_library=_joined(_copies_of_cpp_library(stream) for stream in every),
        target_notes=_joined(_target_notes(stream) for stream in every),
        timed=tuple(timed),
    )


def _joined(lists: Iterable[Iterable[Item]]) -> tuple[Item, ...]:
    return tuple(item for items in lists for item in items)


def _copies_of_cpp_library(stream: Stream) -> Iterable[tuple[str, str]]:
    return [(event.package, event.source) for event in stream.notes[CppLibraryTaken]]


def _target_notes(stream: Stream) -> Iterable[tuple[str, str]]:
    return [(event.compile, event.note) for event in stream.notes[TargetNoted]]


def _freeze_process(stream: Stream) -> E.Process:
    notes, position = stream.notes, stream.position
    start = position.process or ProcessStart()
    return E.Process(
        stream=stream.name,
        pid=start.pid,
        parent=start.parent,
        argv=start.argv,
        python=start.python,
        rank=start.rank,
        role=start.role or "program",
        torch=written_fields(stream.torch) if stream.torch else {},
        ended=bool(notes[ProcessEnd]),
        stopped=next((event.reason or "no reason" for event in notes[RecordingStopped]), ""),
        dropped=sum(event.dropped for event in notes[ProcessEnd]),
        unfinished=tuple(
            E.OpenStage(entry.event.stage, entry.event.detail, entry.event.compile)
            for entry in position.stages.all
        ),
        views_off=tuple(
            f"{event.records} (missing: {', '.join(event.missing)})" for event in notes[HookOff]
        ),
        hook_errors=tuple(f"{event.hook}: {event.error}" for event in notes[HookError]),
        call=position.call.compile if position.call else "",
        uncaught=tuple(stream.uncaught),
    )


def _freeze_compile(building: Building, stream: Stream) -> E.Compile:
    start, end, lists = building.start, building.end, building.lists
    guards = building.guards
    return E.Compile(
        id=start.compile or "?",
        process=stream.name,
        function=start.function,
        resumed=start.resumed,
        file=start.file,
        line=start.line,
        outcome=(end.outcome if end else "") or _outcome_without_end(building),
        reason=end.reason if end else "",
        seconds=end.seconds + building.later_seconds if end else 0.0,
        stage_seconds=dict(building.stage_seconds),
        graphs=tuple(lists.get("graphs", ())),
        passes=tuple(lists.get("passes", ())),
        decompositions=building.decompositions,
        settings=_settings(stream, start.compile),
        guard_count=guards.count if guards else 0,
        guards=guards.payload if guards else "",
        guard_microseconds=guards.microseconds if guards else None,
        costly_guards=guards.costly if guards else (),
        cudagraph_skips=tuple(lists.get("cudagraph_skips", ())),
        breaks=tuple(lists.get("breaks", ())),
        recompile=building.recompile,
        caches=tuple(lists.get("caches", ())),
        inductor=tuple(_freeze_graph(graph, stream.choices) for graph in building.graphs.values()),
        libraries=tuple(lists.get("libraries", ())),
        errors=tuple(lists.get("errors", ())),
        flow=start.flow,
    )


def _outcome_without_end(building: Building) -> str:
    """Graphs handed to Inductor directly have no compile around them that could begin and end."""
    graphs = building.graphs.values()
    is_done = bool(graphs) and all(graph.fields.get("finished") for graph in graphs)
    return "compiled" if is_done and not building.start.function else "not finished"


def _settings(stream: Stream, compile_id: str) -> Settings | None:
    for event in reversed(stream.notes[SettingsUsed]):
        if event.compile == compile_id:
            return Settings(event.config, event.arguments, event.marked, event.defaults)
    return None


# What is known of the compile of each choice, by its name.
Compiles = Mapping[str, ChoiceStart | ChoiceEnd]


def _freeze_graph(building: BuildingGraph, compiles: Compiles) -> E.InductorGraph:
    key, later = building.fields["key"], LISTS.values()
    lists: dict[str, Sequence[Any]] = {
        name: DecodedLater(name, key, items) if name in later else tuple(items)
        for name, items in building.lists.items()
        if name != "autotunes"
    }
    fields = {"cached": False, "finished": False, **building.fields, **lists}
    fields["autotunes"] = _freeze_autotunes(building.lists.get("autotunes", []), compiles)
    return E.InductorGraph(seconds=dict(building.seconds), **fields)


@dataclass
class _Search:
    """A search for the fastest choice: announced, then timed, then decided."""

    start: AutotuneStart
    timed: AutotuneTimed | None = None
    winner: str = ""


def _freeze_autotunes(events: list[Any], compiles: Compiles) -> tuple[Autotune, ...]:
    searches: list[_Search] = []
    for event in events:
        if isinstance(event, AutotuneStart):
            searches.append(_Search(event))
            continue
        # Several run one after the other.
        match = [s for s in searches if s.start.operation == event.operation]
        if match and isinstance(event, AutotuneTimed):
            match[-1].timed, match[-1].winner = event, event.winner
        elif match and isinstance(event, AutotuneChosen) and not match[-1].winner:
            match[-1].winner = event.choice
    return tuple(_freeze_autotune(search, compiles) for search in searches)


def _freeze_autotune(search: _Search, compiles: Compiles) -> Autotune:
    return Autotune(
        operation=search.start.operation,
        choices=tuple(
            _freeze_choice(choice, search, compiles) for choice in search.start.choices if choice
        ),
        winner=search.winner,
        inputs=search.start.inputs,
    )


def _freeze_choice(choice: Mapping[str, Any], search: _Search, compiles: Compiles) -> TimedChoice:
    name = str(choice.get("name", ""))
    compiled = compiles.get(name)
    end = compiled if isinstance(compiled, ChoiceEnd) else None
    return TimedChoice(
        name=name,
        description=str(choice.get("description", "")),
        milliseconds=search.timed.milliseconds.get(name) if search.timed else None,
        failed=search.timed is not None and name in search.timed.failed,
        compile_seconds=end.seconds if end else None,
        compile_started=compiled is not None,
        error=end.error if end else "",
    )


# --- Parts of the model that are decoded when someone asks for them -------------------------------
#
# Lowered nodes and pairs of nodes are most of a recording. A summary only counts them, and the page
# decodes those of a graph where it makes the rest of that graph: on one of several cores.

LaterItem = TypeVar("LaterItem", covariant=True)

# The list of its graph that each is added to, and what it becomes there.
LATER: dict[type[Event], tuple[str, Callable[[Any], Any]]] = {
    graphs.NodeLowered: ("lowered", lowered),
    graphs.PairConsidered: ("pairs", fusion_pair),
    graphs.PairFused: ("fusions", fused),
    code.BufferReused: ("reuses", reuse),
}
LISTS = {event.kind: name for event, (name, _) in LATER.items()}
_BY_LIST = {name: (event.kind, make) for event, (name, make) in LATER.items()}


class DecodedLater(Sequence[LaterItem]):
    """Like the tuple of what a list of a graph becomes, whose items are events or their lines.

    A line that turns out not to be whole counts until then, as a payload does that cannot be read.
    """

    def __init__(self, name: str, graph: str, items: Iterable[Event | bytes]) -> None:
        self._graph = graph
        self._kind, self._make = _BY_LIST[name]
        # What was recorded, and then what became of it: only ever read and set as one, since
        # threads share it.
        self._state: tuple[tuple[Event | bytes, ...], tuple[LaterItem, ...] | None] = (
            tuple(items),
            None,
        )

    @property
    def is_decoded(self) -> bool:
        """Whether someone has looked at it."""
        return self._state[1] is not None

    @property
    def _items(self) -> tuple[LaterItem, ...]:
        recorded, items = self._state
        if items is None:
            lines = [each for each in recorded if isinstance(each, bytes)]
            decoded = decoded_events(self._kind, self._graph, lines)
            events = (next(decoded) if isinstance(each, bytes) else each for each in recorded)
            items = tuple(self._make(event) for event in events if event is not None)
            self._state = (), items
        return items

    def __len__(self) -> int:
        recorded, items = self._state
        return len(recorded if items is None else items)

    def __iter__(self) -> Iterator[LaterItem]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[LaterItem]:
        return reversed(self._items)

    @overload
    def __getitem__(self, index: int) -> LaterItem: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LaterItem, ...]: ...
    def __getitem__(self, index: int | slice) -> LaterItem | tuple[LaterItem, ...]:
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, DecodedLater) else other)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def may_mention(self, words: Iterable[str]) -> bool:
        """Whether one of these texts can be in it: seen from the lines, while they are kept."""
        recorded, items = self._state
        if items is not None:
            return True
        sought = [word.encode() for word in words]
        return any(
            not isinstance(each, bytes) or any(word in each for word in sought) for each in recorded
        )


def may_mention(items: Sequence[Any], words: Iterable[str]) -> bool:
    """Whether one of these ASCII texts can be in it; what is decoded already is not searched."""
    return items.may_mention(words) if isinstance(items, DecodedLater) else bool(items)


# --- One stream of events being folded: what is known so far, and what each kind of event adds ----
#
# One function per class of event, listed in `HANDLERS`. A class that only others read is listed in
# `READ_ELSEWHERE`; a test finds one that is in neither.

OfGraph = TypeVar("OfGraph", bound=Event)


@dataclass
class Building:
    """A compile under construction: plain values, and lists that become tuples."""

    start: events.CompileStart
    end: events.CompileEnd | None = None
    # Spent after the end: the backward graph is compiled when it is first needed.
    later_seconds: float = 0.0
    guards: events.GuardsBuilt | None = None
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
    torch: events.TorchImported | None = None
    notes: dict[type[Event], list[Any]] = field(default_factory=lambda: defaultdict(list))
    compiles: dict[str, Building] = field(default_factory=dict)
    order: list[Building] = field(default_factory=list)
    natives: list[events.NativeStart | events.NativeEnd] = field(default_factory=list)
    launch_configs: list[E.LaunchConfigs] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    callable_checks: list[CallableCheck] = field(default_factory=list)
    noted: list[NotedDifference] = field(default_factory=list)
    # Compiles of which only the first calls were checked.
    unchecked: dict[str, None] = field(default_factory=dict)
    sizes_tried: dict[str, None] = field(default_factory=dict)
    # The last that is known of the compile of each autotuning choice.
    choices: dict[str, events.ChoiceStart | events.ChoiceEnd] = field(default_factory=dict)
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
            self._begin(key, events.CompileStart(compile=key))
        return self.compiles[key]

    def _begin(self, key: str, start: events.CompileStart) -> None:
        building = self.compiles[key] = Building(start=start)
        self.order.append(building)

    def begin(self, event: events.CompileStart) -> None:
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


def _torch(stream: Stream, event: events.TorchImported) -> None:
    stream.torch = event


def _launched(stream: Stream, event: events.Launched) -> None:
    stream.command_pid = event.pid


def _exited(stream: Stream, event: events.Exited) -> None:
    stream.ending = E.Ending(event.exit_code, event.signal, event.seconds, event.by_tool)


# --- compiles -------------------------------------------------------------------------------------


def _compile_end(stream: Stream, event: events.CompileEnd) -> None:
    stream.compile_of(event).end = event


def _graph_break(stream: Stream, event: events.GraphBroke) -> None:
    found = E.GraphBreak(event.reason, event.source, event.stack, event.code)
    stream.compile_of(event).lists["breaks"].append(found)


def _guards(stream: Stream, event: events.GuardsBuilt) -> None:
    stream.compile_of(event).guards = event


def _cudagraphs_skipped(stream: Stream, event: events.CudaGraphsSkipped) -> None:
    stream.compile_of(event).lists["cudagraph_skips"].append(event.reason)


def _recompile(stream: Stream, event: events.Recompiled) -> None:
    stream.compile_of(event).recompile = E.Recompile(event.reasons, callers=event.callers)


def _recompile_limit(stream: Stream, event: events.RecompileLimitHit) -> None:
    building = stream.compile_of(event)
    building.recompile = replace(building.recompile or E.Recompile(()), limit=event.limit)


def _cache(stream: Stream, event: events.CacheLookedUp) -> None:
    if not stream.compiles and not event.compile:
        return  # A worker looks things up for a compile of another process.
    item = E.CacheLookup(event.cache, event.outcome, event.key, event.reason)
    stream.compile_of(event).lists["caches"].append(item)


def _decompositions(stream: Stream, event: events.Decomposed) -> None:
    known = stream.compile_of(event).decompositions
    for name, count in event.counts.items():
        known[name] = known.get(name, 0) + count


def _stage(stream: Stream, event: events.StageEnd) -> None:
    building = stream.compile_of(event)
    building.stage_seconds[event.stage] += event.seconds
    if building.end is not None:
        building.later_seconds += event.seconds
    if event.graph:
        stream.graph_of(event).seconds[event.stage] += event.seconds


def _error(stream: Stream, event: events.CompileFailed) -> None:
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


def _eager_fallback(stream: Stream, event: events.FellBackToEager) -> None:
    errors = stream.compile_of(event).lists.get("errors", [])
    if errors:
        errors[-1] = replace(errors[-1], swallowed=True)


# --- graphs ---------------------------------------------------------------------------------------


def _graph(stream: Stream, event: events.GraphLeft) -> None:
    stream.compile_of(event).lists["graphs"].append(
        E.Graph(event.stage, event.payload, event.graph)
    )


def _pass(stream: Stream, event: events.PassApplied) -> None:
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


def _inductor_start(stream: Stream, event: events.InductorStart) -> None:
    stream.graph_of(event).fields["phase"] = event.phase


def _inductor_end(stream: Stream, event: events.InductorEnd) -> None:
    stream.graph_of(event).fields["finished"] = True


def _cached_graph(stream: Stream, event: events.GraphFromCache) -> None:
    stream.graph_of(event).fields.update(
        phase=event.phase, wrapper=event.payload, cached=True, finished=True
    )


def _scheduler(stream: Stream, event: events.NodesScheduled) -> None:
    when = "before" if event.when == "before" else "after"
    stream.graph_of(event).fields[f"scheduled_{when}"] = event.payload


def _listed(name: str, make: Callable[[OfGraph], Any]) -> Callable[[Stream, OfGraph], None]:
    """Adds what `make` makes of an event to a list of its graph."""

    def handle(stream: Stream, event: OfGraph) -> None:
        stream.graph_of(event).lists[name].append(make(event))

    return handle


# --- code -----------------------------------------------------------------------------------------


def _kernel_defined(stream: Stream, event: events.KernelDefined) -> None:
    if event.name not in NO_CALLS:
        stream.graph_of(event).lists["kernels"].append(kernel(event))


def _wrapper(stream: Stream, event: events.WrapperGenerated) -> None:
    stream.graph_of(event).fields["wrapper"] = event.payload


def _wrapper_loaded(stream: Stream, event: events.WrapperLoaded) -> None:
    stream.graph_of(event).fields["wrapper_path"] = event.path


def _buffers(stream: Stream, event: events.BuffersListed) -> None:
    stream.graph_of(event).fields["buffers"] = event.payload


def _library(stream: Stream, event: events.LibraryWanted) -> None:
    stream.compile_of(event).lists["libraries"].append(event.payload)


def _native(stream: Stream, event: events.NativeStart | events.NativeEnd) -> None:
    stream.natives.append(event)


# --- autotuning -----------------------------------------------------------------------------------


def _choice(stream: Stream, event: events.ChoiceStart | events.ChoiceEnd) -> None:
    stream.choices[event.choice] = event


def _launch_configs(stream: Stream, event: events.LaunchConfigsTimed) -> None:
    stream.launch_configs.append(E.LaunchConfigs(event.kernel, event.milliseconds))


def _as_it_is(event: OfGraph) -> OfGraph:
    return event


# --- what the doctor checked ----------------------------------------------------------------------


def _check(stream: Stream, event: events.CallChecked) -> None:
    stream.checks.append(Check(**vars(event)))


def _callable_check(stream: Stream, event: events.CallableChecked) -> None:
    item = CallableCheck(event.function, event.call, event.verdict, event.text)
    stream.callable_checks.append(item)


def _noted(stream: Stream, event: events.DifferenceNoted) -> None:
    stream.noted.append(NotedDifference(event.compile, event.aspect, event.where, event.text))


def _calls_unchecked(stream: Stream, event: events.CallsUnchecked) -> None:
    stream.unchecked[event.compile] = None


Handler = Callable[[Stream, Any], None]

HANDLERS: dict[type[Event], Handler] = {
    events.ExceptionUncaught: lambda stream, event: stream.uncaught.append(
        uncaught(event, stream.now)
    ),
    **dict.fromkeys((events.ProcessEnd, events.RecordingStopped), _process_note),
    **dict.fromkeys((events.HookOff, events.HookError), _process_note),
    **dict.fromkeys((events.TargetNoted, events.SettingsUsed), _process_note),
    events.CppLibraryTaken: _process_note,
    events.TorchImported: _torch,
    events.Launched: _launched,
    events.Exited: _exited,
    events.CompileStart: Stream.begin,
    events.CompileEnd: _compile_end,
    events.GraphBroke: _graph_break,
    events.GuardsBuilt: _guards,
    events.CudaGraphsSkipped: _cudagraphs_skipped,
    events.Recompiled: _recompile,
    events.RecompileLimitHit: _recompile_limit,
    events.CacheLookedUp: _cache,
    events.Decomposed: _decompositions,
    events.StageEnd: _stage,
    events.CompileFailed: _error,
    events.FellBackToEager: _eager_fallback,
    events.GraphLeft: _graph,
    events.PassApplied: _pass,
    events.InductorStart: _inductor_start,
    events.InductorEnd: _inductor_end,
    events.GraphFromCache: _cached_graph,
    **{event: _listed(name, _as_it_is) for event, (name, _) in LATER.items()},
    events.NodesScheduled: _scheduler,
    events.FusionRoundDone: _listed("rounds", fusion_round),
    events.KernelDefined: _kernel_defined,
    events.WrapperGenerated: _wrapper,
    events.WrapperLoaded: _wrapper_loaded,
    events.BuffersListed: _buffers,
    events.MemoryListed: _listed("memory", lambda event: event.payload),
    events.LibraryWanted: _library,
    events.NativeStart: _native,
    events.NativeEnd: _native,
    events.AutotuneStart: _listed("autotunes", _as_it_is),
    events.AutotuneTimed: _listed("autotunes", _as_it_is),
    events.AutotuneChosen: _listed("autotunes", _as_it_is),
    events.LaunchConfigsTimed: _launch_configs,
    events.ChoiceStart: _choice,
    events.ChoiceEnd: _choice,
    events.CallChecked: _check,
    events.CallableChecked: _callable_check,
    events.DifferenceNoted: _noted,
    events.CallsUnchecked: _calls_unchecked,
    events.SizesTried: lambda stream, event: stream.sizes_tried.update({event.text: None}),
}

_CALLS = events.GraphCall, events.GraphReturned, events.EagerReturned
_SHADOWS = events.CallShadowed, events.ShadowsEnded, events.BiasFound
_STUCK = events.BenchmarkStart, events.BenchmarkEnd, events.TorchLogged
_COSTS = events.PassesTimed, events.CacheKeyMade

# What the model does not hold, and the module that reads it.
READ_ELSEWHERE: dict[type[Event], str] = {
    events.ProcessStart: "model/process_position.py",
    **dict.fromkeys((events.StageStart, *_CALLS), "model/process_position.py"),
    **dict.fromkeys(_STUCK, "hangs/choices/stuck_choices.py"),
    events.TracingContinues: "hangs/watch/stall.py",
    **dict.fromkeys(_COSTS, "profiling/compile_times.py"),
    **dict.fromkeys(_SHADOWS, "doctor/sentinel_run.py"),
    **dict.fromkeys((events.ClaimMade, events.Said), "doctor/program_run.py"),
    events.GrowthMeasured: "doctor/runs.py",
    events.CandidateJudged: "inside/search/oracle.py",
    # Only ever sent by a fork to the process that started it.
    events.KernelLaunched: "inside/search/failure_signature.py",
}
