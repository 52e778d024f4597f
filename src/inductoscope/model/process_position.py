"""The position of a process: its open stages, and what it waits for.

The only implementation, for recordings and for streams that are still being written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from inductoscope.recording import events as E
from inductoscope.recording.events import Entry, Event
from inductoscope.torch_facts.stages import NATIVE_COMPILES

Stage = Entry[E.StageStart]


class OpenStages:
    """The stack of open stages of a process, over all threads.

    On one thread, stages nest, so the end of a stage also closes its inner stages: an exception may
    leave a stage without an end event. Old recordings do not name threads. There, only stages of
    the same compile and graph are taken to be on the same thread.
    """

    def __init__(self, *, names_threads: bool = False) -> None:
        self.names_threads = names_threads
        self._open: list[Stage] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def all(self) -> tuple[Stage, ...]:
        """The open stages in the order in which they were entered, outer ones first."""
        return tuple(self._open)

    @property
    def innermost(self) -> E.StageStart | None:
        return self._open[-1].event if self._open else None

    @property
    def since(self) -> float | None:
        """The time at which the outermost stage on the innermost one's thread was entered."""
        thread = self.innermost.thread if self.innermost is not None else 0
        return next((stage.time for stage in self._open if stage.event.thread == thread), None)

    def enter(self, entry: Stage) -> None:
        self._open.append(entry)

    def leave(self, end: E.StageEnd) -> tuple[Stage, ...]:
        """Close a stage and those nested in it; return them, or nothing if it is not open."""
        thread = [stage for stage in self._open if stage.event.thread == end.thread]
        place = _place_of(thread, end)
        if place is None:
            return ()
        found, inner = thread[place], thread[place + 1 :]
        if not self.names_threads:
            inner = [stage for stage in inner if _can_be_inside(found.event, stage.event)]
        ended = (found, *inner)
        self._open = [s for s in self._open if not any(s is stage for stage in ended)]
        return ended

    def clear(self) -> None:
        self._open.clear()


def _can_be_inside(outer: E.StageStart, inner: E.StageStart) -> bool:
    # A subgraph's key begins with that of its outer graph.
    return inner.compile == outer.compile and inner.graph.startswith(outer.graph)


def _place_of(stages: list[Stage], end: E.StageEnd) -> int | None:
    """Return the index of the last stage that `end` may close; exact matches are preferred."""
    exact = (end.stage, end.graph, end.detail)
    # A stage that waits for a native compiler learns which one only when that one fails.
    names = NATIVE_COMPILES if end.stage in NATIVE_COMPILES else ()
    others = [(name, end.graph, end.detail) for name in names]
    for key in (exact, (end.stage,), *others):
        for place in reversed(range(len(stages))):
            start = stages[place].event
            if (start.stage, start.graph, start.detail)[: len(key)] == key:
                return place
    return None


NativeKey = tuple[str, str, str, str]


def native_key(event: E.NativeStart | E.NativeEnd) -> NativeKey:
    return event.tool, event.kernel, event.config, event.source


@dataclass
class ProcessPosition:
    """The progress of one process. Feed it the entries of its stream in order."""

    stages: OpenStages = field(default_factory=OpenStages)
    # Native compiles and autotuning choices that have started and not ended.
    natives: dict[NativeKey, Entry[E.NativeStart]] = field(default_factory=dict)
    choices: dict[str, Entry[E.ChoiceStart]] = field(default_factory=dict)
    # The compiled graph being called, and eager's seconds for the same call; None while eager is
    # still running.
    call: E.GraphCall | None = None
    eager_seconds: float | None = None
    # Whether the compiled code of that call has returned, and its values are judged.
    is_judged: bool = False
    # The source locations of compiled functions, by compile id.
    functions: dict[str, str] = field(default_factory=dict)
    last_node: str = ""
    # The number of fusion rounds for the current graph.
    rounds: int = 0
    process: E.ProcessStart | None = None
    has_ended: bool = False
    # The time of the last progress, by the process's clock, and the number of mere tracing signs
    # since.
    latest: float = 0.0
    signs: int = 0

    def take(self, entry: Entry[Event]) -> None:
        is_sign = isinstance(entry.event, E.TracingContinues)
        if entry.event.is_progress or is_sign:
            self.latest = max(self.latest, entry.time)
            self.signs = self.signs + 1 if is_sign else 0
        if type(entry.event) in _TELLING:
            self._take(entry, entry.event)

    def _take(self, entry: Entry[Any], event: Event) -> None:
        match event:
            case E.ProcessStart():
                self.process = event
                self.stages.names_threads = event.names_threads
            case E.ProcessEnd():
                self.stages.clear()
                self.call, self.has_ended = None, True
            case E.StageStart():
                self.stages.enter(entry)
                self.rounds = 0
            case E.StageEnd():
                self.stages.leave(event)
            case E.CompileStart():
                self.functions[event.compile] = f"{event.file}:{event.line}"
            case E.NativeStart():
                self.natives[native_key(event)] = entry
            case E.NativeEnd():
                self.natives.pop(native_key(event), None)
            case E.ChoiceStart():
                self.choices[event.choice] = entry
            case E.ChoiceEnd():
                self.choices.pop(event.choice, None)
            case E.LoweredNode():
                self.last_node = event.node
            case E.FusionRound():
                self.rounds = event.round
            case E.GraphCall():
                self.call, self.eager_seconds, self.is_judged = event, None, False
            case E.GraphReturned():
                self.call, self.eager_seconds = None, None
            case E.EagerReturned():
                self.eager_seconds = event.seconds
            case E.CompiledReturned():
                self.is_judged = True

    @property
    def seconds_inside(self) -> float:
        """Seconds from entering the compiler to the last sign of progress; 0 outside of it."""
        return 0.0 if self.stages.since is None else self.latest - self.stages.since

    @property
    def role(self) -> str:
        """Role of the process, `launcher` for the tool itself; empty if not recorded."""
        return self.process.role if self.process else ""

    @property
    def rank(self) -> str:
        return self.process.rank if self.process else ""

    @property
    def compile(self) -> str:
        compiles = (stage.event.compile for stage in reversed(self.stages.all))
        return next(filter(None, compiles), "")


# Most events say nothing about where a process is.
_TELLING: frozenset[type[Event]] = frozenset(
    {
        *(E.ProcessStart, E.ProcessEnd, E.StageStart, E.StageEnd, E.CompileStart, E.NativeStart),
        *(E.NativeEnd, E.ChoiceStart, E.ChoiceEnd, E.LoweredNode, E.FusionRound, E.GraphCall),
        *(E.GraphReturned, E.EagerReturned, E.CompiledReturned),
    }
)


# --- The short name of a Python process: its script, its module, or inline code -------------------

# Python's options that take the next word as value.
OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def what_runs(argv: Sequence[str]) -> str:
    """Return a short name for a command line; empty if there is none.

    >>> what_runs(["/usr/bin/python3", "-u", "/home/me/train.py", "--epochs", "1"])
    'train.py'
    >>> what_runs(["python", "-m", "package.train"])
    '-m package.train'
    """
    rest = list(argv[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        value = rest[0] if rest else ""
        if option in OPTIONS_WITH_VALUE:
            del rest[:1]
        elif not option.startswith("--") and option.endswith("c"):
            return "multiprocessing" if value.startswith("from multiprocessing") else "python -c"
        elif not option.startswith("--") and option.endswith("m"):
            return f"-m {value}"
    return PurePath(rest[0]).name if rest else ""
