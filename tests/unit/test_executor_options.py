"""Options for a cluster: what each command does with one, and what does not go together."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from support.examples import inductoscope
from support.logged import HANG

CLUSTER = ("--executor", "dask://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((*CLUSTER, "--cores", "2"), "--cores reads logs with processes of this machine."),
        ((*CLUSTER, "--follow"), "--follow reads logs of this machine."),
        (("--any-worker",), "--any-worker only works with --executor."),
    ],
)
def test_logs_refuses_what_it_would_ignore(words: tuple[str, ...], text: str) -> None:
    done = inductoscope("logs", *words, str(HANG))
    assert (done.exit_code, text in done.words) == (2, True), done.words


def test_doctor_refuses_any_worker_of_no_cluster(snapshot: SnapshotAssertion) -> None:
    done = inductoscope("doctor", "--any-worker", "train.py")
    assert done.exit_code == 2
    assert done.words == snapshot
