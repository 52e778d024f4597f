"""What is kept of a recording: made once, and never too much of it."""

from __future__ import annotations

from inductoscope.analysis.fusion.ledger import graph_ledger, ledger
from inductoscope.analysis.fusion.row import LedgerRow
from inductoscope.model import kept
from inductoscope.model.fold import load
from inductoscope.model.kept import Kept
from inductoscope.model.schedule import read_schedule
from inductoscope.views.page.profile_contract import SharedTable
from support.examples import stored


def test_what_was_made_is_made_once_and_the_oldest_is_forgotten() -> None:
    held, made = Kept(), []
    for _ in range(2):
        for key in range(kept._MOST_MADE):
            held.once(key, lambda key=key: made.append(key))
    assert made == list(range(kept._MOST_MADE))
    held.once("one more", lambda: None)
    assert 0 not in held.made
    assert len(held.made) == kept._MOST_MADE


def test_a_missing_text_is_asked_for_again_and_a_long_one_is_not_kept() -> None:
    held = Kept()
    assert held.text("a", lambda digest: None) == ""
    assert held.text("a", lambda digest: "there now") == "there now"
    assert held.text("a", lambda digest: "other") == "there now"
    assert held.text("long", lambda digest: "x" * 100_000)
    assert set(held.texts) == {"a"}


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
