"""The cache of a recording: filled once, and bounded."""

from __future__ import annotations

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from inductoscope.analysis.fusion.ledger import LedgerRow, graph_ledger, ledger
from inductoscope.model.fold import load
from inductoscope.model.payload_cache import PayloadCache
from inductoscope.model.schedule import read_schedule
from inductoscope.views.page.contract import SharedTable
from support.examples import stored


def test_what_was_made_is_made_once_and_the_oldest_is_forgotten() -> None:
    held, made = PayloadCache(100), []

    def ask(key: str) -> str:
        return held.once(key, lambda: made.append(key) or key, lambda: 40)

    assert [ask(key) for key in ("a", "b", "a", "c")] == ["a", "b", "a", "c"]
    assert made == ["a", "b", "c"]
    # Of 120 characters 40 have to go, and "a" was asked for after "b".
    assert held.keys == ("a", "c")
    ask("b")
    assert made == ["a", "b", "c", "b"]
    assert held.keys == ("c", "b")


def test_what_is_too_large_or_missing_is_not_kept_and_drives_nothing_out() -> None:
    held = PayloadCache(100)
    held.once("small", lambda: "made", lambda: 10)
    assert held.once("large", lambda: "made", lambda: 101) == "made"
    assert held.once("of a missing payload", tuple, lambda: 0) == ()
    assert held.once("damaged", lambda: None, lambda: 10) is None
    assert held.keys == ("small",)
    assert held.once("damaged", lambda: "whole now", lambda: 10) == "whole now"


def test_threads_that_ask_at_the_same_time_get_the_same() -> None:
    held, together = PayloadCache(300), threading.Barrier(4)

    def make() -> object:
        # Nobody is made to wait by somebody who makes: all four make at once.
        together.wait(timeout=60)
        return object()

    with ThreadPoolExecutor(4) as pool:
        first = [pool.submit(held.once, "key", make, lambda: 100) for _ in range(4)]
        assert len({id(future.result()) for future in first}) == 1


def test_many_threads_leave_no_more_than_fits() -> None:
    held = PayloadCache(1000)

    def ask(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(2000):
            key = chance.randrange(50)
            assert held.once(key, lambda key=key: f"made of {key}", lambda: 100) == f"made of {key}"

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(ask, seed) for seed in range(4)]:
                future.result()
    finally:
        sys.setswitchinterval(switching)
    assert len(held.keys) == 10


def test_a_missing_text_is_asked_for_again_and_a_long_one_is_not_kept() -> None:
    held = PayloadCache()
    assert held.text("a", lambda digest: None) == ""
    assert held.text("a", lambda digest: "there now") == "there now"
    assert held.text("a", lambda digest: "other") == "there now"
    assert held.text("long", lambda digest: "x" * 100_000)
    assert held.keys == ("a",)


def test_a_schedule_is_read_once() -> None:
    recording = load(stored("training_step"))
    digest = recording.graphs[0].scheduled_after
    assert read_schedule(recording, digest) is read_schedule(recording, digest)


def test_tables_that_share_values_can_be_joined() -> None:
    recording = load(stored("training_step"))
    apart = [
        SharedTable.of(LedgerRow, tuple(graph_ledger(recording, compile_, graph)))
        for compile_ in recording.compiles
        for graph in compile_.inductor
    ]
    assert len(apart) > 1
    joined, whole = (
        SharedTable.joined(LedgerRow, apart),
        SharedTable.of(LedgerRow, ledger(recording)),
    )
    assert vars(joined) == vars(whole)
