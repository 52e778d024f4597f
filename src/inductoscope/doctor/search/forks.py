"""Runs work in forks of this process, several at once, each under limits.

A fork has torch and the compiler loaded, custom operators registered and the program's tensors in
memory, so a candidate costs no more than its compile. A fork may crash, hang or run out of memory
without harm to its parent. It sends back events while it works, so that the last one says where it
died.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import json
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.search.fork_pipe import PipeWriter, send
from inductoscope.doctor.search.hang_limits import ForkProgress, HangPatience
from inductoscope.doctor.search.torch_state import TorchState, current_state
from inductoscope.model.position import OpenStages, ProcessPosition
from inductoscope.processes.ending import end_fork
from inductoscope.processes.own_limits import die_with_parent, limit_resources, own_memory
from inductoscope.processes.status import cpu_seconds, delayed_seconds, group_members
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.checking import KernelLaunched
from inductoscope.recording.events.compiling import StageStart
from inductoscope.recording.events.reading import Entry, read_entry

Work = Callable[[], Any]

# Forks that use a GPU at the same time share its memory.
WORKERS_ON_GPU = 4
# Bytes that a fork may allocate in addition to what its parent has.
_MORE_MEMORY = 16 << 30
# Seconds beyond its time limit that a fork may wait for other processes.
_PATIENCE = 120.0
# A fork that has been idle for so many seconds is stuck.
_IDLE = 2.0


@dataclass(frozen=True)
class ForkUse:
    """Seconds of processors that a fork has used, and that it has waited for one."""

    cpu: float
    # None where the system does not say.
    delayed: float | None
    # Of the child process that has used most.
    slowest_child: float = 0.0


@dataclass
class ForkAnswer:
    """The result of one piece of work."""

    result: Any = None
    error: str = ""
    signal: int | None = None
    timed_out: bool = False
    # Ended before its time was over, because it got nowhere.
    is_stuck: bool = False
    is_done: bool = False
    entries: list[Entry[Event]] = field(default_factory=list)
    started: float = 0.0
    seconds: float = 0.0
    # Seconds until it entered its last stage, which is where it hangs if it does.
    entered_at: float = 0.0
    # What the work wanted its parent to know besides events.
    notes: list[dict[str, Any]] = field(default_factory=list)
    # Of a fork that was ended: what it had used by then.
    used: ForkUse | None = None

    @property
    def events(self) -> list[Event]:
        """What happened in the fork."""
        return [entry.event for entry in self.entries]

    @property
    def launched_at(self) -> float:
        """Seconds until the last kernel was launched."""
        times = [entry.time for entry in self.entries if isinstance(entry.event, KernelLaunched)]
        return times[-1] - self.started if times else 0.0

    @property
    def last_stage(self) -> Entry[StageStart] | None:
        """The last stage that the fork entered and did not leave."""
        position = ProcessPosition(OpenStages(names_threads=True))
        for entry in self.entries:
            position.take(entry)
        return position.stages.all[-1] if position.stages else None


@dataclass
class _RunningFork:
    pid: int
    number: int
    started: float
    text: bytes = b""
    # Since when it and all its children have been idle.
    idle_since: float | None = None
    progress: ForkProgress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = ForkProgress(self.started)

    def take(self, data: bytes) -> None:
        """What it has sent."""
        self.text += data
        self.progress.take(data)


class Forks:
    """Runs work in forks, `workers` at once."""

    def __init__(
        self, *, workers: int | None = None, seconds: float = 60.0, uses_gpu: bool = False
    ) -> None:
        most = workers or max(1, len(_own_cores()))
        self.workers = min(most, WORKERS_ON_GPU) if uses_gpu else most
        self.seconds = seconds
        self.uses_gpu = uses_gpu
        # While a hang is searched for: ends forks that get nowhere, long before their time is over.
        self.patience: HangPatience | None = None
        self.count = 0

    def ask(self, work: Work, *, seconds: float | None = None) -> ForkAnswer:
        """Run one piece of work."""
        return self.ask_all([work], seconds=seconds)[0]

    def ask_all(self, works: Sequence[Work], *, seconds: float | None = None) -> list[ForkAnswer]:
        """Run all, and return the answers in the same order."""
        answers: list[ForkAnswer] = [ForkAnswer() for _ in works]
        for number, answer in self.as_done(works, seconds=seconds):
            answers[number] = answer
        return answers

    def as_done(
        self, works: Sequence[Work], *, seconds: float | None = None
    ) -> Iterator[tuple[int, ForkAnswer]]:
        """Answers as they arrive, each with the number of its work; closing this ends the rest."""
        if not can_fork():
            yield from self._one_by_one(works)
            return
        limit = seconds or self.seconds
        waiting = list(enumerate(works))
        running: dict[int, _RunningFork] = {}
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or running:
                    while waiting and len(running) < self.workers:
                        number, work = waiting.pop(0)
                        reading, child = self._start(number, work)
                        running[reading] = child
                        selector.register(reading, selectors.EVENT_READ)
                    yield from self._collect(selector, running, limit)
            finally:
                for reading, child in running.items():
                    end_fork(child.pid)
                    os.close(reading)

    def _one_by_one(self, works: Sequence[Work]) -> Iterator[tuple[int, ForkAnswer]]:
        """Without forks: in this process, which a crash or a hang would end too."""
        for number, work in enumerate(works):
            self.count += 1
            yield number, _answer_here(work)

    def _start(self, number: int, work: Work) -> tuple[int, _RunningFork]:
        self.count += 1
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Existing objects are exempt from garbage collection in the fork, which would otherwise
        # copy all of their memory.
        gc.freeze()
        pid = os.fork()
        if pid:
            gc.unfreeze()
        if pid == 0:
            _be_child(work, writing, uses_gpu=self.uses_gpu)
        os.close(writing)
        return reading, _RunningFork(pid, number, time.monotonic())

    def _collect(
        self, selector: selectors.BaseSelector, running: dict[int, _RunningFork], limit: float
    ) -> Iterator[tuple[int, ForkAnswer]]:
        ready = {key.fd for key, _ in selector.select(timeout=0.2)}
        now = time.monotonic()
        for reading, child in list(running.items()):
            data = os.read(reading, 1 << 16) if reading in ready else None
            if data:
                child.take(data)
            others = [other.progress for other in running.values() if other is not child]
            stuck = self.patience is not None and self.patience.is_over(
                child.pid, child.progress, others, now
            )
            late = stuck or _is_late(child, now, limit)
            if data == b"" or late:
                selector.unregister(reading)
                del running[reading]
                os.close(reading)
                used = _use_of(child.pid) if late else None
                status = end_fork(child.pid) if late else _wait(child.pid)
                answer = _answer(child, status, late=late)
                answer.used, answer.is_stuck = used, stuck
                if self.patience is not None and answer.is_done:
                    self.patience.learn(child.progress)
                yield child.number, answer


def _use_of(pid: int) -> ForkUse:
    others = [member.cpu_seconds for member in group_members(pid) if member.pid != pid]
    return ForkUse(cpu_seconds(pid), delayed_seconds(pid), max(others, default=0.0))


def _is_late(child: _RunningFork, now: float, limit: float) -> bool:
    """Whether a fork has used up its time; on a busy machine, also its share of the processor.

    A fork that waits for something idle, such as a compiler that hangs, does not wait for the
    processor, so the time limit applies.
    """
    seconds = now - child.started
    if seconds < limit:
        return False
    if cpu_seconds(child.pid) > limit / 2 or seconds > min(4 * limit, limit + _PATIENCE):
        return True
    if _is_ready(child.pid):
        child.idle_since = None
        return False
    child.idle_since = child.idle_since or now
    return now - child.idle_since > _IDLE


def _is_ready(group: int) -> bool:
    """Whether a process of a group is waiting only for the processor or for data."""
    return any(member.state in "RD" for member in group_members(group))


def can_fork() -> bool:
    """Whether this process can be forked: not if it uses a GPU, which does not survive a fork."""
    import torch

    return not torch.cuda.is_initialized()


def can_fork_alone() -> bool:
    """Whether a fork could run the program's graphs without talking to the program's peers."""
    import torch

    is_one_of_many = torch.distributed.is_available() and torch.distributed.is_initialized()
    return can_fork() and not is_one_of_many


def _answer_here(work: Work) -> ForkAnswer:
    started = time.monotonic()
    reading, writing = os.pipe()
    page: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(reading, page))
    reader.start()
    with SCOPE.redirected(PipeWriter(writing)):
        worker = _worker(work, writing)
        worker.start()
        worker.join()
    os.close(writing)
    reader.join()
    os.close(reading)
    return _answer(_RunningFork(0, 0, started, b"".join(page)), 0, late=False)


def _drain(reading: int, page: list[bytes]) -> None:
    while data := os.read(reading, 1 << 16):
        page.append(data)


def _answer(child: _RunningFork, status: int, *, late: bool) -> ForkAnswer:
    seconds = time.monotonic() - child.started
    answer = ForkAnswer(started=child.started, seconds=seconds, timed_out=late)
    for line in child.text.split(b"\n"):
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if message.get("kind") == "result":
                answer.result, answer.is_done = message.get("result"), True
            elif message.get("kind") == "failed":
                answer.error = message.get("error", "")
            elif message.get("kind") == "note":
                answer.notes.append(message)
            elif isinstance(message.get("kind"), str):
                answer.entries.append(read_entry("", message))
    last = answer.last_stage
    answer.entered_at = last.time - child.started if last else 0.0
    if not late and os.WIFSIGNALED(status):
        answer.signal = os.WTERMSIG(status)
    elif not late and not answer.is_done and not answer.error:
        answer.error = f"the process ended with exit code {os.waitstatus_to_exitcode(status)}"
    return answer


def _own_cores() -> set[int]:
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # Not on every system.
        return set(range(os.cpu_count() or 1))


def _wait(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


# --- in the child ---------------------------------------------------------------------------------


def _be_child(work: Work, writing: int, *, uses_gpu: bool) -> None:
    """Do the work and exit; this never returns into the forked program."""
    try:
        _limit_self(uses_gpu=uses_gpu)
        SCOPE.redirect(PipeWriter(writing))
        worker = _worker(work, writing)
        worker.start()
        worker.join()
    finally:
        os._exit(0)


def _worker(work: Work, writing: int) -> threading.Thread:
    """The thread that does the work, with the settings that torch keeps per context."""
    context = contextvars.copy_context()
    return threading.Thread(target=context.run, args=(_do, work, writing, current_state()))


def _do(work: Work, writing: int, state: TorchState) -> None:
    """Runs on a thread of its own: on this one, Dynamo is in the middle of a compiled frame."""
    try:
        with state.entered():
            send(writing, {"kind": "result", "result": work()})
    except BaseException as error:
        text = "".join(traceback.format_exception(error))[-4000:]
        send(writing, {"kind": "failed", "error": text})


def _limit_self(*, uses_gpu: bool) -> None:
    os.setpgid(0, 0)
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    # CUDA reserves far more addresses than it uses.
    limit_resources(memory=None if uses_gpu else own_memory() + _MORE_MEMORY)
