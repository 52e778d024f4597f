"""Runs the user's program under the doctor's instructions, and watches it from outside."""

from __future__ import annotations

import contextlib
import functools
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

from inductoscope.doctor.finding import Claim, FailureFinding, claim_of, if_any_failure
from inductoscope.doctor.instructions import FOLDER, STOPPED, Instructions
from inductoscope.errors import ToolFailure
from inductoscope.launch.environment import private_cache, private_cache_without_scope
from inductoscope.launch.program import environment_for, record_ending, start_or_discard
from inductoscope.model.fold import load
from inductoscope.processes.children import start_group
from inductoscope.processes.ending import end_child
from inductoscope.processes.stack_signal import written_stacks
from inductoscope.processes.stacks import ask_for_stacks
from inductoscope.processes.status import is_alive
from inductoscope.recording.events import (
    CallableCheck,
    CallsUnchecked,
    Check,
    ClaimMade,
    CompileEnd,
    CompileStart,
    Entry,
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

# The watcher and the judges are imported once the program runs, while it loads torch.
if TYPE_CHECKING:
    from inductoscope.hangs.watch.scene import StallDiagnosis
    from inductoscope.hangs.watch.stall import Stall
    from inductoscope.model.entities import Ending, Recording

Say = Callable[[str], None]

_TICK = 0.25
_TIME_TO_WRITE = 0.1
# Seconds between progress messages.
_SILENCE = 15.0
_RUNNING = "the program is still running"
# The number of stacks requested from a stalled process; functions on all of them are looping.
_LOOKS = 12
_TIME_FOR_INPUT = 2.0
# Seconds for the program's other processes to go on after one of them has investigated.
_TIME_TO_END = 20.0
_OUTPUT = "output.txt"


def output_of(recording: Path) -> Path:
    return recording / FOLDER / _OUTPUT


@dataclass(frozen=True)
class ProgramRun:
    """The outcome of a run, and whether the doctor had to end it."""

    ending: Ending
    folder: Path
    stalled: bool = False
    over_time: bool = False
    # Ended on the user's request once all calls to be checked had been made.
    calls_done: bool = False
    # The stalls, as seen from outside just before the run was ended.
    diagnosis: StallDiagnosis | None = None
    # The failure found inside the program; None if there is none.
    finding: FailureFinding | None = None

    @property
    def was_ended(self) -> bool:
        """Whether the doctor ended the program."""
        return self.stalled or self.over_time or self.calls_done

    @property
    def failed(self) -> bool:
        """Whether the program itself failed, instead of being ended by the doctor."""
        return self.ending.exit_code != 0 and not self.was_ended

    @property
    def ended_well(self) -> bool:
        """Whether the program ended by itself, with exit code 0."""
        return self.ending.exit_code == 0 and not self.was_ended

    @property
    def output(self) -> str:
        """The end of the program's output."""
        with contextlib.suppress(OSError):
            data = output_of(self.folder).read_bytes()[-20000:]
            return data.decode("utf-8", "replace")
        return ""

    @functools.cached_property
    def recording(self) -> Recording:
        """The recording, which is complete."""
        return load(self.folder)

    @property
    def functions_that_differ(self) -> list[CallableCheck]:
        """Compiled functions that gave a different result from their Python code."""
        checks = self.recording.callable_checks
        return [check for check in checks if check.verdict == "differs"]

    def stacks_of(self, pid: int) -> str:
        """Return the last stacks that one of the program's processes wrote."""
        return written_stacks(self.folder, pid)


@dataclass(frozen=True)
class RunLimits:
    stall: float = 60.0
    seconds: float = 3600.0
    # Whether to end the run once all calls to be checked have been made.
    stops_after_calls: bool = False


@dataclass(frozen=True)
class Listener:
    say: Say
    # Called once the program has started.
    on_started: Callable[[], None] = lambda: None
    # Called with the finding whenever there is a new claim.
    finding_grew: Callable[[FailureFinding], None] = lambda finding: None
    # Returns whether the examination is over, so that a run on another thread has to end.
    is_over: Callable[[], bool] = lambda: False


def run_watched(
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
    (folder / FOLDER).mkdir(exist_ok=True)
    inside = instructions.inside
    scope = environment_for(folder, os.environ, fresh=False) if inside else os.environ
    environment = {**scope, **cache_variables(cache, inside=inside), **instructions.environment()}
    stream = StreamWriter(folder, first_event=describe_launcher)
    started = time.monotonic()
    with output_of(folder).open("wb") as output, _input(stdin) as given:
        child = start_or_discard(
            folder,
            lambda: start_group(command, environment=environment, stdin=given, stdout=output),
        )
        stream.emit(Launched(pid=child.pid, command=tuple(without_secrets(command))))
        reason = _EndReason.INTERRUPTED
        followed = FollowedRun(folder, listener)
        try:
            listener.on_started()
            reason = _watch(child, followed, limits, is_checked=instructions.inside)
        finally:
            end_child(child)
            if reason is not _EndReason.INTERRUPTED:
                followed.look(is_last=True)  # Nothing writes any more, so no claim is missed.
            finding = if_any_failure(followed.finding)
            is_stopped = reason is _EndReason.ENDED and child.returncode == STOPPED
            if is_stopped and finding is not None:
                reason = _EndReason.FOUND
            seconds = time.monotonic() - started
            ending = record_ending(stream, child.pid, child.returncode, seconds, reason.value)
    if reason is _EndReason.INTERRUPTED:
        raise ToolFailure("The program was not run to its end: the examination was over.")
    return ProgramRun(
        ending,
        folder,
        stalled=reason is _EndReason.STALLED,
        over_time=reason is _EndReason.OVER_TIME,
        calls_done=reason is _EndReason.CALLS_DONE,
        diagnosis=followed.diagnosis,
        finding=finding,
    )


def cache_variables(cache: Path, *, inside: bool) -> dict[str, str]:
    """Return variables for a private cache of binaries, without cached results of compiles.

    A workaround may change generated code without changing cache keys.
    """
    return {
        **private_cache(cache),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        **({} if inside else private_cache_without_scope(cache)),
    }


class _EndReason(Enum):
    ENDED = ""
    INTERRUPTED = "the examination was interrupted"
    STALLED = "it made no progress"
    OVER_TIME = "it reached the time limit"
    CALLS_DONE = "all calls that were to be checked had been made"
    FOUND = "it had found what is wrong"


@contextlib.contextmanager
def _input(stdin: Path | None) -> Iterator[Any]:
    """Open the standard input for a run, the same for every run."""
    if stdin is None:
        yield subprocess.DEVNULL
        return
    with stdin.open("rb") as file:
        yield file


def keep_stdin(folder: Path) -> Path | None:
    """Store the tool's piped standard input for every run to read; None if there is none.

    A resumed examination uses the input that was piped to it originally.
    """
    path = folder / "stdin"
    # `sys.stdin` may be missing or closed.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        descriptor = sys.stdin.fileno()
        # A silent pipe: the program may not read it, either.
        if _is_pipe_or_file(descriptor) and _has_input(descriptor, _TIME_FOR_INPUT):
            data = sys.stdin.buffer.read()
            if data:
                path.write_bytes(data)
    return path if path.exists() else None


def is_answerable() -> bool:
    """Check whether the tool's standard input is a terminal, or a pipe without data so far."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        descriptor = sys.stdin.fileno()
        # A pipe at EOF is readable, and nothing more will come.
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
) -> _EndReason:
    """Wait for the program, pass on its messages, and end it if it stalls or takes too long."""
    from inductoscope.hangs.watch.stall import Stall, StallWatcher, patience_of_doctor

    watcher = StallWatcher(followed.folder, patience_of_doctor(limits.stall))
    started, investigated = time.monotonic(), 0.0
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_TICK)
        if followed.listener.is_over():
            return _EndReason.INTERRUPTED
        followed.look()
        if followed.is_investigated:
            investigated = time.monotonic()
            continue  # The investigation has its own limits.
        if not investigated and followed.finding.claims:
            investigated = time.monotonic()  # The investigation ended between two looks.
        if investigated and time.monotonic() - investigated > _TIME_TO_END:
            return _EndReason.FOUND  # The finding is written; other processes may hang.
        if time.monotonic() - started > limits.seconds:
            return _EndReason.OVER_TIME
        if limits.stops_after_calls and followed.is_complete:
            return _EndReason.CALLS_DONE
        if not investigated and time.monotonic() - followed.said > _SILENCE:
            followed.say(f"{followed}; {_RUNNING}" if is_checked else _RUNNING)
        stalls = [event for event in watcher.look() if isinstance(event, Stall)]
        if stalls:
            _ask_for_stacks(stalls)
            followed.diagnosis = stalls[0].judgement
            return _EndReason.STALLED
    return _EndReason.ENDED


def _ask_for_stacks(stalls: Sequence[Stall]) -> None:
    """Have the stalled processes write their stacks several times.

    The pauses differ, so that a loop is not sampled at the same point of each iteration.
    """
    for look in range(_LOOKS):
        for stall in stalls:
            ask_for_stacks(stall.pid)
        time.sleep(_TIME_TO_WRITE * (1 + look / 7))


_AGREE = ("right", "within-rounding")
_DISAGREE = ("wrong", "error")


class FollowedRun:
    """The growing recording of a running program, whose messages and findings are passed on."""

    def __init__(self, folder: Path, listener: Listener) -> None:
        self.folder, self.listener = folder, listener
        self._readers: dict[Path, StreamReader] = {}
        self._processes: dict[str, _Process] = {}
        self._verdicts: Counter[str] = Counter()
        self._investigator = 0
        self._claims: list[tuple[float, Claim]] = []
        self.finding = FailureFinding()
        self.diagnosis: StallDiagnosis | None = None
        # The time of the last message.
        self.said = time.monotonic()

    def look(self, *, is_last: bool = False) -> None:
        """Read the events written since the last look; the last one includes incomplete lines."""
        known = len(self._claims)
        for path in stream_paths(self.folder):
            reader = self._readers.setdefault(path, StreamReader(path))
            process = self._processes.setdefault(reader.name, _Process())
            for entry in reader.read() if is_last else reader.read_new():
                process.take(entry.event)
                self._take(entry, reader.pid)
        if len(self._claims) > known:
            # Several processes may make claims, of which the latest counts.
            self._claims.sort(key=lambda timed: timed[0])
            self.finding = FailureFinding(tuple(claim for _, claim in self._claims))
            self.listener.finding_grew(self.finding)

    def _take(self, entry: Entry[Event], pid: int) -> None:
        match entry.event:
            case Check():
                self._verdicts[entry.event.verdict] += 1
            case Said():
                self.say(entry.event.text)
            case ClaimMade():
                claim = claim_of(vars(entry.event))
                if claim is not None:
                    # The first claim comes from the program itself; copies of it may make others.
                    self._investigator = self._investigator or pid
                    self._claims.append((entry.time, claim))

    def say(self, text: str) -> None:
        self.listener.say(text)
        self.said = time.monotonic()

    @property
    def is_investigated(self) -> bool:
        """Whether a process of the program is investigating, for which others may wait."""
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
            "agreed": agree,
            "differed": disagree,
            "could not be compared": checked - agree - disagree,
        }
        return f"{said}: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}"


@dataclass
class _Calls:
    """The numbers of the events of a graph's first and last check."""

    first: int
    last: int
    # Whether the graph has been called more often than calls are checked.
    has_gone_on: bool = False


@dataclass
class _Process:
    """Graphs that one process of the program has compiled and called."""

    graphs: dict[str, _Calls] = field(default_factory=dict)
    has_ended: bool = False
    _compiling: set[str] = field(default_factory=set)
    # Graphs that are compiled but not called yet, and those being compiled.
    _new: set[str] = field(default_factory=set)
    _events: int = 0

    def take(self, event: Event) -> None:
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
        """Whether any graph has been called more often than calls are checked."""
        return any(calls.has_gone_on for calls in self.graphs.values())

    @property
    def is_complete(self) -> bool:
        """Whether all checks are done: no graph is new, and each has gone on or is out of use.

        A graph is out of use if, since its last call, another went through all its checked calls:
        the program called it once, or Dynamo has recompiled the function for other sizes.
        """
        if self._compiling or self._new:
            return False
        latest = max((each.first for each in self.graphs.values() if each.has_gone_on), default=0)
        return all(each.has_gone_on or each.last < latest for each in self.graphs.values())
