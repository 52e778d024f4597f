"""Has candidates tried by the workers of a cluster; everything else in forks of this process.

A worker is asked only if the whole graph fails there as it does here: the program may have changed
torch in ways that another machine knows nothing of. What a worker cannot answer is tried here.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from inductoscope.doctor.failure import Failure
from inductoscope.errors import ToolFailure
from inductoscope.inside.search.candidate import CandidateWork
from inductoscope.inside.search.candidate_file import as_bytes, from_bytes
from inductoscope.inside.search.failure_signature import failure_of_answer
from inductoscope.inside.search.forks import (
    WORKERS_ON_GPU,
    ForkAnswer,
    ForkExecutor,
    ForkOrder,
    Forks,
    Work,
    longest_wait,
    order_of,
)
from inductoscope.inside.search.hang_limits import HangPatience
from inductoscope.inside.search.placement import kept_in_main_memory
from inductoscope.inside.search.program_state import TorchState
from inductoscope.processes.cluster import Cluster, ClusterWorker
from inductoscope.processes.cluster_children import (
    ChildKind,
    ask_child,
    end_idle_children,
    sent_environment,
)

TRIAL_SERVER = "inductoscope.inside.doctor.trial_server"
# Until a child on a worker has loaded torch and its compiler.
_SECONDS_TO_LOAD = 300.0
_LOOK_EVERY = 1.0


@dataclass(frozen=True)
class CandidateRequest:
    """What is sent to a worker."""

    work: CandidateWork
    state: TorchState
    seconds: float
    uses_gpu: bool
    patience: HangPatience | None

    def answer(self) -> ForkAnswer:
        """Do it, in a fork of the process on the worker."""
        forks = Forks(workers=1, seconds=self.seconds, uses_gpu=self.uses_gpu)
        forks.patience = self.patience
        self.state.adopt()
        with self.state.entered():
            return forks.ask(self.work)


def answered(request: bytes) -> bytes:
    """The answer to a request that was sent; called on the worker."""
    try:
        return pickle.dumps(from_bytes(request).answer())
    except Exception as error:
        # Such as an operator that only the program has.
        return pickle.dumps(ToolFailure(f"{type(error).__name__}: {error}"))


class ClusterForks(Forks):
    """Forks of this process, and workers of a cluster that try candidates."""

    is_here = False

    def __init__(self, here: Forks, cluster: Cluster, say: Callable[[str], None]) -> None:
        super().__init__(workers=here.workers, seconds=here.seconds, uses_gpu=here.uses_gpu)
        self.patience, self.count = here.patience, here.count
        self._cluster = cluster
        self._say = say
        at_once = WORKERS_ON_GPU if here.uses_gpu else None
        self._kind = ChildKind(TRIAL_SERVER, _environment(), at_once)
        # The workers that are asked.
        self.able: tuple[ClusterWorker, ...] = cluster.workers
        self.workers_here = here.workers

    def use_those_that_show(self, work: CandidateWork, failure: Failure) -> bool:
        """Have every worker try what fails here; those where it fails alike are used from now on.

        False if there is none.
        """
        executors = [self._executor_of([worker]) for worker in self._cluster.workers]
        futures = [each.ask_worker(order_of(work, self.seconds)) for each in executors]
        self.count += len(futures)
        shown = [_is_shown(future, failure) for future in futures]
        for executor in executors:
            executor.shutdown(cancel_futures=True)
        able = []
        for worker, text in zip(self._cluster.workers, shown, strict=True):
            if text:
                self._say(f"the worker {worker.address} is not asked: {text}")
            else:
                able.append(worker)
        self.use(able)
        return bool(able)

    def use(self, workers: Sequence[ClusterWorker]) -> None:
        """Ask these workers from now on, each for as much as it can do at once."""
        most = self._kind.at_once
        self.able = tuple(workers)
        self.workers = sum(min(each.threads, most or each.threads) for each in workers)

    def executor(self) -> ForkExecutor:
        return self._executor_of(self.able)

    def _executor_of(self, workers: Sequence[ClusterWorker]) -> ClusterExecutor:
        return ClusterExecutor(self, self._cluster, workers, self._kind, self._say)

    def close(self) -> None:
        """Leave the cluster; what was loaded for this search is ended."""
        with contextlib.suppress(ToolFailure):  # What was loaded is gone with the workers.
            self._cluster.on_every_worker(end_idle_children)
        self._cluster.close()


def _is_shown(future: Future[ForkAnswer], failure: Failure) -> str:
    """Why a worker is no use; empty if it shows the failure."""
    try:
        answer = future.result()
    except Exception as error:
        return str(error) or type(error).__name__
    found = failure_of_answer(answer)
    if found is not None and found.is_same_as(failure):
        return ""
    return answer.error.strip().rpartition("\n")[2] or (
        f"there it fails differently: {found.text}" if found else "there it does not fail"
    )


def _environment() -> tuple[tuple[str, str], ...]:
    """What decides, on any machine, which code is generated and which modules are found."""
    import torch

    given = sent_environment()
    given["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    # A module beside the program's script is found through this.
    beside = [sys.path[0]] if sys.path and sys.path[0] else []
    given["PYTHONPATH"] = ":".join([*filter(None, [given.get("PYTHONPATH")]), *beside])
    return tuple(sorted(given.items()))


class ClusterExecutor(ForkExecutor):
    """Has workers try candidates; what they cannot do, and all other work, is done in forks."""

    def __init__(
        self,
        forks: ClusterForks,
        cluster: Cluster,
        workers: Sequence[ClusterWorker],
        kind: ChildKind,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(forks.workers_here, uses_gpu=forks.uses_gpu, patience=forks.patience)
        self._cluster, self._workers = cluster, workers
        self._executor = cluster.executor(workers)
        self._kind = kind
        self._say = say
        self._asked: list[Future[bytes]] = []
        self._patience_sent = forks.patience
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def submit(  # type: ignore[override]
        self, work: Work, /, *, seconds: float
    ) -> Future[ForkAnswer]:
        """Have work done wherever that is possible."""
        order = order_of(work, seconds)
        if not isinstance(work, CandidateWork):
            return self.carry_out(order)
        return self._or_here(order, self.ask_worker(order))

    def ask_worker(self, order: ForkOrder) -> Future[ForkAnswer]:
        """Have work done by a worker; the future raises what keeps it from doing that."""
        answer: Future[ForkAnswer] = Future()
        try:
            asked = self._send(self._request(order), order.seconds)
        except ToolFailure as error:
            answer.set_exception(error)
            return answer
        self._asked.append(asked)
        if not self._watcher.is_alive():
            self._watcher.start()
        asked.add_done_callback(lambda done: _hand_over(done, answer))
        return answer

    def _request(self, order: ForkOrder) -> bytes:
        work = order.work
        assert isinstance(work, CandidateWork)
        work = replace(work, candidate=kept_in_main_memory(work.candidate))
        return as_bytes(
            CandidateRequest(work, order.state, order.seconds, self._uses_gpu, self._patience_sent)
        )

    def _send(self, request: bytes, seconds: float) -> Future[bytes]:
        longest = longest_wait(seconds) + _SECONDS_TO_LOAD
        try:
            return self._executor.submit(ask_child, self._kind, request, longest)
        except Exception as error:  # Dask has given up the cluster.
            raise ToolFailure(f"the cluster is gone: {error}") from error

    def _or_here(self, order: ForkOrder, asked: Future[ForkAnswer]) -> Future[ForkAnswer]:
        """The worker's answer; if there is none, that of a fork."""
        answer: Future[ForkAnswer] = Future()

        def take(done: Future[ForkAnswer]) -> None:
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            elif self._ended.is_set():
                answer.set_result(ForkAnswer(error="it was not wanted any more"))
            else:
                self._say(f"a candidate is tried here, because {error}")
                self.carry_out(order).add_done_callback(lambda own: _copy(own, answer))

        asked.add_done_callback(take)
        return answer

    def _watch(self) -> None:
        """Give up on workers once all are gone: Dask would wait for new ones."""
        while not self._ended.wait(_LOOK_EVERY):
            if not self._cluster.has_any_of(self._workers):
                for asked in self._asked:
                    asked.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._ended.set()
            for asked in self._asked:
                asked.cancel()
        super().shutdown(wait=wait, cancel_futures=cancel_futures)


def _hand_over(done: Future[bytes], answer: Future[ForkAnswer]) -> None:
    """Pass on what a worker has sent, or why it has not. Somebody waits, whatever it is."""
    try:
        answer.set_result(_sent(done))
    except BaseException as error:
        answer.set_exception(error)


def _sent(done: Future[bytes]) -> ForkAnswer:
    if done.cancelled():
        raise ToolFailure("no worker is left")
    sent = done.result()
    try:
        found = pickle.loads(sent)
    except Exception as error:  # A worker with other versions may send anything.
        raise ToolFailure(f"a worker's answer cannot be read: {error}") from error
    if isinstance(found, BaseException):
        raise found
    if not isinstance(found, ForkAnswer):
        raise ToolFailure(f"a worker's answer cannot be read: it is a {type(found).__name__}")
    return found


def _copy(done: Future[ForkAnswer], answer: Future[ForkAnswer]) -> None:
    if done.cancelled():
        answer.set_result(ForkAnswer(error="it was not wanted any more"))
    elif (error := done.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())
