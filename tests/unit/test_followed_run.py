"""Progress of a long run: how many calls were checked, and when all were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.finding import Claim
from inductoscope.doctor.runs import FollowedRun, Listener
from inductoscope.recording.events import (
    CallsUnchecked,
    Check,
    CompileEnd,
    CompileStart,
    Event,
    GraphState,
    ProcessEnd,
    ProcessStart,
)
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter

After = Callable[..., FollowedRun]


@pytest.fixture
def after(tmp_path: Path) -> After:
    """The state of a program that has just recorded these events, too."""
    folder = create_recording(["python", "train.py"], output=tmp_path / "r")
    so_far = FollowedRun(folder, Listener(lambda text: None))
    streams: dict[str, StreamWriter] = {}

    def after(*events: Event, process: str = "main") -> FollowedRun:
        if process not in streams:
            streams[process] = StreamWriter(folder, first_event=ProcessStart)
        for event in events:
            streams[process].emit(event)
        so_far.look()
        return so_far

    return after


def checked(compile_id: str, call: int = 1, verdict: str = "right") -> Event:
    return Check(compile=compile_id, call=call, verdict=verdict, text="2 values")


def gone_on(compile_id: str) -> tuple[Event, ...]:
    """Called more often than is checked, here twice."""
    return checked(compile_id, 1), checked(compile_id, 2), CallsUnchecked(compile=compile_id)


# --- what is said ---------------------------------------------------------------------------------


def test_it_follows_the_recording_while_that_is_written(
    after: After, snapshot: SnapshotAssertion
) -> None:
    assert str(after()) == snapshot
    said = str(after(checked("0/0"), checked("0/0", 2), checked("1/0", 1, "within-rounding")))
    assert said == snapshot


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["right", "skipped"], "graph checked: 1 agreed, 1 could not be compared"),
        (["right", "right", "wrong"], "graph checked: 2 agreed, 1 differed"),
        (["error", "wrong"], "2 calls of 1 compiled graph checked: 2 differed"),
        (["right", "wrong", "unsteady"], ": 1 agreed, 1 differed, 1 could not be compared"),
    ],
)
def test_what_is_wrong_is_counted_apart_from_what_was_not_compared(
    after: After, verdicts: list[str], said: str
) -> None:
    calls = [checked("0/0", call, verdict) for call, verdict in enumerate(verdicts)]
    assert said in str(after(*calls))


def test_the_latest_claim_counts_in_whatever_order_the_processes_are_read(after: After) -> None:
    """A copy of the program makes claims in a stream of its own, between those of the program."""
    program, copy = (StreamWriter(after().folder, first_event=ProcessStart) for _ in range(2))
    facts = [Failure(WRONG, text) for text in ("program", "copy", "program again")]
    for stream, fact in zip((program, copy, program), facts, strict=True):
        stream.emit(Claim(fact).as_event())
    assert after().finding.every(Failure) == facts


# --- when all calls that are to be checked were made, for --stop ----------------------------------


def test_it_is_complete_once_every_graph_was_called_more_often_than_is_checked(
    after: After,
) -> None:
    # Two graphs that take turns.
    assert not after(checked("0/0"), checked("1/0"), checked("0/0", 2)).is_complete
    assert not after(CallsUnchecked(compile="0/0")).is_complete, "the other has one more to check"
    assert after(checked("1/0", 2), CallsUnchecked(compile="1/0")).is_complete


def test_a_graph_that_a_recompile_has_replaced_is_not_waited_for(after: After) -> None:
    """Dynamo compiles a function again for dynamic sizes when it meets a second size."""
    assert not after(checked("0/0"), checked("0/1"), checked("0/1", 2)).is_complete
    assert after(CallsUnchecked(compile="0/1")).is_complete


def test_a_function_that_is_called_once_is_not_waited_for(after: After) -> None:
    assert after(checked("0/0"), *gone_on("1/0")).is_complete


def test_it_is_not_complete_while_a_new_graph_is_compiled_or_checked(after: After) -> None:
    assert after(*gone_on("0/0")).is_complete
    assert not after(CompileStart(compile="0/1")).is_complete
    captured = GraphState(stage="dynamo", compile="0/1", payload="")
    ended = CompileEnd(compile="0/1", seconds=1.0, outcome="compiled")
    assert not after(captured, ended).is_complete, "it is about to be called"
    assert not after(checked("0/1")).is_complete
    assert after(checked("0/1", 2), CallsUnchecked(compile="0/1")).is_complete


@pytest.mark.parametrize("outcome", ["raised", "skipped"])
def test_a_compile_that_comes_to_nothing_is_not_waited_for(after: After, outcome: str) -> None:
    captured = GraphState(stage="dynamo", compile="0/1", payload="")
    ended = CompileEnd(compile="0/1", seconds=1.0, outcome=outcome)
    so_far = after(*gone_on("0/0"), CompileStart(compile="0/1"), captured, ended)
    assert so_far.is_complete


def test_every_process_has_to_be_through_with_its_graphs_unless_it_has_ended(after: After) -> None:
    after(*gone_on("0/0"))
    assert not after(checked("0/0"), process="another").is_complete
    assert after(ProcessEnd(dropped=0), process="another").is_complete


def test_a_run_in_which_no_call_is_checked_is_not_ended(after: After) -> None:
    """As one that tries whether the program ends well with results laid out as in eager."""
    assert not after(CallsUnchecked(compile="0/0")).is_complete
