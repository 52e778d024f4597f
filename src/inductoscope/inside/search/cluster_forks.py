"""Tries candidates on the workers of a cluster, and does all other work in local forks.

A worker gets trials only if the whole graph fails there as it does here: the program may have
changed torch in ways that a worker does not know. A trial that a worker fails to run is run here.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from inductoscope.doctor.failure import Failure
from inductoscope.errors import ToolFailure
from inductoscope.inside.search.candidate import CandidateTrial
from inductoscope.inside.search.candidate_file import as_bytes, from_bytes
from inductoscope.inside.search.failure_signature import failure_of_answer
from inductoscope.inside.search.forks import WORKERS_ON_GPU, ForkAnswer, Forks, Work, longest_wait
from inductoscope.inside.search.hang_limits import HangPatience
from inductoscope.inside.search.placement import kept_in_main_memory
from inductoscope.inside.search.program_state import TorchState, current_state
from inductoscope.processes.cluster import Cluster, ClusterWorker
from inductoscope.processes.cluster_children import (
    ChildKind,
    ask_child,
    end_idle_children,
    sent_environment,
)

TRIAL_SERVER = "inductoscope.inside.doctor.trial_server:serve"
# The time limit for a child on a worker to load torch and its compiler.
_SECONDS_TO_LOAD = 300.0


@dataclass(frozen=True)
class CandidateRequest:
    """A trial for a worker, with all the state that it depends on."""

    work: CandidateTrial
    state: TorchState
    seconds: float
    uses_gpu: bool
    patience: HangPatience | None

    def answer(self) -> ForkAnswer:
        """Run the trial in a fork of the worker's process."""
        forks = Forks(workers=1, seconds=self.seconds, uses_gpu=self.uses_gpu)
        forks.patience = self.patience
        self.state.adopt()
        with self.state.entered():
            return forks.ask(self.work)


def answered(request: bytes) -> bytes:
    """Answer a serialized request; called on the worker."""
    try:
        return pickle.dumps(from_bytes(request).answer())
    except Exception as error:
        # The request may need an operator that only the program registers, for example.
        return pickle.dumps(ToolFailure(f"{type(error).__name__}: {error}"))


class ClusterForks(Forks):
    """Local forks, and workers of a cluster that try candidates."""

    is_here = False

    def __init__(self, here: Forks, cluster: Cluster, say: Callable[[str], None]) -> None:
        super().__init__(workers=here.workers, seconds=here.seconds, uses_gpu=here.uses_gpu)
        self.patience, self.count = here.patience, here.count
        self._cluster = cluster
        self._say = say
        self._kind = ChildKind(
            TRIAL_SERVER, _environment(), WORKERS_ON_GPU if here.uses_gpu else None
        )
        # The workers that get trials.
        self.able: tuple[ClusterWorker, ...] = cluster.workers

    def use_those_that_show(self, work: CandidateTrial, failure: Failure) -> bool:
        """Try a failing candidate on every worker, and keep the workers that fail in the same way.

        Returns False if no worker does.
        """
        try:
            asked = {self._send(work, self.seconds, [each]): each for each in self._cluster.workers}
        except ToolFailure as error:
            self._say(f"no worker is asked: {error}")
            return False
        self.count += len(asked)
        able = []
        for future in self._cluster.as_done({each: [asked[each]] for each in asked}):
            reason = _why_not(future, failure)
            if reason:
                self._say(f"the worker {asked[future].address} is not asked: {reason}")
            else:
                able.append(asked[future])
        self.use(able)
        return bool(able)

    def use(self, workers: Sequence[ClusterWorker]) -> None:
        """Send trials to these workers only, each up to its capacity."""
        most = self._kind.at_once
        self.able = tuple(workers)
        self.workers = sum(min(each.threads, most or each.threads) for each in workers)

    def as_done(
        self, works: Sequence[Work], *, seconds: float | None = None
    ) -> Iterator[tuple[int, ForkAnswer]]:
        """Yield workers' answers to candidates, and local forks' answers to all other work."""
        limit = seconds or self.seconds
        asked: dict[Future[bytes], int] = {}
        others: list[int] = []
        left: list[int] = []
        for number, work in enumerate(works):
            if isinstance(work, CandidateTrial):
                with self._trying_here(number, left):
                    asked[self._send(work, limit, self.able)] = number
            else:
                others.append(number)
        try:
            yield from self._answers_here(works, others, limit)  # The workers are busy meanwhile.
            for future in self._cluster.as_done(dict.fromkeys(asked, self.able)):
                with self._trying_here(asked[future], left):
                    answer = _answer_in(future)
                    self.count += 1
                    yield asked[future], answer
        finally:
            for future in asked:
                future.cancel()
        yield from self._answers_here(works, left, limit)

    def _answers_here(
        self, works: Sequence[Work], numbers: Sequence[int], limit: float
    ) -> Iterator[tuple[int, ForkAnswer]]:
        done = super().as_done([works[number] for number in numbers], seconds=limit)
        for place, answer in done:
            yield numbers[place], answer

    @contextlib.contextmanager
    def _trying_here(self, number: int, left: list[int]) -> Iterator[None]:
        """Queue the work for this machine if the block raises `ToolFailure`."""
        try:
            yield
        except ToolFailure as error:
            self._say(f"a candidate is tried here, because {error}")
            left.append(number)

    def _send(
        self, work: CandidateTrial, seconds: float, workers: Sequence[ClusterWorker]
    ) -> Future[bytes]:
        """Submit a trial to one of these workers; raises `ToolFailure` if it cannot be sent."""
        sent = replace(work, candidate=kept_in_main_memory(work.candidate))
        request = CandidateRequest(sent, current_state(), seconds, self.uses_gpu, self.patience)
        data, longest = as_bytes(request), longest_wait(seconds) + _SECONDS_TO_LOAD
        try:
            return self._cluster.executor(workers).submit(ask_child, self._kind, data, longest)
        except Exception as error:  # Dask has given up the cluster.
            raise ToolFailure(f"the cluster is gone: {error}") from error

    def close(self) -> None:
        """End the children that were started for this search, and leave the cluster."""
        with contextlib.suppress(ToolFailure):  # The children are gone with the workers.
            self._cluster.on_every_worker(end_idle_children)
        self._cluster.close()


def _environment() -> tuple[tuple[str, str], ...]:
    """Return the environment variables that affect code generation and module lookup."""
    import torch

    given = sent_environment()
    given["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    # A module beside the program's script is found through this.
    beside = [sys.path[0]] if sys.path and sys.path[0] else []
    given["PYTHONPATH"] = ":".join([*filter(None, [given.get("PYTHONPATH")]), *beside])
    return tuple(sorted(given.items()))


def _answer_in(done: Future[bytes]) -> ForkAnswer:
    """Return a worker's answer; raises `ToolFailure` with the reason if there is none."""
    if done.cancelled():
        raise ToolFailure("no worker is left")
    if (error := done.exception()) is not None:
        raise ToolFailure(str(error) or type(error).__name__) from error
    try:
        found = pickle.loads(done.result())
    except Exception as error:  # A worker with other versions may send anything.
        raise ToolFailure(f"a worker's answer cannot be read: {error}") from error
    if isinstance(found, ToolFailure):
        raise found
    if not isinstance(found, ForkAnswer):
        raise ToolFailure(f"a worker's answer cannot be read: it is a {type(found).__name__}")
    return found


def _why_not(done: Future[bytes], failure: Failure) -> str:
    """Return why a worker cannot be used; empty if it shows the failure."""
    try:
        answer = _answer_in(done)
    except ToolFailure as error:
        return str(error)
    found = failure_of_answer(answer)
    if found is not None and found.is_same_as(failure):
        return ""
    return answer.error.strip().rpartition("\n")[2] or (
        f"there it fails differently: {found.text}" if found else "there it does not fail"
    )
