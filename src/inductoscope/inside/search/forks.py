"""Runs work in forks of this process, several in parallel, each under limits.

A fork has torch and the compiler loaded, custom operators registered and the program's tensors in
memory, so a candidate costs no more than its compile. A fork may crash, hang or run out of memory
without harm to its parent. It sends events while it works, so that the last one tells where it
died.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.hang_limits import ForkProgress, HangPatience
from inductoscope.inside.search.program_state import current_state
from inductoscope.model.process_position import OpenStages, ProcessPosition
from inductoscope.processes.ending import end_fork
from inductoscope.processes.limits import die_with_parent, limit_resources, own_memory
from inductoscope.processes.memory import KILLED_FIRST
from inductoscope.processes.status import cpu_seconds, delayed_seconds, group_members, own_cores
from inductoscope.recording.codec import encode
from inductoscope.recording.events import (
    CompileFailed,
    Entry,
    Event,
    KernelLaunched,
    LoweredNode,
    NativeEnd,
    NativeStart,
    StageEnd,
    StageStart,
    read_entry,
    written_fields,
)

Work = Callable[[], Any]

# Forks that use a GPU at the same time share its memory.
WORKERS_ON_GPU = 4
_MOST_GUESSES = 4
# Bytes that a fork may allocate in addition to what its parent has.
_MORE_MEMORY = 16 << 30
# Seconds beyond its time limit that a fork may wait for other processes.
_PATIENCE = 120.0
# A fork that has been idle for so many seconds is stuck.
_IDLE = 2.0
_LOOK_EVERY = 0.2


# --- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForkUse:
    """Processor seconds that a fork has used, and seconds it has waited for a processor."""

    cpu: float
    # None if the system does not report it.
    delayed: float | None
    # Processor seconds of the child that has used the most.
    slowest_child: float = 0.0


@dataclass
class ForkAnswer:
    result: Any = None
    error: str = ""
    signal: int | None = None
    timed_out: bool = False
    # Killed before its time limit, because it made no progress.
    is_stuck: bool = False
    is_done: bool = False
    entries: list[Entry[Event]] = field(default_factory=list)
    started: float = 0.0
    seconds: float = 0.0
    # Seconds until the fork entered its last stage, which is where it hangs if it does.
    entered_at: float = 0.0
    # Messages of the work to its parent besides events.
    notes: list[dict[str, Any]] = field(default_factory=list)
    # Resources that a killed fork had used by then.
    used: ForkUse | None = None

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]

    @property
    def launches(self) -> list[tuple[str, float]]:
        """The launched kernels, each with the seconds from the start of the fork to its launch."""
        return [
            (entry.event.kernel, entry.time - self.started)
            for entry in self.entries
            if isinstance(entry.event, KernelLaunched)
        ]

    @property
    def last_stage(self) -> Entry[StageStart] | None:
        """The last stage that the fork entered and did not leave."""
        position = ProcessPosition(OpenStages(names_threads=True))
        for entry in self.entries:
            position.take(entry)
        return position.stages.all[-1] if position.stages else None

    def take(self, message: dict[str, Any]) -> None:
        """Add what the fork says."""
        kind = message.get("kind")
        if kind == "result":
            self.result, self.is_done = message.get("result"), True
        elif kind == "failed":
            self.error = message.get("error", "")
        elif kind == "note":
            self.notes.append(message)
        elif isinstance(kind, str):
            self.entries.append(read_entry("", dict(message)))

    def end(self) -> None:
        """Note the time at which the fork ended."""
        self.seconds = time.monotonic() - self.started
        last = self.last_stage
        self.entered_at = last.time - self.started if last else 0.0


# --- the parent -----------------------------------------------------------------------------------


class Forks:
    """A pool of forks, `workers` at once."""

    # Whether all work is done on this machine, so that times can be compared.
    is_here = True

    def __init__(
        self, *, workers: int | None = None, seconds: float = 60.0, uses_gpu: bool = False
    ) -> None:
        most = workers or len(own_cores())
        self.workers = self.workers_here = min(most, WORKERS_ON_GPU) if uses_gpu else most
        self.seconds = seconds
        self.uses_gpu = uses_gpu
        # In the search for a hang: kills forks without progress, long before their time limit.
        self.patience: HangPatience | None = None
        self.count = 0

    @property
    def guesses(self) -> int:
        """The most pieces of work to submit at once, some of which may turn out unneeded.

        All of them are created before the first one starts.
        """
        return min(self.workers, _MOST_GUESSES) if can_fork() else 1

    def ask(self, work: Work, *, seconds: float | None = None) -> ForkAnswer:
        return self.ask_all([work], seconds=seconds)[0]

    def ask_all(self, works: Sequence[Work], *, seconds: float | None = None) -> list[ForkAnswer]:
        """Run all work, and return the answers in the same order."""
        answers = dict(self.as_done(works, seconds=seconds))
        return [answers[number] for number in range(len(works))]

    def as_done(
        self, works: Sequence[Work], *, seconds: float | None = None
    ) -> Iterator[tuple[int, ForkAnswer]]:
        """Yield answers as they arrive, with the number of their work; closing this kills the rest.

        Work starts only when a worker is free, because the caller may stop before the last answer.
        """
        limit = seconds or self.seconds
        waiting = deque(enumerate(works))
        running: dict[int, RunningFork] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.workers_here and can_fork():
                    number, work = waiting.popleft()
                    self.count += 1
                    running[number] = _start(work, uses_gpu=self.uses_gpu)
                if not running:
                    number, work = waiting.popleft()
                    self.count += 1
                    yield number, answer_without_fork(work)
                    continue
                wait([fork.reading for fork in running.values()], _LOOK_EVERY)
                for number, fork in list(running.items()):
                    others = [each.progress for each in running.values() if each is not fork]
                    answer = self._answer_of(fork, others, limit)
                    if answer is not None:
                        del running[number]
                        yield number, answer
        finally:
            for fork in running.values():
                end_fork(fork.pid)
                os.close(fork.reading)

    def _answer_of(
        self, fork: RunningFork, others: Sequence[ForkProgress], limit: float
    ) -> ForkAnswer | None:
        """Return the answer of a fork that has ended, or is killed for being late; else None."""
        has_ended, now, patience = fork.read(), time.monotonic(), self.patience
        is_stuck, used = False, None
        if has_ended:
            status = os.waitpid(fork.pid, 0)[1]
        else:
            if now < fork.next_look:
                return None
            fork.next_look = now + _LOOK_EVERY
            if patience is not None:
                is_stuck = patience.is_over(fork.pid, fork.progress, others, now)
            if not is_stuck and not is_late(fork, now, limit):
                return None
            used = _use_of(fork.pid)
            end_fork(fork.pid)
        os.close(fork.reading)
        answer = fork.answer
        answer.end()
        answer.timed_out, answer.is_stuck, answer.used = not has_ended, is_stuck, used
        if has_ended and os.WIFSIGNALED(status):
            answer.signal = os.WTERMSIG(status)
        elif has_ended and not answer.is_done and not answer.error:
            answer.error = f"the process ended with exit code {os.waitstatus_to_exitcode(status)}"
        if self.patience is not None and answer.is_done:
            self.patience.learn(fork.progress)
        return answer


@dataclass
class RunningFork:
    pid: int
    started: float
    reading: int = -1
    # The time of the next look at its processes, and since when all of them have been idle.
    next_look: float = 0.0
    idle_since: float | None = None
    answer: ForkAnswer = field(init=False)
    progress: ForkProgress = field(init=False)
    # The beginning of a message, of which the end has not arrived.
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self.answer = ForkAnswer(started=self.started)
        self.progress = ForkProgress(self.started)

    def read(self) -> bool:
        """Read the pipe; return whether it has reached end of file."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reading, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    # A fork that a kernel has damaged may write anything.
                    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                        message = json.loads(line)
                        self.answer.take(message)
                        self.progress.take(message)
            return True
        return False


def _start(work: Work, *, uses_gpu: bool) -> RunningFork:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    sys.stdout.flush()
    sys.stderr.flush()
    # Existing objects are exempt from garbage collection in the fork, which would otherwise
    # copy all of their memory.
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about forks of threaded processes.
        pid = os.fork()
    if pid == 0:
        _be_child(work, writing, uses_gpu=uses_gpu)
    gc.unfreeze()
    os.close(writing)
    return RunningFork(pid, time.monotonic(), reading)


def _use_of(pid: int) -> ForkUse:
    others = [member.cpu_seconds for member in group_members(pid) if member.pid != pid]
    return ForkUse(cpu_seconds(pid), delayed_seconds(pid), max(others, default=0.0))


def is_late(fork: RunningFork, now: float, limit: float) -> bool:
    """Check whether a fork has used up its time; on a busy machine, also its processor time.

    A fork that waits for something idle, such as a hanging compiler, does not wait for a
    processor, so the time limit applies.
    """
    seconds = now - fork.started
    if seconds < limit:
        return False
    if cpu_seconds(fork.pid) > limit / 2 or seconds > min(4 * limit, limit + _PATIENCE):
        return True
    if is_ready(fork.pid):
        fork.idle_since = None
        return False
    fork.idle_since = fork.idle_since or now
    return now - fork.idle_since > _IDLE


def longest_wait(limit: float) -> float:
    """Return the seconds after which a fork with this limit is over in any case."""
    return limit + _PATIENCE + _IDLE


def is_ready(group: int) -> bool:
    """Check whether a process of the group is running, runnable or waiting for disk."""
    return any(member.state in "RD" for member in group_members(group))


def can_fork() -> bool:
    """Check whether this process can be forked; an initialised CUDA context cannot."""
    return not torch.cuda.is_initialized()


def answer_without_fork(work: Work) -> ForkAnswer:
    """Do the work in this process, which a crash or a hang would end too."""
    answer = ForkAnswer(started=time.monotonic())
    with tempfile.TemporaryFile() as file:
        with SCOPE.redirected(PipeWriter(file.fileno())):
            _do_on_own_thread(work, file.fileno())
        file.seek(0)
        for line in file:
            with contextlib.suppress(ValueError):  # A message is cut short by a full disk.
                answer.take(json.loads(line))
    answer.end()
    return answer


# --- the child ------------------------------------------------------------------------------------


class PipeWriter:
    """A recording stream in a fork, which sends the parent the events that show progress."""

    stopped: str | None = None
    KINDS = (StageStart, StageEnd, CompileFailed, NativeStart, NativeEnd, KernelLaunched)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._texts: dict[str, str] = {}

    def emit(self, event: Event) -> None:
        """Send an event if its kind is one that the parent reads."""
        if isinstance(event, LoweredNode):
            self.note(node=event.node)  # A node is progress, even within one long stage.
        if isinstance(event, self.KINDS):
            fields = {
                name: self._texts.get(str(value), value)
                for name, value in written_fields(event).items()
            }
            self._send(event.kind, fields)

    def note(self, **what: Any) -> None:
        """Send the parent a message that is no event."""
        self._send("note", what)

    def _send(self, kind: str, fields: dict[str, Any]) -> None:
        # The time, by a clock that parent and child share, and what the child has used of it.
        clocks = {"t": time.monotonic(), "cpu": time.process_time()}
        _send(self._descriptor, {"kind": kind, **clocks, **fields})

    def payload(self, text: str) -> str:
        """Keep a text until the event that refers to it is sent."""
        key = f"payload {len(self._texts)}"
        self._texts[key] = text[:20000]
        return key

    def close(self) -> None:
        """Nothing to close."""


def _send(descriptor: int, message: dict[str, Any]) -> None:
    data = json.dumps(message, default=encode).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _be_child(work: Work, writing: int, *, uses_gpu: bool) -> None:
    """Do the work and exit; never return into the forked program."""
    try:
        _limit_self(uses_gpu=uses_gpu)
        SCOPE.redirect(PipeWriter(writing))
        _do_on_own_thread(work, writing)
    finally:
        os._exit(0)


def _do_on_own_thread(work: Work, writing: int) -> None:
    """Do the work on a new thread with this one's settings, as Dynamo may be in a frame here."""
    state, context = current_state(), contextvars.copy_context()
    on_stream: Any = contextlib.nullcontext()  # Asking for a stream would initialise CUDA.
    if torch.cuda.is_initialized():
        on_stream = torch.cuda.stream(torch.cuda.current_stream())

    def do() -> None:
        try:
            with on_stream, state.entered():
                _send(writing, {"kind": "result", "result": work()})
        except BaseException as error:
            text = "".join(traceback.format_exception(error))[-4000:]
            _send(writing, {"kind": "failed", "error": text})

    worker = threading.Thread(target=context.run, args=(do,))
    worker.start()
    worker.join()


def _limit_self(*, uses_gpu: bool) -> None:
    os.setpgid(0, 0)
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    with contextlib.suppress(OSError):  # If memory runs out, not the program dies, but its fork.
        Path("/proc/self/oom_score_adj").write_text(KILLED_FIRST)
    # CUDA reserves far more addresses than it uses.
    limit_resources(memory=None if uses_gpu else own_memory() + _MORE_MEMORY)
