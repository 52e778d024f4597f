"""Faults around a cluster: others clean up, the scheduler leaves, answers are broken."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from inductoscope.inside.search import cluster_forks
from inductoscope.inside.search.candidate import Candidate, CandidateTrial
from inductoscope.inside.search.cluster_forks import ClusterForks
from inductoscope.inside.search.forks import WORKERS_ON_GPU, ForkAnswer, Forks
from inductoscope.processes.cluster import Cluster, ClusterWorker, connect
from inductoscope.processes.cluster_children import (
    ChildKind,
    WarmChild,
    ask_child,
    end_idle_children,
)
from support.waiting import wait_until

distributed = pytest.importorskip("distributed")

SECONDS = 20.0

# A child of a worker, which answers every question in this way.
CHILD = """
import time
from base64 import b64encode
def serve(channel, folder):
    for request in channel.requests:
        began = time.monotonic()
        channel.say("answer", data=b64encode(ANSWER).decode())
"""
# After a moment, with the time when it began and the time when it ended.
SLOW_ANSWER = 'time.sleep(0.2) or f"{began} {time.monotonic()}".encode()'


@pytest.fixture
def child_kind(tmp_path: Path) -> Iterator[ChildKind]:
    (tmp_path / "slow_echo.py").write_text(CHILD.replace("ANSWER", SLOW_ANSWER))
    yield ChildKind("slow_echo:serve", (("PYTHONPATH", str(tmp_path)),))
    end_idle_children()


# --- the children of a worker ---------------------------------------------------------------------


def test_a_child_that_was_just_taken_survives_when_another_client_cleans_up(
    child_kind: ChildKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = WarmChild.ask

    def ask_after_another_has_cleaned_up(child: WarmChild, *arguments: Any) -> bytes:
        end_idle_children()
        return ask(child, *arguments)

    monkeypatch.setattr(WarmChild, "ask", ask_after_another_has_cleaned_up)
    answers: Future[bytes] = Future()
    thread = threading.Thread(
        target=lambda: answers.set_result(ask_child(child_kind, b"?", SECONDS)), daemon=True
    )
    thread.start()
    assert len(answers.result(timeout=SECONDS).split()) == 2


def test_of_children_that_share_a_gpu_only_some_are_busy_at_once(child_kind: ChildKind) -> None:
    limited = ChildKind(child_kind.function, child_kind.environment, at_once=2)
    with ThreadPoolExecutor(5) as threads:
        answers = list(threads.map(lambda _: ask_child(limited, b"?", SECONDS), range(8)))
        spans = [tuple(map(float, answer.split())) for answer in answers]
        busy = [sum(began <= start < ended for began, ended in spans) for start, _ in spans]
        assert max(busy) == 2
        end_idle_children()


def test_a_worker_with_many_threads_is_not_asked_for_more_than_its_gpu_can_do() -> None:
    workers = [ClusterWorker("tcp://a:1", "a", 16, {}), ClusterWorker("tcp://b:1", "b", 2, {})]
    cluster = Cluster("dask://a:0", None, workers)
    for uses_gpu, at_once in ((True, WORKERS_ON_GPU + 2), (False, 18)):
        forks = ClusterForks(Forks(workers=2, uses_gpu=uses_gpu), cluster, print)
        forks.use(workers)
        assert forks.workers == at_once


# --- the cluster ----------------------------------------------------------------------------------


@pytest.fixture
def local() -> Iterator[Any]:
    """A scheduler and two workers, all in this process."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=":0",
    ) as found:
        yield found


def connected_to(local: Any) -> Cluster:
    return connect(local.scheduler_address.replace("tcp://", "dask://"))


def test_a_worker_that_is_gone_is_not_waited_for(local: Any) -> None:
    cluster = connected_to(local)
    local.scale(1)
    assert wait_until(lambda: len(local.scheduler_info["workers"]) == 1, seconds=SECONDS)
    answers = cluster.on_every_worker(int, "3")
    cluster.close()
    assert list(answers) == list(local.scheduler_info["workers"])
    assert list(answers.values()) == [3]


def test_a_worker_that_joins_meanwhile_is_not_used(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = distributed.Client.scheduler_info

    def one_more_joins(client: Any, **options: Any) -> Any:
        found = known(client, **options)
        local.scale(3)
        client.wait_for_workers(3, timeout=SECONDS)
        return found

    monkeypatch.setattr(distributed.Client, "scheduler_info", one_more_joins)
    cluster = connected_to(local)
    cluster.close()
    assert len(cluster.workers) == 2
    assert len(local.scheduler_info["workers"]) == 3


# --- a search -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountsOperations(CandidateTrial):
    """Counts the operations of the candidate."""

    def __call__(self) -> int:
        return len(self.candidate.operations)


WORK = CountsOperations(Candidate(torch.fx.symbolic_trace(torch.nn.ReLU()), (torch.ones(2),)))


def answer_to(forks: ClusterForks) -> ForkAnswer:
    """The answer that a search gets."""
    return forks.ask(WORK, seconds=SECONDS)


@pytest.mark.parametrize(
    "sent",
    [b"cthis_module_is_not_here\nAnswer\n.", pickle.dumps("other")],
    ids=["unknown", "other"],
)
def test_an_answer_that_cannot_be_read_is_looked_for_here(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    (tmp_path / "broken_child.py").write_text(CHILD.replace("ANSWER", repr(sent)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(cluster_forks, "TRIAL_SERVER", "broken_child:serve")
    said: list[str] = []
    forks = ClusterForks(Forks(workers=1), connected_to(local), said.append)
    answer = answer_to(forks)
    forks.close()
    assert answer.result == 1
    assert "a candidate is tried here, because a worker's answer cannot be read" in said[0]


def test_without_a_scheduler_a_search_goes_on_here_and_ends_well(local: Any) -> None:
    said: list[str] = []
    cluster = connected_to(local)
    forks = ClusterForks(Forks(workers=1), cluster, said.append)
    local.close()
    began = time.monotonic()
    forks.close()
    assert time.monotonic() - began < SECONDS / 4, "Dask tries for ten seconds to get it back"
    # The client is closed, as it is once Dask has given up.
    assert answer_to(forks).result == 1
    assert "a candidate is tried here, because the cluster is gone" in said[0]
