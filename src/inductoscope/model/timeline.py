"""The timeline of a run: lanes and nested spans per process, folded from event times.

Stages follow each other on the threads of a process. Most events do not name their thread: spans
that do not nest cannot be of one thread, so they get a lane of their own. Compilers (g++, Triton)
and the choices of autotuning run beside them, and have lanes of a kind of their own. A span that
never ended lasts until its process was seen to exit, or until the last that the process wrote, and
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.model.process_position import OpenStages, native_key, what_runs
from inductoscope.recording import events as E
from inductoscope.recording.events import Entry, Event
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

# The lane kind of compilers; a process's own lanes are named after the kind of process.
_COMPILERS = "compiler"


@dataclass(frozen=True)
class Lane:
    """A row of the timeline, whose spans nest or follow each other."""

    name: str
    kind: str  # launcher, program, worker or compiler
    process: str  # the stream
    pid: int
    start: float
    seconds: float
    ended: bool  # whether the process ended normally


@dataclass(frozen=True)
class Span:
    """An interval of work. `start` counts from the beginning of the run."""

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
        return round(self.start + self.seconds, 6)


@dataclass(frozen=True)
class Timeline:
    """All lanes, a process's own before those of its compilers, and all spans in order."""

    started: float  # seconds since 1970
    seconds: float
    lanes: tuple[Lane, ...]
    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()


def timeline(recording: Recording) -> Timeline:
    streams = {name: _Stream(name, last=last) for name, last in recording.latest.items()}
    exits: dict[int, float] = {}
    for entry in recording.timed:
        streams[entry.stream].take(entry)
        if isinstance(entry.event, E.Exited):
            exits[entry.event.pid] = entry.time
    for stream in streams.values():
        stream.lasts_until(exits.get(stream.process.pid, 0.0))
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


# --- Pairs of begin and end events ----------------------------------------------------------------


def _words(*words: str) -> str:
    return " ".join(filter(None, words))


def _compile(event: E.CompileStart) -> tuple[str, str]:
    place = f"{Path(event.file).name}:{event.line}" if event.file else ""
    return "compile", _words(event.compile, event.function, place)


def _native(event: E.NativeStart) -> tuple[str, str]:
    stage = stages.TRITON_COMPILE if event.tool == "triton" else stages.CPP_COMPILE
    name = event.kernel or Path(event.source).name or event.tool
    return stage, f"{name} ({event.config})" if event.config else name


def _stage(event: E.StageStart) -> tuple[str, str]:
    short = Path(event.detail).name if "/" in event.detail else event.detail
    return event.stage, _words(event.graph or event.compile, short)


# The stage and label of a span, by the event that begins it.
_BEGINNINGS: dict[type[Event], Callable[[Any], tuple[str, str]]] = {
    E.CompileStart: _compile,
    E.StageStart: _stage,
    E.NativeStart: _native,
    E.ChoiceStart: lambda event: (stages.AUTOTUNE, f"choice {event.choice}"),
    E.BenchmarkStart: lambda event: (stages.AUTOTUNE, f"timing of {event.choice}"),
}
# The events that end a span, with the key that pairs them; stages have their own rules.
_ENDS: dict[type[Event], tuple[type[Event], Callable[[Any], Hashable]]] = {
    E.CompileEnd: (E.CompileStart, lambda event: event.compile),
    E.NativeEnd: (E.NativeStart, native_key),
    E.ChoiceEnd: (E.ChoiceStart, lambda event: event.choice),
    E.BenchmarkEnd: (E.BenchmarkStart, lambda event: event.choice),
}
# The events written at the end of a span, which carry its duration.
_PARTS: dict[type[Event], Callable[[Any], tuple[str, str]]] = {
    E.PassChange: lambda event: (event.stage or "passes", f"pass {event.name}"),
    E.FusionRound: lambda event: (stages.SCHEDULER, f"fusion round {event.round}"),
}
_BESIDE = (E.NativeStart, E.ChoiceStart, E.BenchmarkStart)
# The event classes that the timeline reads.
EVENTS: frozenset[type[Event]] = frozenset(
    (*_BEGINNINGS, *_ENDS, *_PARTS, E.StageEnd, E.ProcessStart, E.ProcessEnd, E.Exited)
)


# --- one process ----------------------------------------------------------------------------------


@dataclass(eq=False)
class _Work:
    entry: Entry[Any]
    stage: str
    label: str
    start: float
    end: float | None = None


@dataclass
class _Stream:
    name: str
    first: float = 0.0
    last: float = 0.0
    process: E.ProcessStart = field(default_factory=E.ProcessStart)
    stages: OpenStages = field(default_factory=OpenStages)
    ended: bool = False
    open: list[_Work] = field(default_factory=list)
    done: list[_Work] = field(default_factory=list)
    without_beginning: int = 0

    def take(self, entry: Entry[Any]) -> None:
        """Fold one entry into the state; entries without a time are skipped."""
        event, kind = entry.event, type(entry.event)
        if entry.time <= 0:
            return
        self.first = min(self.first or entry.time, entry.time)
        self.last = max(self.last, entry.time)
        if kind in _BEGINNINGS:
            self.open.append(_Work(entry, *_BEGINNINGS[kind](event), entry.time))
            if isinstance(event, E.StageStart):
                self.stages.enter(entry)
        elif kind in _ENDS:
            begins, key = _ENDS[kind]
            known = [
                work
                for work in self.open
                if type(work.entry.event) is begins and key(work.entry.event) == key(event)
            ]
            # Several threads may do the same work at once: end the one of about that duration.
            begun = entry.time - (getattr(event, "seconds", None) or 0.0)
            self._end(sorted(known, key=lambda work: abs(work.start - begun))[:1], entry.time)
        elif isinstance(event, E.StageEnd):
            ended = [id(stage) for stage in self.stages.leave(event)]
            self._end([work for work in self.open if id(work.entry) in ended], entry.time)
        elif kind in _PARTS:
            around = [
                work.start for work in self.open if isinstance(work.entry.event, E.StageStart)
            ]
            earliest = max(around, default=self.first)
            start = min(entry.time, max(earliest, entry.time - event.seconds))
            self.done.append(_Work(entry, *_PARTS[kind](event), start, entry.time))
        elif isinstance(event, E.ProcessStart):
            self.process = event
            self.stages.names_threads = event.names_threads
        elif isinstance(event, E.ProcessEnd):
            self.ended = True

    def _end(self, works: list[_Work], time: float) -> None:
        self.without_beginning += not works
        for work in works:
            work.end = max(time, work.start)
            self.open.remove(work)
            self.done.append(work)

    def lasts_until(self, time: float) -> None:
        """Extend the end of a process that wrote no `process_end` to `time`."""
        self.first = self.first or self.last
        if not self.ended and self.first:
            self.last = max(self.last, time)

    def lane(self, kind: str, number: int, begun: float) -> Lane:
        pid = self.process.pid or "?"
        thread = f", thread {number + 1}" if number else ""
        return Lane(
            name=f"compilers of pid {pid}, {number + 1}"
            if kind == _COMPILERS
            else f"{self._title} (pid {pid}){thread}",
            kind=kind,
            process=self.name,
            pid=self.process.pid,
            start=round(max(0.0, self.first - begun) if self.first else 0.0, 6),
            seconds=round(self.last - self.first, 6),
            ended=self.ended,
        )

    @property
    def _title(self) -> str:
        known = {"launcher": "inductoscope", "worker": "torch's compile worker"}
        if self.kind in known:
            return known[self.kind]
        rank = self.process.rank
        title = what_runs(self.process.argv) or "program"
        return f"rank {rank}, {title}" if rank else title

    @property
    def kind(self) -> str:
        if any("torch/_inductor/compile_worker" in word for word in self.process.argv):
            return "worker"
        return self.process.role if self.process.role in ("launcher", "worker") else "program"

    def rows(self, begun: float) -> Iterator[tuple[str, list[list[Span]]]]:
        own: list[Span] = []
        beside: list[Span] = []
        for work in (*self.done, *self.open):
            (beside if isinstance(work.entry.event, _BESIDE) else own).append(
                self._span(work, begun)
            )
        yield self.kind, _laid_out(own, _nests) or [[]]
        yield _COMPILERS, _laid_out(beside, _is_part_of_choice)

    def _span(self, work: _Work, begun: float) -> Span:
        start, end = round(work.start - begun, 6), round((work.end or self.last) - begun, 6)
        graph = getattr(work.entry.event, "graph", "")
        return Span(
            lane=0,
            start=start,
            seconds=max(0.0, end - start),
            depth=0,
            stage=work.stage,
            label=work.label,
            graph=graph,
            compile=getattr(work.entry.event, "compile", "") or graph.partition(" ")[0],
            finished=work.end is not None,
        )

    def notes(self) -> Iterator[str]:
        if self.without_beginning:
            ends = count_of(self.without_beginning, "end")
            yield f"{self.name}: left out {ends} without a beginning"
        if self.open:
            yield f"{self.name}: {count_of(len(self.open), 'span')} never ended"


# --- Which spans can share a row, because they nest or follow each other --------------------------


Fits = Callable[[Span, Span], bool]


def _nests(outer: Span, inner: Span) -> bool:
    """Check whether a span ends inside another, as calls on one thread do."""
    return inner.end <= outer.end


def _is_part_of_choice(outer: Span, inner: Span) -> bool:
    """Check whether a span is the Triton compile of a choice; other compilers run in parallel."""
    is_part = outer.stage == stages.AUTOTUNE and inner.stage == stages.TRITON_COMPILE
    return is_part and inner.end <= outer.end


def _laid_out(spans: list[Span], fits: Fits) -> list[list[Span]]:
    """Distribute spans over rows: nested in an open span if one fits, else in an idle row."""
    rows: list[list[Span]] = []
    under_way: list[list[Span]] = []
    # Sort outer spans before the spans nested in them.
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        number = _row_for(span, under_way, fits)
        if number == len(rows):
            rows.append([])
            under_way.append([])
        placed = replace(span, depth=len(under_way[number]))
        rows[number].append(placed)
        under_way[number].append(placed)
    return rows


def _row_for(span: Span, under_way: list[list[Span]], fits: Fits) -> int:
    """Return the row whose open span ends first after this one, which waited for it."""
    for stack in under_way:
        while stack and stack[-1].end <= span.start:
            stack.pop()
    around = [(s[-1].end, n) for n, s in enumerate(under_way) if s and fits(s[-1], span)]
    idle = [number for number, stack in enumerate(under_way) if not stack]
    return min(around)[1] if around else idle[0] if idle else len(under_way)
