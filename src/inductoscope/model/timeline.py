"""When each process was in which stage: lanes and nested spans, folded from the events' times.

Stages follow each other on the threads of a process. Most events do not name their thread: spans
that do not nest cannot be of one thread, so they get a lane of their own. Compilers (g++, Triton)
and the choices of autotuning run beside them, and have lanes of a kind of their own. A span that
never ended lasts until its process was seen to exit, or until the last that the process wrote, and
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.model.process_position import OpenStages, native_key, what_runs
from inductoscope.recording.events import (
    BenchmarkEnd,
    BenchmarkStart,
    ChoiceEnd,
    ChoiceStart,
    CompileEnd,
    CompileStart,
    Entry,
    Event,
    Exited,
    FusionRound,
    NativeEnd,
    NativeStart,
    PassChange,
    ProcessEnd,
    ProcessStart,
    StageEnd,
    StageStart,
)
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

# Sides of a process: what its own threads do, and what they have others do.
_OWN = "program"
_COMPILERS = "compiler"
_ROLES = ("launcher", "worker")


@dataclass(frozen=True)
class Timeline:
    """All lanes, a process's own ones before those of its compilers; spans in order."""

    started: float  # seconds since 1970
    seconds: float
    lanes: tuple[Lane, ...]
    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()


def timeline(recording: Recording) -> Timeline:
    """The timeline of a recording, whole or damaged."""
    streams = {name: _Stream(name, last=last) for name, last in recording.latest.items()}
    exits: dict[int, float] = {}
    for entry in recording.timed:
        streams[entry.stream].take(entry)
        if isinstance(entry.event, Exited):
            exits[entry.event.pid] = entry.time
    for stream in streams.values():
        stream.lasts_until(exits.get(stream.pid, 0.0))
    begun = min((s.first for s in streams.values() if s.first), default=0.0)
    lanes: list[Lane] = []
    spans: list[Span] = []
    for stream in streams.values():
        for kind, rows in stream.rows(begun):
            for number, row in enumerate(rows):
                spans += [replace(span, lane=len(lanes)) for span in row]
                lanes.append(stream.lane(kind, number, begun))
    end = max((lane.start + lane.seconds for lane in lanes), default=0.0)
    notes = tuple(note for stream in streams.values() for note in stream.notes())
    return Timeline(begun, round(end, 6), tuple(lanes), tuple(spans), notes)


# --- one process ----------------------------------------------------------------------------------


@dataclass
class _Open:
    """Something that has begun. Times are those of the events until it is placed."""

    kind: str
    key: tuple[Any, ...]
    start: float
    stage: str
    label: str
    graph: str
    compile: str
    end: float | None = None
    side: str = _OWN


@dataclass
class _Stream:
    """The events of one process, folded so far."""

    name: str
    first: float = 0.0
    last: float = 0.0
    process: ProcessStart = field(default_factory=ProcessStart)
    stages: OpenStages = field(default_factory=OpenStages)
    ended: bool = False
    open: list[_Open] = field(default_factory=list)
    done: list[_Open] = field(default_factory=list)
    without_beginning: int = 0

    def take(self, entry: Entry[Event]) -> None:
        """Take in one entry; one without a time is left out."""
        if entry.time <= 0:
            return
        self.first = min(self.first or entry.time, entry.time)
        self.last = max(self.last, entry.time)
        handler = _HANDLERS.get(type(entry.event))
        if handler is not None:
            handler(self, entry)

    def lasts_until(self, time: float) -> None:
        """A process that wrote no end was still there at this time."""
        self.first = self.first or self.last
        if not self.ended and self.first:
            self.last = max(self.last, time)

    def begin(self, item: _Open) -> None:
        self.open.append(item)

    def end(self, kind: str, time: float, key: tuple[Any, ...]) -> None:
        """End what began last under `key`."""
        known = [o for o in self.open if o.kind == kind and o.key == key]
        if known:
            self._close(known[-1], time)
        else:
            self.without_beginning += 1

    def end_timed(self, kind: str, time: float, key: tuple[Any, ...], seconds: float) -> None:
        """End what has lasted about as long as `seconds`: several threads do the same at once."""
        known = [o for o in self.open if o.kind == kind and o.key == key]
        if known:
            self._close(min(known, key=lambda o: abs(o.start - (time - seconds))), time)
        else:
            self.without_beginning += 1

    def _close(self, item: _Open, time: float) -> None:
        item.end = max(time, item.start)
        self.open = [other for other in self.open if other is not item]
        self.done.append(item)

    @property
    def pid(self) -> int:
        """The process; 0 where it is unknown."""
        return self.process.pid

    def lane(self, kind: str, number: int, begun: float) -> Lane:
        """The lane `number` of a kind."""
        start = max(0.0, self.first - begun) if self.first else 0.0
        return Lane(
            name=self._lane_name(kind, number),
            kind=kind,
            process=self.name,
            pid=self.pid,
            start=round(start, 6),
            seconds=round(self.last - self.first, 6),
            ended=self.ended,
        )

    def _lane_name(self, kind: str, number: int) -> str:
        pid = self.pid or "?"
        if kind == _COMPILERS:
            return f"compilers of pid {pid}, {number + 1}"
        thread = f", thread {number + 1}" if number else ""
        return f"{self._title()} (pid {pid}){thread}"

    def _title(self) -> str:
        if self.kind == "launcher":
            return "inductoscope"
        if self.kind == "worker":
            return "torch's compile worker"
        rank = self.process.rank
        title = what_runs(self.process.argv) or "program"
        return f"rank {rank}, {title}" if rank else title

    @property
    def kind(self) -> str:
        """Kind of process: launcher, compile worker or program."""
        role = self.process.role
        is_worker = any("torch/_inductor/compile_worker" in word for word in self.process.argv)
        return "worker" if is_worker else role if role in _ROLES else _OWN

    def rows(self, begun: float) -> Iterator[tuple[str, list[list[Span]]]]:
        """The process's own lanes, always at least one, then those of its compilers."""
        every = [*self.done, *self.open]
        own = [item for item in every if item.side == _OWN]
        others = [item for item in every if item.side == _COMPILERS]
        yield self.kind, laid_out(self._placed(own, begun), nests) or [[]]
        yield _COMPILERS, laid_out(self._placed(others, begun), is_part_of_choice)

    def _placed(self, items: Iterable[_Open], begun: float) -> list[Span]:
        """Spans with times that count from the beginning of the run, outer ones first."""
        spans = []
        for item in items:
            start, end = item.start - begun, (item.end or self.last) - begun
            spans.append(
                Span(
                    lane=0,
                    start=round(start, 6),
                    seconds=max(0.0, round(end, 6) - round(start, 6)),
                    depth=0,
                    stage=item.stage,
                    label=item.label,
                    graph=item.graph,
                    compile=item.compile,
                    finished=item.end is not None,
                )
            )
        return sorted(spans, key=lambda span: (span.start, -span.end))

    def notes(self) -> Iterator[str]:
        """Warnings about spans that have no beginning or never ended."""
        if self.without_beginning:
            ends = count_of(self.without_beginning, "end")
            yield f"{self.name}: left out {ends} without a beginning"
        if self.open:
            yield f"{self.name}: {count_of(len(self.open), 'span')} never ended"


# --- handlers -------------------------------------------------------------------------------------


def _described(stream: _Stream, entry: Entry[ProcessStart]) -> None:
    stream.process = entry.event
    stream.stages.names_threads = entry.event.names_threads


def _ended(stream: _Stream, entry: Entry[ProcessEnd]) -> None:
    stream.ended = True


def _opened(entry: Entry[Any], kind: str, key: tuple[Any, ...], stage: str, label: str) -> _Open:
    graph = getattr(entry.event, "graph", "")
    return _Open(
        kind=kind,
        key=key,
        start=entry.time,
        stage=stage,
        label=label,
        graph=graph,
        compile=getattr(entry.event, "compile", "") or graph.partition(" ")[0],
    )


def _compile_start(stream: _Stream, entry: Entry[CompileStart]) -> None:
    event = entry.event
    place = f"{Path(event.file).name}:{event.line}" if event.file else ""
    label = " ".join(filter(None, (event.compile, event.function, place)))
    stream.begin(_opened(entry, "compile", (event.compile,), "compile", label))


def _compile_end(stream: _Stream, entry: Entry[CompileEnd]) -> None:
    stream.end("compile", entry.time, (entry.event.compile,))


def _stage_start(stream: _Stream, entry: Entry[StageStart]) -> None:
    event = entry.event
    short = Path(event.detail).name if "/" in event.detail else event.detail
    label = " ".join(filter(None, (event.graph or event.compile, short)))
    stream.stages.enter(entry)
    stream.begin(_opened(entry, "stage", (id(entry),), event.stage, label))


def _stage_end(stream: _Stream, entry: Entry[StageEnd]) -> None:
    ended = stream.stages.leave(entry.event)
    stream.without_beginning += not ended
    for start in ended:
        stream.end("stage", entry.time, (id(start),))


def _part(stage: str, label: Callable[[Any], str]) -> Handler:
    """An event written when something is over: it says how long it took."""

    def handle(stream: _Stream, entry: Entry[Any]) -> None:
        event = entry.event
        item = _opened(entry, "part", (), getattr(event, "stage", "") or stage, label(event))
        around = [open_.start for open_ in stream.open if open_.kind == "stage"]
        earliest = max(around, default=stream.first)
        item.start = min(entry.time, max(earliest, entry.time - event.seconds))
        item.end = entry.time
        stream.done.append(item)

    return handle


def _native_start(stream: _Stream, entry: Entry[NativeStart]) -> None:
    event = entry.event
    stage = stages.TRITON_COMPILE if event.tool == "triton" else stages.CPP_COMPILE
    name = event.kernel or Path(event.source).name or event.tool
    label = f"{name} ({event.config})" if event.config else name
    item = _opened(entry, "native", native_key(event), stage, label)
    item.side = _COMPILERS
    stream.begin(item)


def _native_end(stream: _Stream, entry: Entry[NativeEnd]) -> None:
    event = entry.event
    stream.end_timed("native", entry.time, native_key(event), event.seconds or 0.0)


def _timed(kind: str, label: str) -> tuple[Handler, Handler]:
    """Beginning and end of what autotuning does with one choice."""

    def start(stream: _Stream, entry: Entry[ChoiceStart | BenchmarkStart]) -> None:
        choice = entry.event.choice
        item = _opened(entry, kind, (choice,), stages.AUTOTUNE, f"{label} {choice}")
        item.side = _COMPILERS
        stream.begin(item)

    def end(stream: _Stream, entry: Entry[ChoiceEnd | BenchmarkEnd]) -> None:
        stream.end(kind, entry.time, (entry.event.choice,))

    return start, end


Handler = Callable[[_Stream, Entry[Any]], None]

_choice_start, _choice_end = _timed("choice", "choice")
_benchmark_start, _benchmark_end = _timed("benchmark", "timing of")

_HANDLERS: dict[type[Event], Handler] = {
    ProcessStart: _described,
    ProcessEnd: _ended,
    CompileStart: _compile_start,
    CompileEnd: _compile_end,
    StageStart: _stage_start,
    StageEnd: _stage_end,
    PassChange: _part("passes", lambda event: f"pass {event.name}"),
    FusionRound: _part(stages.SCHEDULER, lambda event: f"fusion round {event.round}"),
    NativeStart: _native_start,
    NativeEnd: _native_end,
    ChoiceStart: _choice_start,
    ChoiceEnd: _choice_end,
    BenchmarkStart: _benchmark_start,
    BenchmarkEnd: _benchmark_end,
}
# The classes of events that are read here.
EVENTS: frozenset[type[Event]] = frozenset((*_HANDLERS, Exited))


# --- Lanes of a timeline: which spans can share a row, because they nest or follow each other -----


@dataclass(frozen=True)
class Lane:
    """A row of the timeline: spans in it nest or follow each other."""

    name: str
    kind: str  # launcher, program, worker or compiler
    process: str  # the stream
    pid: int
    start: float
    seconds: float
    ended: bool  # whether the process ended normally


@dataclass(frozen=True)
class Span:
    """Something that took time. `start` counts from the beginning of the run."""

    lane: int
    start: float
    seconds: float
    depth: int
    stage: str
    label: str
    graph: str = ""
    compile: str = ""
    finished: bool = True

    @property
    def end(self) -> float:
        """When it was over."""
        return round(self.start + self.seconds, 6)


Fits = Callable[[Span, Span], bool]


def nests(outer: Span, inner: Span) -> bool:
    """Whether a span lies inside another, as calls on one thread do."""
    return inner.end <= outer.end


def is_part_of_choice(outer: Span, inner: Span) -> bool:
    """Compilers run beside each other; only a choice's own compile lies inside the choice."""
    is_part = outer.stage == stages.AUTOTUNE and inner.stage == stages.TRITON_COMPILE
    return is_part and inner.end <= outer.end


def laid_out(spans: list[Span], fits: Fits) -> list[list[Span]]:
    """Each span in the first row where it fits into what is under way, or where nothing is."""
    rows: list[list[Span]] = []
    under_way: list[list[Span]] = []
    for span in spans:
        number = _row_for(span, under_way, fits)
        if number == len(rows):
            rows.append([])
            under_way.append([])
        placed = replace(span, depth=len(under_way[number]))
        rows[number].append(placed)
        under_way[number].append(placed)
    return rows


def _row_for(span: Span, under_way: list[list[Span]], fits: Fits) -> int:
    """Where it fits tightest: what ends right after it is what waited for it."""
    for stack in under_way:
        while stack and stack[-1].end <= span.start:
            stack.pop()
    around = [(s[-1].end, n) for n, s in enumerate(under_way) if s and fits(s[-1], span)]
    idle = [number for number, stack in enumerate(under_way) if not stack]
    return min(around)[1] if around else idle[0] if idle else len(under_way)
