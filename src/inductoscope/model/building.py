"""One stream of events being folded: what is known so far, and what each kind of event adds.

One function per kind, listed in `HANDLERS`. A kind that is not there was written by a newer
version: it is counted, not refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from inductoscope.model import entities as E
from inductoscope.model.fusions import fused, fusion_pair, fusion_round
from inductoscope.recording.reader import Event
from inductoscope.recording.values import members, whole


@dataclass
class Building:
    """A compile under construction: plain values, and lists that become tuples.

    `start` and `end` hold what was read, as it was read; what is known for sure has its own field.
    """

    start: dict[str, Any]
    end: dict[str, Any] = field(default_factory=dict)
    guard_count: int = 0
    guards: str = ""
    recompile: E.Recompile | None = None
    decompositions: dict[str, int] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)
    stage_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    graphs: dict[str, BuildingGraph] = field(default_factory=dict)

    def add(self, name: str, item: Any) -> None:
        self.lists.setdefault(name, []).append(item)


@dataclass
class BuildingGraph:
    """An Inductor graph under construction."""

    fields: dict[str, Any]
    lists: dict[str, list[Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, name: str, item: Any) -> None:
        self.lists.setdefault(name, []).append(item)


@dataclass
class Stream:
    """One process's events, folded so far."""

    name: str
    process: dict[str, Any] = field(default_factory=dict)
    torch: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    compiles: dict[str, Building] = field(default_factory=dict)
    order: list[Building] = field(default_factory=list)
    natives: list[Event] = field(default_factory=list)
    # The last that is known of the compile of each autotuning choice.
    choices: dict[str, Event] = field(default_factory=dict)
    ending: E.Ending | None = None
    current: str = ""
    open_stages: list[Event] = field(default_factory=list)

    def compile_of(self, event: Event) -> Building:
        """The compile that an event belongs to; made up if its beginning was not recorded."""
        key = event.text("compile") or event.text("graph").partition(" ")[0] or self.current
        key = key or "?"
        if key not in self.compiles:
            self._begin(key, {"compile": key})
        return self.compiles[key]

    def _begin(self, key: str, start: dict[str, Any]) -> None:
        building = Building(start=start)
        self.compiles[key] = building
        self.order.append(building)

    def begin(self, event: Event) -> None:
        """A compile starts. The same id again is a further attempt, which replaces nothing."""
        key = self.current = event.text("compile", "?")
        self._begin(key, event.fields)

    def graph_of(self, event: Event) -> BuildingGraph:
        """The Inductor graph that an event belongs to."""
        key = event.text("graph", "?")
        graphs = self.compile_of(event).graphs
        if key not in graphs:
            graphs[key] = BuildingGraph({"key": key, "phase": key.partition(" ")[2]})
        return graphs[key]


# --- handlers -------------------------------------------------------------------------------------


def _process(stream: Stream, event: Event) -> None:
    stream.process.update(event.fields)


def _torch(stream: Stream, event: Event) -> None:
    stream.torch = event.fields


def _process_note(stream: Stream, event: Event) -> None:
    stream.notes[event.kind].append(event)


def _exited(stream: Stream, event: Event) -> None:
    number = event.fields.get("signal")
    stream.ending = E.Ending(
        exit_code=event.whole("exit_code"),
        signal=number if isinstance(number, int) else None,
        seconds=event.real("seconds"),
    )


def _compile_end(stream: Stream, event: Event) -> None:
    stream.compile_of(event).end = event.fields


def _graph(stream: Stream, event: Event) -> None:
    graph = E.Graph(event.text("stage"), event.text("payload"), event.text("graph"))
    stream.compile_of(event).add("graphs", graph)


def _graph_break(stream: Stream, event: Event) -> None:
    item = E.GraphBreak(event.text("reason"), event.text("source"))
    stream.compile_of(event).add("breaks", item)


def _guards(stream: Stream, event: Event) -> None:
    building = stream.compile_of(event)
    building.guard_count = event.whole("count")
    building.guards = event.text("payload")


def _recompile(stream: Stream, event: Event) -> None:
    stream.compile_of(event).recompile = E.Recompile(event.texts("reasons"))


def _recompile_limit(stream: Stream, event: Event) -> None:
    building = stream.compile_of(event)
    known = building.recompile or E.Recompile(())
    building.recompile = replace(known, limit=event.text("limit"))


def _cache(stream: Stream, event: Event) -> None:
    if not stream.compiles and not event.text("compile"):
        return  # A worker looks things up for a compile of another process.
    item = E.CacheLookup(
        event.text("cache"), event.text("outcome"), event.text("key"), event.text("reason")
    )
    stream.compile_of(event).add("caches", item)


def _decompositions(stream: Stream, event: Event) -> None:
    known = stream.compile_of(event).decompositions
    for name, count in members(event.fields.get("counts")).items():
        known[name] = known.get(name, 0) + whole(count)


def _pass(stream: Stream, event: Event) -> None:
    item = E.PassChange(
        stage=event.text("stage"),
        name=event.text("name"),
        before=event.text("before"),
        after=event.text("after"),
        seconds=event.real("seconds"),
        graph=event.text("graph"),
        inside=event.texts("inside"),
    )
    stream.compile_of(event).add("passes", item)


def _stage_start(stream: Stream, event: Event) -> None:
    stream.open_stages.append(event)


def _stage(stream: Stream, event: Event) -> None:
    for index in reversed(range(len(stream.open_stages))):
        if stream.open_stages[index].text("stage") == event.text("stage"):
            del stream.open_stages[index:]
            break
    seconds = event.real("seconds")
    stream.compile_of(event).stage_seconds[event.text("stage")] += seconds
    if event.text("graph"):
        stream.graph_of(event).seconds[event.text("stage")] += seconds


def _error(stream: Stream, event: Event) -> None:
    item = E.CompileError(
        stage=event.text("stage"),
        detail=event.text("detail"),
        graph=event.text("graph"),
        type=event.text("type"),
        message=event.text("message"),
        causes=event.texts("cause"),
        source=event.text("source"),
        raised_in=event.texts("raised_in"),
        traceback=event.text("traceback"),
    )
    stream.compile_of(event).add("errors", item)


def _eager_fallback(stream: Stream, event: Event) -> None:
    building = stream.compile_of(event)
    errors = building.lists.get("errors", [])
    if errors:
        errors[-1] = replace(errors[-1], swallowed=True)


def _inductor_start(stream: Stream, event: Event) -> None:
    graph = stream.graph_of(event)
    graph.fields["phase"] = event.text("phase")


def _inductor_end(stream: Stream, event: Event) -> None:
    stream.graph_of(event).fields["finished"] = True


def _cached_graph(stream: Stream, event: Event) -> None:
    stream.graph_of(event).fields.update(
        phase=event.text("phase"), wrapper=event.text("payload"), cached=True, finished=True
    )


def _lowering(stream: Stream, event: Event) -> None:
    made = event.fields.get("made")
    item = E.LoweredNode(
        node=event.text("node"),
        target=event.text("target"),
        ir=event.fields.get("ir"),
        made=tuple(m for m in made if isinstance(m, dict)) if isinstance(made, list) else (),
        fallback=bool(event.fields.get("fallback")),
        seconds=event.real("seconds"),
    )
    stream.graph_of(event).add("lowered", item)


def _scheduler(stream: Stream, event: Event) -> None:
    when = "before" if event.text("when") == "before" else "after"
    stream.graph_of(event).fields[f"scheduled_{when}"] = event.text("payload")


def _fusion_round(stream: Stream, event: Event) -> None:
    stream.graph_of(event).add("rounds", fusion_round(event))


def _fusion_pair(stream: Stream, event: Event) -> None:
    stream.graph_of(event).add("pairs", fusion_pair(event))


def _fused(stream: Stream, event: Event) -> None:
    stream.graph_of(event).add("fusions", fused(event))


def _kernel(stream: Stream, event: Event) -> None:
    found = event.fields.get("lines")
    rows = found if isinstance(found, list) else []
    item = E.Kernel(
        name=event.text("name"),
        language=event.text("language"),
        digest=event.text("payload"),
        nodes=event.texts("nodes"),
        origins=event.texts("origins"),
        reads=event.texts("reads"),
        writes=event.texts("writes"),
        lines=tuple(
            (str(r[0]), str(r[1]), str(r[2])) for r in rows if isinstance(r, list) and len(r) == 3
        ),
    )
    stream.graph_of(event).add("kernels", item)


def _wrapper(stream: Stream, event: Event) -> None:
    stream.graph_of(event).fields["wrapper"] = event.text("payload")


def _wrapper_loaded(stream: Stream, event: Event) -> None:
    stream.graph_of(event).fields["wrapper_path"] = event.text("path")


def _buffers(stream: Stream, event: Event) -> None:
    stream.graph_of(event).fields["buffers"] = event.text("payload")


def _reuse(stream: Stream, event: Event) -> None:
    item = E.Reuse(event.text("old"), event.text("new"), event.text("how"))
    stream.graph_of(event).add("reuses", item)


def _library(stream: Stream, event: Event) -> None:
    stream.compile_of(event).add("libraries", event.text("payload"))


def _autotune(stream: Stream, event: Event) -> None:
    stream.graph_of(event).add("autotunes", event)


def _choice(stream: Stream, event: Event) -> None:
    stream.choices[event.text("choice")] = event


def _native(stream: Stream, event: Event) -> None:
    stream.natives.append(event)


def _ignored(stream: Stream, event: Event) -> None:
    """Kinds that only a live view needs."""


Handler = Callable[[Stream, Event], None]

HANDLERS: dict[str, Handler] = {
    "process": _process,
    "process-end": _process_note,
    "stopped": _process_note,
    "hook-off": _process_note,
    "hook-error": _process_note,
    "torch": _torch,
    "launched": _ignored,
    "check": _ignored,
    "callable-check": _ignored,
    "graph-call": _ignored,
    "calls-unchecked": _ignored,
    "graph-returned": _ignored,
    "launch": _ignored,
    # Read by who looks for a stuck choice.
    "torch-log": _ignored,
    "eager-returned": _ignored,
    "benchmark-start": _ignored,
    "benchmark-end": _ignored,
    "exited": _exited,
    "compile-start": Stream.begin,
    "compile-end": _compile_end,
    "graph": _graph,
    "graph-break": _graph_break,
    "guards": _guards,
    "recompile": _recompile,
    "recompile-limit": _recompile_limit,
    "cache": _cache,
    "decompositions": _decompositions,
    "pass": _pass,
    "stage-start": _stage_start,
    "stage": _stage,
    "error": _error,
    "eager-fallback": _eager_fallback,
    "inductor-start": _inductor_start,
    "inductor-end": _inductor_end,
    "cached-graph": _cached_graph,
    "lowering": _lowering,
    "scheduler": _scheduler,
    "fusion-round": _fusion_round,
    "fusion-pair": _fusion_pair,
    "fused": _fused,
    "kernel": _kernel,
    "wrapper": _wrapper,
    "wrapper-loaded": _wrapper_loaded,
    "buffers": _buffers,
    "reuse": _reuse,
    "cpp-library": _library,
    "autotune": _autotune,
    "autotune-timed": _autotune,
    "autotune-chosen": _autotune,
    "autotune-configs": _native,
    "choice-start": _choice,
    "choice-end": _choice,
    "native-start": _native,
    "native": _native,
}
