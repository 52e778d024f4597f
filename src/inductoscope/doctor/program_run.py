"""Runs the user's program under the doctor's instructions, and watches it from outside."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductoscope.doctor.finding import FailureFinding, claim_of, finding_in
from inductoscope.doctor.instructions import FOLDER, STOPPED, Instructions
from inductoscope.errors import ToolFailure
from inductoscope.launch.environment import private_cache, private_cache_without_scope
from inductoscope.launch.program import environment_for, record_ending, start_or_discard
from inductoscope.processes.children import start_group
from inductoscope.processes.ending import end_child
from inductoscope.processes.stack_signal import written_stacks
from inductoscope.processes.stacks import ask_for_stacks
from inductoscope.processes.status import is_alive
from inductoscope.recording.events import (
    CallsUnchecked,
    Check,
    ClaimMade,
    CompileEnd,
    CompileStart,
    Event,
    GraphState,
    Launched,
    ProcessEnd,
    Said,
)
from inductoscope.recording.layout import stream_paths
from inductoscope.recording.privacy import without_secrets
from inductoscope.recording.reader import StreamReader
from inductoscope.recording.writer import StreamWriter, describe_launcher
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

# What watches and judges a program is imported once that runs, while it loads torch itself.
if TYPE_CHECKING:
    from inductoscope.hangs.watch.scene import StallDiagnosis
    from inductoscope.hangs.watch.stall import Stall
    from inductoscope.model.entities import Ending

Say = Callable[[str], None]

_TICK = 0.25
_TIME_TO_WRITE = 0.1
# Someone who waits wants to hear something now and then.
_SILENCE = 15.0
_RUNNING = "the program is still running"
# How often a stalled process is asked for its stacks: what is on all of them loops.
_LOOKS = 12
_TIME_FOR_INPUT = 2.0
# How long the other processes of a program may go on once one of them has investigated.
_TIME_TO_END = 20.0
_OUTPUT = "output.txt"


def output_of(recording: Path) -> Path:
    """The file with everything that the program printed in the run that was recorded there."""
    return recording / FOLDER / _OUTPUT


@dataclass(frozen=True)
class ProgramRun:
    """How a run ended, and whether the doctor had to end it."""

    ending: Ending
    folder: Path
    stalled: bool = False
    over_time: bool = False
    # Ended because all calls that were to be checked had been made, and the user asked for that.
    calls_done: bool = False
    # Why it stalled, as seen from outside just before it was ended.
    diagnosis: StallDiagnosis | None = None

    @property
    def was_ended(self) -> bool:
        """Whether the doctor ended the program, whatever it was doing."""
        return self.stalled or self.over_time or self.calls_done

    @property
    def failed(self) -> bool:
        """Whether the program itself ended badly, rather than being ended by the doctor."""
        return self.ending.exit_code != 0 and not self.was_ended

    @property
    def ended_well(self) -> bool:
        """Whether the program ended by itself, with exit code 0."""
        return self.ending.exit_code == 0 and not self.was_ended

    @property
    def output(self) -> str:
        """The end of what the program printed."""
        with contextlib.suppress(OSError):
            data = output_of(self.folder).read_bytes()[-20000:]
            return data.decode("utf-8", "replace")
        return ""

    @property
    def finding(self) -> FailureFinding | None:
        """The failure that was found inside the program; None if there is none."""
        return finding_in(self.folder)

    def stacks_of(self, pid: int) -> str:
        """The last stacks that one of the program's processes wrote."""
        return written_stacks(self.folder, pid)


@dataclass(frozen=True)
class RunLimits:
    """When to end a run."""

    stall: float = 60.0
    seconds: float = 3600.0
    # Whether to end it once all calls that are to be checked have been made.
    stops_after_calls: bool = False


@dataclass(frozen=True)
class Listener:
    """Who wants to know how a run goes on."""

    say: Say
    # Called once the program has started.
    program_runs: Callable[[], None] = lambda: None
    # Called whenever something was claimed of the failure that is investigated.
    finding_grew: Callable[[FailureFinding], None] = lambda finding: None
    # Whether the examination is over, so that a run on another thread has to end.
    is_over: Callable[[], bool] = lambda: False


def run_program(
    command: Sequence[str],
    folder: Path,
    instructions: Instructions,
    *,
    cache: Path,
    stdin: Path | None,
    limits: RunLimits,
    listener: Listener,
) -> ProgramRun:
    """Run `command` to its end, or until it stalls; its output goes into the folder."""
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    inside = instructions.inside
    scope = environment_for(folder, os.environ, fresh=False) if inside else os.environ
    environment = {
        **scope,
        **private_cache(cache),
        # A workaround may change what is compiled without changing the keys of a cache.
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        **instructions.environment(),
        **({} if inside else private_cache_without_scope(cache)),
    }
    stream = StreamWriter(folder, first_event=describe_launcher)
    started = time.monotonic()
    with output_of(folder).open("wb") as output, _input(stdin) as given:
        child = start_or_discard(
            folder,
            lambda: start_group(command, environment=environment, stdin=given, stdout=output),
        )
        stream.emit(Launched(pid=child.pid, command=tuple(without_secrets(command))))
        why = _Why.INTERRUPTED
        followed = FollowedRun(folder, listener)
        try:
            listener.program_runs()
            why = _watch(child, followed, limits, is_checked=instructions.inside)
        finally:
            end_child(child)
            is_stopped = why is _Why.ENDED and child.returncode == STOPPED
            if is_stopped and finding_in(folder) is not None:
                why = _Why.FOUND
            seconds = time.monotonic() - started
            ending = record_ending(stream, child.pid, child.returncode, seconds, why.value)
    if why is _Why.INTERRUPTED:
        raise ToolFailure("The program was not run to its end: the examination was over.")
    was = (why is _Why.STALLED, why is _Why.OVER_TIME, why is _Why.CALLS_DONE)
    return ProgramRun(ending, folder, *was, followed.diagnosis)


class _Why(Enum):
    """Why a run was over."""

    ENDED = ""
    INTERRUPTED = "the examination was interrupted"
    STALLED = "it made no progress"
    OVER_TIME = "it reached the time limit"
    CALLS_DONE = "all calls that were to be checked had been made"
    FOUND = "it had found what is wrong"


@contextlib.contextmanager
def _input(stdin: Path | None) -> Iterator[Any]:
    """Every run of the program gets the same standard input."""
    if stdin is None:
        yield subprocess.DEVNULL
        return
    with stdin.open("rb") as file:
        yield file


def keep_stdin(folder: Path) -> Path | None:
    """Keep what is piped to the tool, for every run to read; None if there is nothing.

    A resumed examination uses what was piped to it at first.
    """
    path = folder / "stdin"
    # `sys.stdin` may be missing or closed.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        descriptor = sys.stdin.fileno()
        # A pipe that no one writes to: the program may not read it either.
        if _is_pipe_or_file(descriptor) and _has_input(descriptor, _TIME_FOR_INPUT):
            data = sys.stdin.buffer.read()
            if data:
                path.write_bytes(data)
    return path if path.exists() else None


def is_answerable() -> bool:
    """Check whether the tool's standard input is a terminal, or a pipe that was silent so far."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        descriptor = sys.stdin.fileno()
        # One that has ended can be read: there is nothing more to come.
        is_silent = _is_pipe_or_file(descriptor) and not _has_input(descriptor, 0)
        return sys.stdin.isatty() or is_silent
    return False


def _has_input(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _is_pipe_or_file(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _watch(
    child: subprocess.Popen[bytes], followed: FollowedRun, limits: RunLimits, *, is_checked: bool
) -> _Why:
    """Wait; pass on what the program's side says; end it if it stalls or takes too long."""
    from inductoscope.hangs.watch.stall import Stall, StallWatcher, patience_of_doctor

    watcher = StallWatcher(followed.folder, patience_of_doctor(limits.stall))
    started, investigated = time.monotonic(), 0.0
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_TICK)
        if followed.listener.is_over():
            return _Why.INTERRUPTED
        followed.look()
        if followed.is_investigated:
            investigated = time.monotonic()
            continue  # The investigation has its own limits.
        if not investigated and followed.finding.claims:
            investigated = time.monotonic()  # It was over before anyone looked.
        if investigated and time.monotonic() - investigated > _TIME_TO_END:
            return _Why.FOUND  # It is written; other processes wait for the one that found it.
        if time.monotonic() - started > limits.seconds:
            return _Why.OVER_TIME
        if limits.stops_after_calls and followed.is_complete:
            return _Why.CALLS_DONE
        if not investigated and time.monotonic() - followed.said > _SILENCE:
            followed.say(f"{followed}; {_RUNNING}" if is_checked else _RUNNING)
        stalls = [event for event in watcher.look() if isinstance(event, Stall)]
        if stalls:
            _ask_for_stacks(stalls)
            followed.diagnosis = stalls[0].judgement
            return _Why.STALLED
    followed.look()  # What was written last, and what was over before a look.
    return _Why.ENDED


def _ask_for_stacks(stalls: Sequence[Stall]) -> None:
    """Have the stalled processes write their stacks, several times.

    The pauses differ, so that a loop is not seen at the same point of its iteration each time.
    """
    for look in range(_LOOKS):
        for stall in stalls:
            ask_for_stacks(stall.pid)
        time.sleep(_TIME_TO_WRITE * (1 + look / 7))


_AGREE = ("right", "within-rounding")
_DISAGREE = ("wrong", "error")


class FollowedRun:
    """The recording of a running program as it grows: passes on what it says and finds."""

    def __init__(self, folder: Path, listener: Listener) -> None:
        self.folder, self.listener = folder, listener
        self._readers: dict[Path, StreamReader] = {}
        self._processes: dict[str, _Process] = {}
        self._verdicts: Counter[str] = Counter()
        self._investigator = 0
        self.finding = FailureFinding()
        self.diagnosis: StallDiagnosis | None = None
        # When something was said last.
        self.said = time.monotonic()

    def look(self) -> None:
        """Read what was written since the last time."""
        known = self.finding
        for path in stream_paths(self.folder):
            reader = self._readers.setdefault(path, StreamReader(path))
            process = self._processes.setdefault(reader.name, _Process())
            for entry in reader.read_new():
                process.take(entry.event)
                self._take(entry.event, reader.pid)
        if self.finding is not known:
            self.listener.finding_grew(self.finding)

    def _take(self, event: Event, pid: int) -> None:
        match event:
            case Check():
                self._verdicts[event.verdict] += 1
            case Said():
                self.say(event.text)
            case ClaimMade():
                claim = claim_of(vars(event))
                if claim is not None:
                    # The first claim is the program's own; a copy of it may make others.
                    self._investigator = self._investigator or pid
                    self.finding = FailureFinding((*self.finding.claims, claim))

    def say(self, text: str) -> None:
        """Pass something on."""
        self.listener.say(text)
        self.said = time.monotonic()

    @property
    def is_investigated(self) -> bool:
        """Whether a process of the program investigates now; others may wait for it for ever."""
        return bool(self._investigator) and is_alive(self._investigator)

    @property
    def is_complete(self) -> bool:
        """Whether the first calls of every graph that is in use have been checked."""
        running = [each for each in self._processes.values() if not each.has_ended]
        return any(each.has_gone_on for each in running) and all(
            each.is_complete for each in running
        )

    def __str__(self) -> str:
        checked = self._verdicts.total()
        if not checked:
            return "no call of a compiled graph has been checked yet"
        graphs = sum(len(process.graphs) for process in self._processes.values())
        said = f"{count_of(checked, 'call')} of {count_of(graphs, 'compiled graph')} checked"
        agree, disagree = (sum(self._verdicts[name] for name in s) for s in (_AGREE, _DISAGREE))
        if agree == checked:
            return f"{said}, all agree"
        counts = {
            "agree": agree,
            "differ": disagree,
            "could not be compared": checked - agree - disagree,
        }
        return f"{said} ({', '.join(f'{what}: {n}' for what, n in counts.items() if n)})"


@dataclass
class _Calls:
    """When a graph was first and last checked, by the number of the event."""

    first: int
    last: int
    # Whether it has been called more often than is checked.
    has_gone_on: bool = False


@dataclass
class _Process:
    """Graphs that one process of the program has compiled and called."""

    graphs: dict[str, _Calls] = field(default_factory=dict)
    has_ended: bool = False
    _compiling: set[str] = field(default_factory=set)
    # Graphs that are compiled, or being compiled, and have not been called.
    _new: set[str] = field(default_factory=set)
    _events: int = 0

    def take(self, event: Event) -> None:
        """Note what an event says."""
        self._events += 1
        match event:
            case CompileStart():
                self._compiling.add(event.compile)
            case GraphState(stage=stages.DYNAMO):
                self._new.add(event.compile)
            case CompileEnd():
                self._compiling.discard(event.compile)
                if event.outcome != "compiled":
                    self._new.discard(event.compile)
            case Check():
                self._new.discard(event.compile)
                calls = self.graphs.setdefault(event.compile, _Calls(self._events, self._events))
                calls.last = self._events
            case CallsUnchecked() if event.compile in self.graphs:
                self.graphs[event.compile].has_gone_on = True
            case ProcessEnd():
                self.has_ended = True

    @property
    def has_gone_on(self) -> bool:
        """Whether a graph has been called more often than is checked."""
        return any(calls.has_gone_on for calls in self.graphs.values())

    @property
    def is_complete(self) -> bool:
        """Whether no graph is waited for: none is new, and each has gone on or is out of use.

        One is out of use if another went through all its calls that are checked since: the program
        calls it once, or Dynamo has compiled the function again for other sizes.
        """
        if self._compiling or self._new:
            return False
        latest = max((each.first for each in self.graphs.values() if each.has_gone_on), default=0)
        return all(each.has_gone_on or each.last < latest for each in self.graphs.values())
