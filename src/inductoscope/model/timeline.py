"""When each process was in which stage: lanes and nested spans, folded from the events' times.

Stages follow each other on the threads of a process, and the events do not say which thread wrote
them: spans that do not nest cannot be of one thread, so they get a lane of their own. Compilers
(g++, Triton) and the choices of autotuning run beside them, and have lanes of a kind of their own.
A span that never ended lasts until its process was seen to exit, or until the last that the process
wrote, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from inductoscope.model.entities import Recording
from inductoscope.recording.reader import Event, RecordingReader, open_recording
from inductoscope.vocabulary import stages

# Sides of a process: what its own threads do, and what they have others do.
_OWN = "program"
_COMPILERS = "compiler"
_ROLES = ("launcher", "worker")


@dataclass(frozen=True)
class Lane:
    """A row of the timeline: spans in it nest or follow each other."""

    name: str
    kind: str  # launcher, program, worker or compiler
    process: str  # the stream
    pid: int
    start: float
    seconds: float
    ended: bool  # whether the process ended in the ordinary way


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


@dataclass(frozen=True)
class Timeline:
    """All lanes, a process's own ones before those of its compilers; spans in order."""

    started: float  # seconds since 1970
    seconds: float
    lanes: tuple[Lane, ...]
    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()


def timeline(recording: Recording | RecordingReader, *, now: float | None = None) -> Timeline:
    """The timeline of a recording, whole or damaged; of a run that goes on, as it is `now`."""
    reader = open_recording(Path(recording.path))
    streams: dict[str, _Stream] = {}
    exits: dict[int, float] = {}
    for event in reader.events():
        stream = streams.setdefault(event.stream, _Stream(event.stream))
        stream.take(event)
        if event.kind == "exited":
            exits[event.whole("pid")] = event.time
    for stream in streams.values():
        stream.lasts_until(exits.get(stream.pid, now or 0.0))
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
    key: tuple[str, ...]
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
    process: Event | None = None
    ended: bool = False
    open: list[_Open] = field(default_factory=list)
    done: list[_Open] = field(default_factory=list)
    without_beginning: int = 0

    def take(self, event: Event) -> None:
        """One event; one without a time says nothing about when."""
        if event.time <= 0:
            return
        self.first = min(self.first or event.time, event.time)
        self.last = max(self.last, event.time)
        if event.kind == "process":
            self.process = event
        self.ended = self.ended or event.kind == "process-end"
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def lasts_until(self, time: float) -> None:
        """A process that wrote no end was still there at this time."""
        if not self.ended and self.first:
            self.last = max(self.last, time)

    def begin(self, item: _Open) -> None:
        self.open.append(item)

    def end(self, kind: str, event: Event, *keys: tuple[str, ...]) -> None:
        """End what began last under the first of `keys` that is known."""
        for key in keys:
            known = [o for o in self.open if o.kind == kind and o.key[: len(key)] == key]
            if known:
                self._close(known[-1], event)
                return
        self.without_beginning += 1

    def end_timed(self, kind: str, event: Event, key: tuple[str, ...]) -> None:
        """End what has lasted as long as the event says: several threads do the same at once."""
        known = [o for o in self.open if o.kind == kind and o.key == key]
        if not known:
            self.without_beginning += 1
            return
        begun = event.time - event.real("seconds")
        self._close(min(known, key=lambda o: abs(o.start - begun)), event)

    def _close(self, item: _Open, event: Event) -> None:
        item.end = max(event.time, item.start)
        self.open = [other for other in self.open if other is not item]
        self.done.append(item)

    @property
    def pid(self) -> int:
        """The process; 0 where it is unknown."""
        return self.process.whole("pid") if self.process else 0

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
        words = self.process.texts("argv") if self.process else ()
        scripts = [word for word in words[1:] if not word.startswith("-")]
        rank = self.process.text("rank") if self.process else ""
        title = Path(scripts[0]).name if scripts else "program"
        return f"rank {rank}, {title}" if rank else title

    @property
    def kind(self) -> str:
        """What the process is for."""
        if self.process is None:
            return _OWN
        role = self.process.text("role")
        is_worker = any("torch/_inductor/compile_worker" in w for w in self.process.texts("argv"))
        return "worker" if is_worker else role if role in _ROLES else _OWN

    def rows(self, begun: float) -> Iterator[tuple[str, list[list[Span]]]]:
        """The process's own lanes, always at least one, then those of its compilers."""
        every = [*self.done, *self.open]
        own = [item for item in every if item.side == _OWN]
        others = [item for item in every if item.side == _COMPILERS]
        yield self.kind, _laid_out(self._placed(own, begun), _nests) or [[]]
        yield _COMPILERS, _laid_out(self._placed(others, begun), _is_part_of_choice)

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
        """What the timeline does not show, or shows with a guess."""
        if self.without_beginning:
            yield f"{self.name}: {self.without_beginning} end(s) without a beginning are left out"
        if self.open:
            yield f"{self.name}: {len(self.open)} span(s) never ended"


# --- lanes ----------------------------------------------------------------------------------------

Fits = Callable[[Span, Span], bool]


def _nests(outer: Span, inner: Span) -> bool:
    return inner.end <= outer.end


def _is_part_of_choice(outer: Span, inner: Span) -> bool:
    """Compilers run beside each other; only a choice's own compile lies inside the choice."""
    is_part = outer.stage == stages.AUTOTUNE and inner.stage == stages.TRITON_COMPILE
    return is_part and inner.end <= outer.end


def _laid_out(spans: list[Span], fits: Fits) -> list[list[Span]]:
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


# --- handlers -------------------------------------------------------------------------------------


def _opened(event: Event, kind: str, key: tuple[str, ...], stage: str, label: str) -> _Open:
    return _Open(
        kind=kind,
        key=key,
        start=event.time,
        stage=stage,
        label=label,
        graph=event.text("graph"),
        compile=event.text("compile") or event.text("graph").partition(" ")[0],
    )


def _compile_start(stream: _Stream, event: Event) -> None:
    place = f"{Path(event.text('file')).name}:{event.whole('line')}" if event.text("file") else ""
    label = " ".join(filter(None, (event.text("compile"), event.text("function"), place)))
    stream.begin(_opened(event, "compile", (event.text("compile"),), "compile", label))


def _compile_end(stream: _Stream, event: Event) -> None:
    stream.end("compile", event, (event.text("compile"),))


def _stage_start(stream: _Stream, event: Event) -> None:
    stage, detail = event.text("stage"), event.text("detail")
    key = (stage, event.text("graph"), detail)
    short = Path(detail).name if "/" in detail else detail
    label = " ".join(filter(None, (event.text("graph") or event.text("compile"), short)))
    stream.begin(_opened(event, "stage", key, stage, label))


def _stage_end(stream: _Stream, event: Event) -> None:
    """A stage may find out that it is another one, while it waits for a compiler that fails."""
    stage, graph, detail = event.text("stage"), event.text("graph"), event.text("detail")
    aliases = [(name, graph, detail) for name in stages.NATIVE_COMPILES]
    others = aliases if stage in stages.NATIVE_COMPILES else []
    stream.end("stage", event, (stage, graph, detail), (stage,), *others)


def _part(stage: str, label: Callable[[Event], str]) -> Handler:
    """An event written when something is over: it says how long it took."""

    def handle(stream: _Stream, event: Event) -> None:
        item = _opened(event, "part", (), event.text("stage") or stage, label(event))
        around = [open_.start for open_ in stream.open if open_.kind == "stage"]
        earliest = max(around, default=stream.first)
        item.start = min(event.time, max(earliest, event.time - event.real("seconds")))
        item.end = event.time
        stream.done.append(item)

    return handle


def _native_key(event: Event) -> tuple[str, ...]:
    return event.text("source"), event.text("kernel"), event.text("config")


def _native_start(stream: _Stream, event: Event) -> None:
    stage = stages.TRITON_COMPILE if event.text("tool") == "triton" else stages.CPP_COMPILE
    name = event.text("kernel") or Path(event.text("source")).name or event.text("tool")
    label = f"{name} ({event.text('config')})" if event.text("config") else name
    item = _opened(event, "native", _native_key(event), stage, label)
    item.side = _COMPILERS
    stream.begin(item)


def _native_end(stream: _Stream, event: Event) -> None:
    stream.end_timed("native", event, _native_key(event))


def _timed(kind: str, label: str) -> tuple[Handler, Handler]:
    """Beginning and end of what autotuning does with one choice."""

    def start(stream: _Stream, event: Event) -> None:
        choice = event.text("choice")
        item = _opened(event, kind, (choice,), stages.AUTOTUNE, f"{label} {choice}")
        item.side = _COMPILERS
        stream.begin(item)

    def end(stream: _Stream, event: Event) -> None:
        stream.end(kind, event, (event.text("choice"),))

    return start, end


Handler = Callable[[_Stream, Event], None]

_choice_start, _choice_end = _timed("choice", "choice")
_benchmark_start, _benchmark_end = _timed("benchmark", "timing of")

_HANDLERS: dict[str, Handler] = {
    "compile-start": _compile_start,
    "compile-end": _compile_end,
    "stage-start": _stage_start,
    "stage": _stage_end,
    "pass": _part("passes", lambda event: f"pass {event.text('name')}"),
    "fusion-round": _part(stages.SCHEDULER, lambda event: f"fusion round {event.whole('round')}"),
    "native-start": _native_start,
    "native": _native_end,
    "choice-start": _choice_start,
    "choice-end": _choice_end,
    "benchmark-start": _benchmark_start,
    "benchmark-end": _benchmark_end,
}
