"""Folds the events of a recording into the model. Streams are independent until the very end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from inductoscope.model import entities as E
from inductoscope.model.building import Building, BuildingGraph, Stream
from inductoscope.model.later import LISTS, DecodedLater
from inductoscope.model.native import fold_natives
from inductoscope.model.settings import Settings
from inductoscope.model.timeline import KINDS as TIMED
from inductoscope.model.tuning import Autotune, TimedChoice
from inductoscope.recording.events.autotuning import (
    AutotuneChosen,
    AutotuneStart,
    AutotuneTimed,
    ChoiceEnd,
    ChoiceStart,
)
from inductoscope.recording.events.base import Event, written_fields
from inductoscope.recording.events.checking import CppLibraryTaken
from inductoscope.recording.events.compiling import SettingsUsed, TargetNoted
from inductoscope.recording.events.process import (
    HookError,
    HookOff,
    ProcessEnd,
    ProcessStart,
    RecordingStopped,
)
from inductoscope.recording.events.reading import Entry, UnknownEvent, UnreadEvent
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
