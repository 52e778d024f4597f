"""A finding grows by claims, and survives the way through the recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.doctor.failure import ERROR, WRONG, Failure, Location
from inductoscope.doctor.finding import (
    PROGRAM,
    SMALLEST_GRAPH,
    WHOLE_GRAPH,
    FailureFinding,
    Mistake,
    Noticed,
    Reduction,
    Script,
    finding_in,
)
from inductoscope.recording.events import ClaimMade, ProcessStart
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter
from support.findings import finding

FAILURE = Failure(ERROR, "KeyError", stage="scheduler")


@pytest.mark.parametrize(
    ("before", "left", "is_located"),
    [(40, 0, False), (40, 40, False), (40, 2, True), (1, 1, True)],
    ids=["not cut down yet", "could not be cut down", "cut down", "nothing to cut"],
)
def test_what_is_left_of_a_graph_is_a_place_once_something_was_cut_off(
    before: int, left: int, is_located: bool
) -> None:
    found = finding(FAILURE, nodes=left, of=before, operations=("aten.tanh",))
    assert found.is_located is is_located


def test_a_name_is_a_place_in_a_graph_of_any_size() -> None:
    found = finding(FAILURE, location=Location(operation="aten.tanh"), nodes=40, of=40)
    assert found.is_located


def test_a_claim_makes_a_new_finding_and_the_latest_of_a_kind_counts() -> None:
    first = FailureFinding().claimed(Noticed("0/0")).claimed(FAILURE, PROGRAM)
    whole = first.claimed(Reduction(of=12), WHOLE_GRAPH)
    small = whole.claimed(Reduction(2, 12), SMALLEST_GRAPH)
    assert (first.reduction.of, whole.reduction.nodes, small.reduction.nodes) == (0, 0, 2)
    assert small.latest(Reduction, WHOLE_GRAPH) == Reduction(of=12)
    assert small.fact(Script) == Script()


def test_what_smaller_graphs_show_is_added_to_the_failure() -> None:
    shown = Failure(WRONG, "buf0 differs", aspect="value")
    found = FailureFinding().claimed(Failure(WRONG, "output 0 is 2", where=("output 0",)), PROGRAM)
    assert not found.reproduces
    found = found.claimed(shown, WHOLE_GRAPH)
    assert found.reproduces
    assert found.failure == Failure(WRONG, "buf0 differs", aspect="value", where=("output 0",))


def test_a_finding_survives_the_way_through_the_recording(tmp_path: Path) -> None:
    folder = create_recording(("python", "x.py"), output=tmp_path / "out")
    assert finding_in(folder) is None
    found = finding(FAILURE, Mistake("ü"), location=Location("lowering", names=("a", "b")))
    stream = StreamWriter(folder, first_event=ProcessStart)
    stream.emit(ClaimMade(fact="Unheard", data={}))
    for claim in found.claims:
        stream.emit(claim.as_event())
    assert finding_in(folder) == found
    (path,) = (folder / "streams").glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-20])  # A process that was killed while it wrote.
    damaged = finding_in(folder)
    assert damaged is not None
    assert damaged.claims == found.claims[:-1]
