"""The fusion ledger of stored recordings and of small graphs: outcomes, reasons, bytes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.fusion import ledger
from inductoscope.analysis.fusion.decisions import Groups
from inductoscope.analysis.fusion.ledger import bytes_moved, losses
from inductoscope.analysis.fusion.pairs import Region, common_elements, common_share, read_region
from inductoscope.model.fold import load
from inductoscope.model.schedule import ScheduledNode
from inductoscope.recording.codec import as_json
from inductoscope.recording.events import Fusion
from inductoscope.torch_facts.fusion_reasons import read_loops
from support.examples import inductoscope, stored, write_recording
from support.schedules import NODES, graph, node, only_row, refused

# --- recordings of an older version ---------------------------------------------------------------


def test_a_training_step(snapshot: SnapshotAssertion) -> None:
    rows = ledger(load(stored("training_step")))
    outcomes = [row.outcome for row in rows]
    assert (outcomes.count("fused"), outcomes.count("refused"), outcomes.count("never tried")) == (
        14,
        8,
        18,
    )
    between = next(r for r in rows if r.torch.startswith("intermediate") and r.first == "op4")
    assert between.values == ("between them: op5 (addmm), op6 (mul_4), op7 (addmm_1)",)
    library = next(row for row in rows if (row.first, row.second) == ("op4", "op5"))
    assert library.reason == snapshot
    # 8 x 16 floats, which others need too: only the read would be saved.
    assert library.bytes == 8 * 16 * 4


def test_the_rows_of_the_page_are_plain_data() -> None:
    found = ledger(load(stored("training_step")), bandwidth=1.0)
    rows = json.loads(json.dumps(found, default=as_json))
    wanted = {
        "graph", "first", "second", "first_operations", "second_operations", "relation", "outcome",
        "kind", "score", "bytes", "microseconds", "reason", "torch", "rounds", "what_to_change",
    }  # fmt: skip
    assert wanted <= rows[0].keys()
    assert rows[0].keys().isdisjoint({"moved", "considered", "tries", "device"})
    assert rows[0]["microseconds"] == rows[0]["bytes"] / 1000


def test_a_graph_from_the_cache_says_that_nothing_was_fused(snapshot: SnapshotAssertion) -> None:
    found = inductoscope("fusion", stored("cache_hit"))
    assert found.exit_code == 0
    assert found.words == snapshot


def test_what_is_missing_is_not_taken_for_nothing_to_fuse(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    event = {"kind": "scheduler", "graph": "0/0 inference", "when": "before", "payload": NODES}
    lost = write_recording(tmp_path / "r", {"kind": "compile-start", "compile": "0/0"}, event)
    found = inductoscope("fusion", lost)
    assert found.words == snapshot
    assert "nothing to fuse" not in found.words


# --- small graphs, written by hand ----------------------------------------------------------------


def test_a_buffer_that_nobody_else_needs_costs_its_write_too(tmp_path: Path) -> None:
    nodes = [node("op0", "x", users="op1"), node("op1", "buf0")]
    row = only_row(graph(tmp_path / "r", nodes, refused("op0", "op1", "exceeds max fusion")))
    assert (row.relation, row.outcome, row.bytes) == ("producer-consumer", "refused", 2 * 4096)
    assert row.what_to_change == "Raise max_fusion_size."


def test_the_bytes_that_were_really_moved_count_where_they_are_known(tmp_path: Path) -> None:
    """The second reads half of the buffer; the size of the batch is known by a hint only."""
    first = node("op0", "x", users="op1 OUTPUT", size=["s0", 4], bytes={"x": 4096, "buf0": 4096})
    nodes = [first, node("op1", "buf0", bytes={"buf0": 2048})]
    assert only_row(graph(tmp_path / "r", nodes)).bytes == 2048


def test_a_decision_about_groups_is_one_about_the_nodes_in_them(tmp_path: Path) -> None:
    nodes = [node("op0", "x"), node("op1", "x"), node("op2", "x")]
    joined = {"kind": "fused", "first": "op0", "second": "op1", "result": "op0_op1", "type": "?"}
    path = graph(tmp_path / "r", nodes, joined, refused("op0_op1", "op2", "no shared data"))
    rows = {(row.first, row.second): row for row in ledger(load(path))}
    assert rows["op0", "op1"].outcome == "fused"
    assert rows["op0", "op2"].torch == rows["op1", "op2"].torch == "no shared data"
    # One kernel reads x once more, not two.
    lost = losses(row for row in rows.values() if row.outcome == "refused")
    assert [len(loss.rows) for loss in lost] == [2]


def test_a_node_of_no_operation_lies_between_two_others(tmp_path: Path) -> None:
    nodes = [node("op0", "x"), node("op1", "buf0", origins=[]), node("op2", "buf0 buf1")]
    reason = "intermediate nodes between node1 & node2"
    rows = ledger(load(graph(tmp_path / "r", nodes, refused("op0", "op2", reason))))
    (between,) = (row for row in rows if (row.first, row.second) == ("op0", "op2"))
    assert between.values == ("between them: op1",)


def test_a_group_is_found_by_its_name_even_where_names_hold_an_underscore() -> None:
    names = ["true_graph_0_op1", "op1", "true_graph_0_op12"]
    nodes = [ScheduledNode(name) for name in names]
    groups = Groups(nodes, [Fusion(round=1, first="op1", second="op9", result="op1_op9", type="")])
    assert groups.leaves("true_graph_0_op12_op1_true_graph_0_op1") == (
        "true_graph_0_op12",
        "op1",
        "true_graph_0_op1",
    )
    assert groups.leaves("op1_op9") == ("op1", "op9")
    assert groups.leaves("something_else") == ("something_else",)


def test_a_node_far_down_the_list_of_users_is_never_tried(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """torch pairs a node with the next 64 that use the same buffer."""
    nodes = [node(f"op{number}", "x") for number in range(70)]
    rows = {(row.first, row.second): row for row in ledger(load(graph(tmp_path / "r", nodes)))}
    far = rows["op0", "op65"]
    assert (far.outcome, far.condition, far.confidence) == (
        "never tried",
        "too many users",
        "likely",
    )
    assert far.reason == snapshot
    assert far.tries == ({"max_fusion_buffer_group_pairwise_attempts": 260},)
    near = rows["op0", "op1"]
    assert (near.condition, near.confidence) == ("not known", "unknown")


@pytest.mark.parametrize(
    ("kind", "more", "label"),
    [
        ("NopKernelSchedulerNode", {"ir": "ConcatKernel"}, "no kernel"),
        ("ExternKernelSchedulerNode", {"kernel": "extern_kernels.mm"}, "library call"),
        ("ExternKernelSchedulerNode", {"ir": "DeviceCopy"}, "copy between devices"),
        ("ExternKernelSchedulerNode", {"ir": "FallbackKernel"}, "library call without template"),
        (
            "ExternKernelSchedulerNode",
            {"ir": "UserDefinedTritonKernel"},
            "user-defined Triton kernel",
        ),
    ],
)
def test_what_can_be_fused_with_nothing_says_why(
    tmp_path: Path, kind: str, more: dict[str, Any], label: str
) -> None:
    nodes = [node("op0", "x", users="op1"), node("op1", "buf0", **{"class": kind, **more})]
    row = only_row(graph(tmp_path / "r", nodes))
    assert (row.outcome, row.condition, row.confidence) == ("never tried", label, "proven")


def test_a_pair_that_is_decided_by_its_parts_has_their_reason(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    nodes = [node("op0", "x", users="op1"), node("op1", "buf0")]
    part = refused("op0", "op1", "device mismatch (cuda:0 vs cpu)", within=["op0", "op1"])
    whole = {"kind": "fusion-pair", "first": "op0", "second": "op1", "possible": False}
    row = only_row(graph(tmp_path / "r", nodes, part, whole))
    assert row.reason == snapshot


def test_loops_are_read_as_torch_prints_them(snapshot: SnapshotAssertion) -> None:
    assert str(read_loops("((64,), (128,))")) == snapshot
    assert str(read_loops("((), (s0, 4))")) == snapshot
    assert str(read_loops("((8, 16), ())")) == "8 x 16"
    assert read_loops("something") is None


def test_nothing_is_counted_twice(tmp_path: Path) -> None:
    """Three kernels read x: two of the reads would go away if all were one."""
    nodes = [node(f"op{number}", "x", bytes={"x": 4096}) for number in range(3)]
    rows = ledger(load(graph(tmp_path / "r", nodes)))
    assert len(rows) == 3
    assert bytes_moved(rows) == 2 * 4096


# --- what two nodes read in common ----------------------------------------------------------------


def all_places(region: Region) -> set[int]:
    counts = [range(count) for _, count in region.steps]
    return {
        region.offset + sum(step * n for (step, _), n in zip(region.steps, numbers, strict=True))
        for numbers in itertools.product(*counts)
    }


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), max_size=3), st.integers(0, 20))
def test_a_region_is_the_places_that_an_index_runs_through(
    terms: list[tuple[int, int]], offset: int
) -> None:
    index = " + ".join([*(f"{step}*p{n}" for n, (step, _) in enumerate(terms)), str(offset)])
    region = read_region(index, {f"p{n}": count for n, (_, count) in enumerate(terms)})
    visited = [
        offset + sum(step * n for (step, _), n in zip(terms, numbers, strict=True))
        for numbers in itertools.product(*(range(count) for _, count in terms))
    ]
    if region is not None:
        assert all_places(region) == set(visited)
        assert region.elements == len(visited)


@given(st.data())
def test_common_elements_are_counted_rightly_or_not_at_all(data: st.DataObject) -> None:
    steps = st.lists(st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 4)), max_size=3)
    found = []
    for _ in range(2):
        terms = data.draw(steps)
        names = {f"p{n}": count for n, (_, count) in enumerate(terms)}
        index = " + ".join([*(f"{step}*p{n}" for n, (step, _) in enumerate(terms)), "0"])
        region = read_region(index.replace(" + 0", f" + {data.draw(st.integers(1, 20))}"), names)
        if region is not None:
            found.append(region)
    count = common_elements(*found) if len(found) == 2 else None
    if count is not None:
        assert count == len(all_places(found[0]) & all_places(found[1]))


def test_parts_of_one_buffer_are_told_from_the_same_data_in_another_order() -> None:
    rows, columns = ("128*p0 + p1", "p0: 64, p1: 128"), ("p0 + 128*p1", "p0: 128, p1: 64")
    left = ("128*p0 + p1", "p0: 64, p1: 32")
    right = ("128*p0 + p1 + 32", "p0: 64, p1: 32")
    backwards = ("-128*p0 + p1 + 8064", "p0: 64, p1: 128")
    data_dependent = ("128*tmp0 + p1", "p0: 64, p1: 128")
    for one, other, share in (
        (rows, columns, 1.0),
        (rows, backwards, 1.0),
        (rows, left, 1.0),
        (left, right, 0.0),
        (rows, data_dependent, None),
    ):
        assert common_share([one[0]], one[1], [other[0]], other[1]) == share


def test_what_reads_other_parts_of_a_buffer_costs_nothing(tmp_path: Path) -> None:
    bodies = {
        f"bb{31 * '0'}"[:32]: body_text("128*p0 + p1"),
        f"cc{31 * '0'}"[:32]: body_text("128*p0 + p1 + 32"),
    }
    nodes = [node(f"op{n}", "x", body=body, bytes={"x": 8192}) for n, body in enumerate(bodies)]
    path = graph(tmp_path / "r", nodes, refused("op0", "op1", "no shared data"), more=bodies)
    row = only_row(path)
    assert (row.condition, row.bytes, row.at_most) == ("different parts of a buffer", 0, False)


def body_text(index: str) -> str:
    return (
        f"var_ranges = {{p0: 64, p1: 32}}\nindex0 = {index}\ndef body(self, ops):\n"
        "    get_index = self.get_index('index0')\n    load = ops.load('x', get_index)"
    )
