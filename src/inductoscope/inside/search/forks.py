"""What comes back from work that was done in a fork."""

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
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.hang_limits import ForkProgress, HangPatience
from inductoscope.inside.search.program_state import TorchState, current_state
from inductoscope.model.process_position import OpenStages, ProcessPosition
from inductoscope.processes.ending import end_fork
from inductoscope.processes.limits import die_with_parent, limit_resources, own_memory
from inductoscope.processes.status import (
    cpu_seconds,
    delayed_seconds,
    group_members,
    own_cores,
)
from inductoscope.recording.codec import encode
from inductoscope.recording.decoding import Entry, read_entry
from inductoscope.recording.events import (
    CompileFailed,
    Event,
    KernelLaunched,
    NativeEnd,
    NativeStart,
    NodeLowered,
    StageEnd,
    StageStart,
    written_fields,
)

Work = Callable[[], Any]


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


# --- What a fork tells its parent while it works, through a pipe ----------------------------------


class PipeWriter:
    """Replaces the recording's stream in a fork: sends the parent what says where the fork is."""

    stopped: str | None = None
    KINDS = (StageStart, StageEnd, CompileFailed, NativeStart, NativeEnd, KernelLaunched)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._texts: dict[str, str] = {}

    def emit(self, event: Event) -> None:
        """Send an event if the parent wants events of this kind."""
        if isinstance(event, NodeLowered):
            self.note(node=event.node)  # It gets on, though its stage lasts.
        if isinstance(event, self.KINDS):
            fields = {
                name: self._texts.get(str(value), value)
                for name, value in written_fields(event).items()
            }
            send(self._descriptor, {"kind": event.kind, **_clocks(), **fields})

    def note(self, **what: Any) -> None:
        """Tell the parent something that is no event."""
        send(self._descriptor, {"kind": "note", **_clocks(), **what})

    def payload(self, text: str) -> str:
        """Keep a text until the event that refers to it is sent."""
        key = f"payload {len(self._texts)}"
        self._texts[key] = text[:20000]
        return key

    def close(self) -> None:
        """Nothing to close."""


def _clocks() -> dict[str, float]:
    """The time, by a clock that parent and child share, and what the child has used of it."""
    return {"t": time.monotonic(), "cpu": time.process_time()}


def send(descriptor: int, event: dict[str, Any]) -> None:
    """Write one event to the parent."""
    data = json.dumps(event, default=encode).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


# --- An executor whose processes are forks of this one, each under limits -------------------------
#
# A fork has torch and the compiler loaded, custom operators registered and the program's tensors
# in memory, so a candidate costs no more than its compile. A fork may crash, hang or run out of
# memory without harm to its parent. It sends back events while it works, so that the last one
# says where it died.

# Bytes that a fork may allocate in addition to what its parent has.
_MORE_MEMORY = 16 << 30
# Seconds beyond its time limit that a fork may wait for other processes.
_PATIENCE = 120.0
# A fork that has been idle for so many seconds is stuck.
_IDLE = 2.0
_LOOK_EVERY = 0.2


@dataclass(frozen=True)
class ForkOrder:
    """Work, how long it may take, and what the thread that wants it done has set."""

    work: Work
    seconds: float
    state: TorchState
    context: contextvars.Context


def order_of(work: Work, seconds: float) -> ForkOrder:
    """An order of this thread."""
    return ForkOrder(work, seconds, current_state(), contextvars.copy_context())


@dataclass
class RunningFork:
    """A fork, and how far it has come."""

    pid: int
    started: float
    reading: int = -1
    text: bytes = b""
    # Since when it and all its children have been idle.
    idle_since: float | None = None
    # It was ended because nobody waits for its answer any more.
    is_unwanted: bool = False
    progress: ForkProgress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = ForkProgress(self.started)

    def take(self, data: bytes) -> None:
        """What it has sent."""
        self.text += data
        self.progress.take(data)


class ForkExecutor(Executor):
    """Runs each piece of work in a fork.

    A thread waits for each fork. The threads take turns with all else that they do, so that none is
    in the middle of anything when another one forks.
    """

    def __init__(
        self, workers: int, *, uses_gpu: bool = False, patience: HangPatience | None = None
    ) -> None:
        self._uses_gpu = uses_gpu
        self._patience = patience
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="waits-for-fork")
        self._turn = threading.Lock()
        self._running: list[RunningFork] = []
        self._is_over = False

    def submit(  # type: ignore[override]  # Work brings its arguments with it.
        self, work: Work, /, *, seconds: float
    ) -> Future[ForkAnswer]:
        """Have work done, in at most so many seconds, with what this thread has set in torch."""
        return self.carry_out(order_of(work, seconds))

    def carry_out(self, order: ForkOrder) -> Future[ForkAnswer]:
        """The same for an order that another thread may have made."""
        return self._threads.submit(self._answer, order)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `cancel_futures` end what is under way, too."""
        if cancel_futures:
            self._end_all()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _end_all(self) -> None:
        with self._turn:
            self._is_over = True
            for fork in self._running:
                end_fork(fork.pid)
                fork.is_unwanted = True

    def _answer(self, order: ForkOrder) -> ForkAnswer:
        with self._turn:
            if self._is_over:
                return ForkAnswer(error="it was not wanted any more")
            fork = self._start(order)
            self._running.append(fork)
        try:
            return self._wait(fork, order.seconds)
        finally:
            with self._turn:
                self._running.remove(fork)
                os.close(fork.reading)

    def _start(self, order: ForkOrder) -> RunningFork:
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Existing objects are exempt from garbage collection in the fork, which would otherwise
        # copy all of their memory.
        gc.freeze()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of forks where there are threads.
            pid = os.fork()
        if pid:
            gc.unfreeze()
        if pid == 0:
            _be_child(order, writing, uses_gpu=self._uses_gpu)
        os.close(writing)
        return RunningFork(pid, time.monotonic(), reading)

    def _wait(self, fork: RunningFork, seconds: float) -> ForkAnswer:
        with selectors.DefaultSelector() as selector:
            selector.register(fork.reading, selectors.EVENT_READ)
            while True:
                is_ready = selector.select(timeout=_LOOK_EVERY)
                with self._turn:
                    data = os.read(fork.reading, 1 << 16) if is_ready else None
                    answer = self._look_at(fork, data, seconds)
                if answer is not None:
                    return answer

    def _look_at(self, fork: RunningFork, data: bytes | None, limit: float) -> ForkAnswer | None:
        """Take what a fork has sent; its answer if it is over, by itself or because it is late."""
        if fork.is_unwanted:
            return ForkAnswer(error="it was not wanted any more")
        if data:
            fork.take(data)
        now = time.monotonic()
        others = [other.progress for other in self._running if other is not fork]
        stuck = self._patience is not None and self._patience.is_over(
            fork.pid, fork.progress, others, now
        )
        late = stuck or is_late(fork, now, limit)
        if data != b"" and not late:
            return None
        used = _use_of(fork.pid) if late else None
        status = end_fork(fork.pid) if late else os.waitpid(fork.pid, 0)[1]
        answer = _read_answer(fork, status, late=late)
        answer.used, answer.is_stuck = used, stuck
        if self._patience is not None and answer.is_done:
            self._patience.learn(fork.progress)
        return answer


def _use_of(pid: int) -> ForkUse:
    others = [member.cpu_seconds for member in group_members(pid) if member.pid != pid]
    return ForkUse(cpu_seconds(pid), delayed_seconds(pid), max(others, default=0.0))


def is_late(fork: RunningFork, now: float, limit: float) -> bool:
    """Whether a fork has used up its time; on a busy machine, also its share of the processor.

    A fork that waits for something idle, such as a compiler that hangs, does not wait for the
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
    """Seconds after which a fork with this limit is over, whatever happens."""
    return limit + _PATIENCE + _IDLE


def is_ready(group: int) -> bool:
    """Whether a process of a group is waiting only for the processor or for data."""
    return any(member.state in "RD" for member in group_members(group))


def _read_answer(fork: RunningFork, status: int, *, late: bool) -> ForkAnswer:
    seconds = time.monotonic() - fork.started
    answer = ForkAnswer(started=fork.started, seconds=seconds, timed_out=late)
    for line in fork.text.split(b"\n"):
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
    answer.entered_at = last.time - fork.started if last else 0.0
    if not late and os.WIFSIGNALED(status):
        answer.signal = os.WTERMSIG(status)
    elif not late and not answer.is_done and not answer.error:
        answer.error = f"the process ended with exit code {os.waitstatus_to_exitcode(status)}"
    return answer


def answer_without_fork(work: Work) -> ForkAnswer:
    """In this process, which a crash or a hang would end too."""
    started = time.monotonic()
    reading, writing = os.pipe()
    page: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(reading, page))
    reader.start()
    with SCOPE.redirected(PipeWriter(writing)):
        worker = _worker(order_of(work, 0.0), writing)
        worker.start()
        worker.join()
    os.close(writing)
    reader.join()
    os.close(reading)
    return _read_answer(RunningFork(0, started, text=b"".join(page)), 0, late=False)


def _drain(reading: int, page: list[bytes]) -> None:
    while data := os.read(reading, 1 << 16):
        page.append(data)


# --- in the child ---------------------------------------------------------------------------------


def _be_child(order: ForkOrder, writing: int, *, uses_gpu: bool) -> None:
    """Do the work and exit; this never returns into the forked program."""
    try:
        _limit_self(uses_gpu=uses_gpu)
        SCOPE.redirect(PipeWriter(writing))
        worker = _worker(order, writing)
        worker.start()
        worker.join()
    finally:
        os._exit(0)


def _worker(order: ForkOrder, writing: int) -> threading.Thread:
    """The thread that does the work, with the settings that torch keeps per context."""
    return threading.Thread(target=order.context.run, args=(_do, order, writing))


def _do(order: ForkOrder, writing: int) -> None:
    """Runs on a thread of its own: on the one that asked, Dynamo may be in a compiled frame."""
    try:
        with order.state.entered():
            send(writing, {"kind": "result", "result": order.work()})
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


# --- Runs work in forks of this process, several at once, each under limits -----------------------

# Forks that use a GPU at the same time share its memory.
WORKERS_ON_GPU = 4
_MOST_GUESSES = 4


class Forks:
    """Runs work in forks, `workers` at once."""

    # Whether all work is done on this machine, so that times can be compared.
    is_here = True

    def __init__(
        self, *, workers: int | None = None, seconds: float = 60.0, uses_gpu: bool = False
    ) -> None:
        most = workers or len(own_cores())
        self.workers = min(most, WORKERS_ON_GPU) if uses_gpu else most
        self.seconds = seconds
        self.uses_gpu = uses_gpu
        # While a hang is searched for: ends forks that get nowhere, long before their time is over.
        self.patience: HangPatience | None = None
        self.count = 0

    @property
    def guesses(self) -> int:
        """Up to how many pieces of work to hand over at once, some of which may not be needed.

        All of them are made before the first is begun.
        """
        return min(self.workers, _MOST_GUESSES) if can_fork() else 1

    def executor(self) -> ForkExecutor:
        """What does the work."""
        return ForkExecutor(self.workers, uses_gpu=self.uses_gpu, patience=self.patience)

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
        """Answers as they arrive, each with the number of its work; closing this ends the rest.

        No more is under way than can run at once: the caller may not want what comes later.
        """
        if not can_fork():
            yield from self._one_by_one(works)
            return
        limit = seconds or self.seconds
        waiting = deque(enumerate(works))
        running: dict[Future[ForkAnswer], int] = {}
        executor = self.executor()
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    number, work = waiting.popleft()
                    self.count += 1
                    running[executor.submit(work, seconds=limit)] = number
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            executor.shutdown(cancel_futures=True)

    def _one_by_one(self, works: Sequence[Work]) -> Iterator[tuple[int, ForkAnswer]]:
        """Without forks."""
        for number, work in enumerate(works):
            self.count += 1
            yield number, answer_without_fork(work)


def can_fork() -> bool:
    """Whether this process can be forked: not if it uses a GPU, which does not survive a fork."""
    import torch

    return not torch.cuda.is_initialized()


def can_fork_alone() -> bool:
    """Whether a fork could run the program's graphs without talking to the program's peers."""
    import torch

    is_one_of_many = torch.distributed.is_available() and torch.distributed.is_initialized()
    return can_fork() and not is_one_of_many
