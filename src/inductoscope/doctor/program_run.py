"""Runs the user's program under the doctor's instructions, and watches it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductoscope.doctor.instructions import (
    FINDING,
    FOLDER,
    INVESTIGATING,
    PROGRESS,
    STOPPED,
    Instructions,
)
from inductoscope.errors import ToolFailure
from inductoscope.inside import private_cache
from inductoscope.inside.scope import describe_launcher
from inductoscope.launch.program import environment_for, record_ending, start_or_discard
from inductoscope.processes.children import start_group
from inductoscope.processes.ending import end_child
from inductoscope.processes.stack_signal import written_stacks
from inductoscope.processes.stacks import ask_for_stacks
from inductoscope.processes.status import is_alive
from inductoscope.recording.events import Launched
from inductoscope.recording.privacy import without_secrets
from inductoscope.recording.writer import StreamWriter

# What watches and judges a program is imported once that runs, while it loads torch itself.
if TYPE_CHECKING:
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


def _do_nothing() -> None:
    pass


@dataclass(frozen=True)
class Listener:
    """Who wants to know how a run goes on."""

    say: Say
    # Called once the program has started.
    program_runs: Callable[[], None] = _do_nothing
    # Called again and again while something that was found is investigated.
    investigation_runs: Callable[[], None] = _do_nothing
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
    scope = (
        environment_for(folder, os.environ, fresh=False)
        if instructions.inside
        else dict(os.environ)
    )
    environment = {
        **scope,
        **private_cache.environment(cache),
        # A workaround may change what is compiled without changing the keys of a cache.
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        **instructions.environment(),
        **({} if instructions.inside else private_cache.without_scope(cache)),
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
        try:
            listener.program_runs()
            why = _watch(child, folder, limits, listener, started, is_checked=instructions.inside)
        finally:
            end_child(child)
            if why is _Why.ENDED and child.returncode == STOPPED and _has_found(folder):
                why = _Why.FOUND
            seconds = time.monotonic() - started
            ending = record_ending(stream, child.pid, child.returncode, seconds, why.value)
    if why is _Why.INTERRUPTED:
        raise ToolFailure("The program was not run to its end: the examination was over.")
    return ProgramRun(
        ending, folder, why is _Why.STALLED, why is _Why.OVER_TIME, why is _Why.CALLS_DONE
    )


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
    data = _piped()
    if data:
        path.write_bytes(data)
    return path if path.exists() else None


def _piped() -> bytes | None:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    try:
        descriptor = sys.stdin.fileno()
        if not _is_pipe_or_file(descriptor):
            return None
        if not select.select([descriptor], [], [], _TIME_FOR_INPUT)[0]:
            return None  # A pipe that no one writes to: the program may not read it either.
        return sys.stdin.buffer.read()
    except (OSError, ValueError):
        return None


def is_answerable() -> bool:
    """Whether the tool's standard input is a terminal, or a pipe that was silent so far."""
    try:
        descriptor = sys.stdin.fileno()
        # One that has ended can be read: there is nothing more to come.
        has_ended = bool(select.select([descriptor], [], [], 0)[0])
        return sys.stdin.isatty() or (_is_pipe_or_file(descriptor) and not has_ended)
    except (AttributeError, OSError, ValueError):
        return False


def _is_pipe_or_file(descriptor: int) -> bool:
    import stat

    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _watch(
    child: subprocess.Popen[bytes],
    folder: Path,
    limits: RunLimits,
    listener: Listener,
    started: float,
    *,
    is_checked: bool,
) -> _Why:
    """Wait; pass on what the program's side says; end it if it stalls or takes too long."""
    from inductoscope.doctor.checked_so_far import CheckedSoFar
    from inductoscope.doctor.stall_evidence import keep_diagnosis
    from inductoscope.hangs.watch.stall import Stall, StallWatcher, patience_of_doctor

    progress = ProgressFile(folder / FOLDER / PROGRESS, listener.say)
    watcher = StallWatcher(folder, patience_of_doctor(limits.stall))
    checked, said = CheckedSoFar(folder), time.monotonic()
    investigated = 0.0
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_TICK)
        if listener.is_over():
            return _Why.INTERRUPTED
        progress.pass_on()
        if _is_investigated(folder):
            listener.investigation_runs()
            investigated = time.monotonic()
            continue  # The investigation has its own limits.
        if not investigated and _has_found(folder):
            investigated = time.monotonic()  # It was over before anyone looked.
        if investigated and time.monotonic() - investigated > _TIME_TO_END:
            return _Why.FOUND  # It is written; other processes wait for the one that found it.
        if time.monotonic() - started > limits.seconds:
            return _Why.OVER_TIME
        checked.look()
        if limits.stops_after_calls and checked.is_complete:
            return _Why.CALLS_DONE
        if not investigated and time.monotonic() - max(said, progress.said) > _SILENCE:
            said = time.monotonic()
            listener.say(f"{checked}; the program is still running" if is_checked else _RUNNING)
        stalls = [event for event in watcher.look() if isinstance(event, Stall)]
        if stalls:
            _ask_for_stacks(stalls)
            keep_diagnosis(stalls[0], folder)
            return _Why.STALLED
    progress.pass_on()
    if _has_found(folder):
        listener.investigation_runs()  # What was written last, and what was over before a look.
    return _Why.ENDED


def _has_found(folder: Path) -> bool:
    """Whether something was found: a program may use that exit code for itself."""
    return (folder / FOLDER / FINDING).exists()


def _is_investigated(folder: Path) -> bool:
    """Whether a process of the program investigates now; others may wait for it for ever."""
    try:
        return is_alive(int((folder / FOLDER / INVESTIGATING).read_text()))
    except (OSError, ValueError):
        return False


def _ask_for_stacks(stalls: Sequence[Stall]) -> None:
    """Have the stalled processes write their stacks, several times.

    The pauses differ, so that a loop is not seen at the same point of its iteration each time.
    """
    for look in range(_LOOKS):
        for stall in stalls:
            ask_for_stacks(stall.pid)
        time.sleep(_TIME_TO_WRITE * (1 + look / 7))


class ProgressFile:
    """Lines that the doctor's part inside the program writes while it runs."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say, self._read = path, say, 0
        # When something was passed on last.
        self.said = 0.0

    def pass_on(self) -> None:
        """Say what was written since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole, newline, _ = data.rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._say(str(json.loads(line)["text"]))
                self.said = time.monotonic()
