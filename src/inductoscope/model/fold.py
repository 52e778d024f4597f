"""Folds the events of a recording into the model. Streams are independent until the very end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from inductoscope.model import entities as E
from inductoscope.model.building import HANDLERS, Building, BuildingGraph, Stream
from inductoscope.model.native import fold_natives
from inductoscope.recording.reader import Event, RecordingReader, open_recording
from inductoscope.recording.values import members, real, texts, whole


def load(path: Path) -> E.Recording:
    """Open the recording in `path` and fold it."""
    return fold(open_recording(path))


def fold(reader: RecordingReader) -> E.Recording:
    """The model of what `reader` reads."""
    streams: dict[str, Stream] = {}
    unknown: Counter[str] = Counter()
    for event in reader.events():
        stream = streams.setdefault(event.stream, Stream(event.stream))
        handler = HANDLERS.get(event.kind)
        if handler is None:
            unknown[event.kind] += 1
        else:
            handler(stream, event)
    endings = [stream.ending for stream in streams.values() if stream.ending]
    return E.Recording(
        path=str(reader.path),
        manifest=reader.manifest,
        processes=tuple(_freeze_process(stream) for stream in streams.values()),
        compiles=tuple(
            _freeze_compile(building, stream)
            for stream in streams.values()
            for building in stream.order
        ),
        natives=fold_natives(event for stream in streams.values() for event in stream.natives),
        ending=endings[-1] if endings else None,
        damage=tuple((item.where, item.what) for item in reader.damage),
        unknown_events=dict(unknown),
        payloads=reader,
    )


def _freeze_process(stream: Stream) -> E.Process:
    found, notes = stream.process, stream.notes
    return E.Process(
        stream=stream.name,
        pid=whole(found.get("pid")),
        parent=whole(found.get("parent")),
        argv=texts(found.get("argv")),
        python=str(found.get("python", "")),
        rank=str(found.get("rank") or ""),
        role=str(found.get("role") or "program"),
        torch=stream.torch,
        ended=bool(notes["process-end"]),
        stopped=next((event.text("reason") or "no reason" for event in notes["stopped"]), ""),
        dropped=sum(event.whole("dropped") for event in notes["process-end"]),
        unfinished=tuple(
            E.OpenStage(event.text("stage"), event.text("detail"), event.text("compile"))
            for event in stream.open_stages
        ),
        views_off=tuple(
            f"{event.text('records')} (missing: {', '.join(event.texts('missing'))})"
            for event in notes["hook-off"]
        ),
        hook_errors=tuple(
            f"{event.text('hook')}: {event.text('error')}" for event in notes["hook-error"]
        ),
    )


def _freeze_compile(building: Building, stream: Stream) -> E.Compile:
    start, end, lists = building.start, building.end, building.lists
    return E.Compile(
        id=str(start.get("compile", "?")),
        process=stream.name,
        function=str(start.get("function", "")),
        resumed=str(start.get("resumed") or ""),
        file=str(start.get("file", "")),
        line=whole(start.get("line")),
        outcome=str(end.get("outcome", "not finished")),
        reason=str(end.get("reason") or ""),
        seconds=real(end.get("seconds")),
        stage_seconds=dict(building.stage_seconds),
        graphs=tuple(lists.get("graphs", ())),
        passes=tuple(lists.get("passes", ())),
        decompositions=building.decompositions,
        guard_count=building.guard_count,
        guards=building.guards,
        breaks=tuple(lists.get("breaks", ())),
        recompile=building.recompile,
        caches=tuple(lists.get("caches", ())),
        inductor=tuple(_freeze_graph(graph, stream.choices) for graph in building.graphs.values()),
        libraries=tuple(lists.get("libraries", ())),
        errors=tuple(lists.get("errors", ())),
    )


def _freeze_graph(building: BuildingGraph, choices: dict[str, Event]) -> E.InductorGraph:
    lists = {name: tuple(items) for name, items in building.lists.items() if name != "autotunes"}
    fields = {"cached": False, "finished": False, **building.fields, **lists}
    fields["autotunes"] = _freeze_autotunes(building.lists.get("autotunes", []), choices)
    return E.InductorGraph(seconds=dict(building.seconds), **fields)


def _freeze_autotunes(events: list[Event], compiles: dict[str, Event]) -> tuple[E.Autotune, ...]:
    """A search is announced, then timed, then decided; several run one after the other."""
    searches: list[dict[str, Any]] = []
    for event in events:
        if event.kind == "autotune":
            searches.append({"event": event, "times": {}, "failed": (), "winner": ""})
            continue
        match = [s for s in searches if s["event"].text("operation") == event.text("operation")]
        if match and event.kind == "autotune-timed":
            match[-1]["times"] = members(event.fields.get("milliseconds"))
            match[-1]["failed"] = event.texts("failed")
            match[-1]["winner"] = event.text("winner")
        elif match and not match[-1]["winner"]:
            match[-1]["winner"] = event.text("choice")
    return tuple(_freeze_autotune({**search, "compiles": compiles}) for search in searches)


def _freeze_autotune(search: dict[str, Any]) -> E.Autotune:
    listed = search["event"].fields.get("choices")
    choices = [members(item) for item in listed] if isinstance(listed, list) else []
    return E.Autotune(
        operation=search["event"].text("operation"),
        choices=tuple(_freeze_choice(choice, search) for choice in choices if choice),
        winner=search["winner"],
    )


def _freeze_choice(choice: dict[str, Any], search: dict[str, Any]) -> E.Choice:
    name = str(choice.get("name", ""))
    time = search["times"].get(name)
    compiled: Event | None = search["compiles"].get(name)
    ended = compiled is not None and compiled.kind == "choice-end"
    return E.Choice(
        name=name,
        description=str(choice.get("description", "")),
        milliseconds=real(time) if isinstance(time, (int, float)) else None,
        failed=name in search["failed"],
        compile_seconds=compiled.real("seconds") if compiled and ended else None,
        compile_started=compiled is not None,
        error=compiled.text("error") if compiled else "",
    )
