"""`inductoscope fusion`: the table, and one pair in full."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.model.fold import load
from inductoscope.views.report.fusion import Selection, fusion_view, print_fusion, shortened_pair
from inductoscope.views.report.terminal import Printer
from support.examples import Answer, inductoscope, stored, write_recording
from support.schedules import graph, node, refused


def test_the_table_reads_well_in_80_columns_and_the_costliest_comes_first() -> None:
    found = inductoscope("fusion", stored("training_step"), "--json", "-")
    assert found.exit_code == 0
    assert found.data["totals"]["refused"]["pairs"] == 8
    costs = [row["bytes"] or 0 for row in found.data["rows"]]
    assert costs == sorted(costs, reverse=True)


def test_time_is_told_from_bytes_where_the_bandwidth_is_known(snapshot: SnapshotAssertion) -> None:
    unknown = inductoscope("fusion", stored("training_step"))
    assert unknown.words == snapshot
    found = inductoscope("fusion", stored("training_step"), "--bandwidth", "100", "--json", "-")
    assert found.data["time"]["established"] == snapshot
    costly = max(found.data["rows"], key=lambda row: row["bytes"] or 0)
    assert costly["microseconds"] == pytest.approx(costly["bytes"] / 100_000, abs=1e-3)


@pytest.mark.parametrize("outcome", ["fused", "refused", "never"])
def test_one_outcome_of_one_graph(outcome: str) -> None:
    words = ("--outcome", outcome, "--graph", "forward", "--sort", "order", "--json", "-")
    rows = inductoscope("fusion", stored("training_step"), *words).data["rows"]
    assert {row["graph"] for row in rows} == {"0/0 forward"}
    assert {row["outcome"].split()[0] for row in rows} == {outcome}


def why(first: str, second: str, *more: str, name: str = "training_step") -> Answer:
    return inductoscope("fusion", stored(name), "--why", first, second, *more)


def test_nodes_that_share_nothing_were_no_candidates(snapshot: SnapshotAssertion) -> None:
    found = why("op8", "op11", "--graph", "forward")
    assert found.exit_code == 0
    assert found.words == snapshot


@pytest.mark.parametrize(
    ("first", "second"),
    [("op9", "op11"), ("buf9", "buf11"), ("exp", "div"), ("op11", "exp")],
)
def test_a_pair_can_be_named_in_many_ways(
    first: str, second: str, snapshot: SnapshotAssertion
) -> None:
    found = why(first, second, "--graph", "forward", "--json", "-")
    assert found.exit_code == 0
    assert (found.data["pair"]["first"], found.data["pair"]["second"]) == ("op9", "op11")
    first, last = found.data["considered"][0], found.data["pair"]
    assert (first["round"], first["outcome"]) == (1, "refused")
    assert first["torch"] == snapshot
    assert last["outcome"] == "fused"


def test_kernels_stand_for_all_that_is_in_them() -> None:
    recording = load(stored("training_step"))
    names = [kernel.name for kernel in recording.graphs[0].kernels if kernel.language == "C++"]
    found = why(names[0], names[-1], "--graph", "forward")
    assert found.stdout.startswith("op0 var_mean & op8 amax   (0/0 forward)")
    assert "5 more between these two kernels; this is the costliest" in found.words
    found = why("extern_kernels.addmm", "gelu", "--graph", "forward")
    assert "can be 2 pairs: op5 op6 in '0/0 forward'; op6 op7 in '0/0 forward'" in found.words


def test_operations_that_were_never_apart(snapshot: SnapshotAssertion) -> None:
    found = why("sub_1", "exp", "--graph", "forward")
    assert found.words == snapshot


def test_an_operation_is_where_it_is_computed_and_not_where_its_name_runs_on() -> None:
    # torch lists var_mean among the origins of op4 too, which only reads what came of it.
    found = why("var_mean", "add_1", "--graph", "forward")
    assert found.exit_code == 2
    assert re.search(r"can be \d pairs: op\d op4 in '0/0 forward'; op\d op4", found.words)
    # Even a library call has the operations before it as origins.
    found = why("mul", "mm", "--graph", "1/0 backward", name="h200_seed")
    assert found.stdout.startswith("op1 fma -> op2 mm   (1/0 backward)")


def test_an_operation_that_is_computed_twice_is_told_for_each_place(
    snapshot: SnapshotAssertion,
) -> None:
    found = why("add_3", "exp", "--graph", "forward")
    assert found.stdout.startswith("op8 amax -> op9 exp   (0/0 forward)")
    assert found.words == snapshot


def test_a_graph_that_is_not_there(tmp_path: Path) -> None:
    found = inductoscope("fusion", stored("training_step"), "--graph", "nope")
    assert found.exit_code == 2
    assert "There is no graph 'nope'." in found.words
    assert "Graphs of this recording: 0/0 forward, 0/0 backward." in found.words
    empty = write_recording(tmp_path / "r", {"kind": "process"})
    found = inductoscope("fusion", empty, "--graph", "nope")
    assert found.exit_code == 2
    assert "There is no graph 'nope'. Graphs of this recording: none." in found.words


def test_the_table_keeps_both_names_that_why_needs(snapshot: SnapshotAssertion) -> None:
    found = inductoscope("fusion", stored("training_step"), "--outcome", "never")
    table = found.stdout.partition("Pairs\n")[2].partition("\n\n")[0].splitlines()
    rows = [line for line in table if " more: " not in line]
    assert rows
    assert all(re.search(r" op\d+ .*(->|&) op\d+", row) for row in rows)
    assert len({row.index(" 0/0 ") for row in rows}) == 1
    assert max(map(len, found.stdout.splitlines())) <= 80
    label = "op12 convolution_backward -> op13 native_batch_norm"
    assert shortened_pair(label, 30) == snapshot
    assert shortened_pair("op12 convolution_backward -> op13 mul", 30).endswith("-> op13 mul")
    assert shortened_pair(label, 20) == "op12 -> op13"


@pytest.mark.parametrize(
    ("first", "second", "more", "message"),
    [
        ("op1", "op2", (), "Name one by its scheduler nodes, and its graph with --graph."),
        ("op1", "nonsense", (), "Nothing is called 'nonsense'"),
        ("op1", "op2", ("--graph", "9/9"), "There is no graph '9/9'. Graphs of this recording:"),
        ("softmax", "addmm_1", (), "can be 2 pairs: op7 op8 in '0/0 forward'; op7 op9"),
    ],
)
def test_names_that_do_not_tell_which_pair(
    first: str, second: str, more: tuple[str, ...], message: str
) -> None:
    found = why(first, second, *more)
    assert found.exit_code == 2
    assert message in found.words


def test_trying_needs_a_pair(snapshot: SnapshotAssertion) -> None:
    found = inductoscope("fusion", stored("training_step"), "--try")
    assert found.exit_code == 2
    assert found.words == snapshot


def test_what_a_stranger_wrote_is_shown_as_text(tmp_path: Path) -> None:
    nodes = [node("op0", "x", users="op1", origins=["\x1b[31mred\x07"]), node("op1", "buf0")]
    path = graph(tmp_path / "r", nodes, refused("op0", "op1", "\x1b]0;title\x07 <script>"))
    page = io.StringIO()
    print_fusion(Printer(page), fusion_view(load(path), Selection()))
    assert "\x1b" not in page.getvalue()
    assert "\x07" not in page.getvalue()
    assert "<script>" in page.getvalue()
