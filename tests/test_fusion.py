"""The fusion ledger: every pair of nodes that share data, what became of it, and why."""

from __future__ import annotations

import ast
import importlib.util
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import Answer, inductoscope, stored, write_recording
from inductoscope.fusion import LedgerRow, ledger, ledger_rows
from inductoscope.fusion.decisions import Groups
from inductoscope.fusion.overlaps import Region, common_elements, common_share, read_region
from inductoscope.fusion.reasons import REASONS, explain_reason
from inductoscope.fusion.silent import read_loops
from inductoscope.fusion.totals import bytes_moved, losses
from inductoscope.model.entities import Fusion, Recording
from inductoscope.model.fold import load
from inductoscope.model.schedule import ScheduledNode
from inductoscope.report.fusion import Selection, fusion_view, print_fusion, shortened_pair
from inductoscope.report.terminal import Printer
from programs import Outcome, Workplace

# Vertical, horizontal and reduction fusions, and refusals of several kinds, in one graph.
EVERY_KIND = """
import contextlib
import torch, torch._inductor.config as config

config.cpp.max_horizontal_fusion_size = 3

def several(x, y, weight, scale):
    a = torch.relu(x) + 1
    b = a * y
    soft = torch.softmax(b @ weight, dim=-1)
    shifted = b.flip(0) + y
    beside = [(x * n).sin() for n in range(2, 7)]
    scaled = weight * scale, y[:8] * scale
    part = y[:8] * 3
    both = part, torch.cat([part, y[:4]])
    sums = b.sum(-1), a.sum(0)
    return *sums, soft, x.t().contiguous(), shifted, *beside, *scaled, *both
"""

ON_THE_CPU = """
if __name__ == "__main__":
    torch.manual_seed(0)
    torch.compile(several)(
        torch.randn(64, 128), torch.randn(64, 128), torch.randn(128, 32), torch.randn(1)
    )
"""

ON_NO_GPU = """
import virtual_gpu
virtual_gpu.install()

class Enough(BaseException):
    pass

def stop(nodes):
    raise Enough  # Everything is fused: no kernel needs to be compiled for it.

config._post_fusion_custom_pass = stop
with virtual_gpu.tensors(), contextlib.suppress(Enough):
    shapes = ((64, 128), (64, 128), (128, 32), (1,))
    torch.compile(several)(*(virtual_gpu.tensor(*s, dtype=torch.float32) for s in shapes))
"""


# What the payload with a hand-written schedule is called.
NODES = "aa" + 30 * "1"


@dataclass(frozen=True)
class Run:
    """A recording, and what torch itself logged of the same run."""

    path: Path
    log: str

    @property
    def recording(self) -> Recording:
        return load(self.path)


def recorded(folder: Path, program: str, **more: str) -> Run:
    folder.mkdir()
    workplace = Workplace(folder, folder / "cache")
    workplace.write("several.py", program)
    outcome: Outcome = workplace.run(
        "several.py", TORCH_LOGS="+fusion", TORCHINDUCTOR_VEC_ISA_OK="1", **more
    )
    assert outcome.exit_code == 0, outcome.stderr[-3000:]
    return Run(outcome.recording_path, outcome.stderr)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("torch")
    return recorded(tmp_path_factory.mktemp("runs") / "cpu", EVERY_KIND + ON_THE_CPU)


@pytest.fixture(scope="module")
def on_no_gpu(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Triton kernels for a GPU that is not there: only their text is needed."""
    pytest.importorskip("triton")
    program = f"import virtual_gpu\n{EVERY_KIND}{ON_NO_GPU}"
    folder = tmp_path_factory.mktemp("runs") / "gpu"
    return recorded(folder, program, PYTHONPATH=str(Path(__file__).parent))


@pytest.fixture(params=["on_cpu", "on_no_gpu"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(request.param)
    return found


# --- the ledger beside torch's own log ------------------------------------------------------------


@dataclass(frozen=True)
class Logged:
    """A line of TORCH_LOGS=+fusion: 'cannot fuse A with B: reason', or 'fusing A with B'."""

    round: int
    first: str
    second: str
    reason: str


def logged(text: str) -> Iterator[Logged]:
    round_ = 0
    for line in text.splitlines():
        said = line.partition("[__fusion] ")[2]
        round_ += said.startswith("fuse_nodes_once, candidates")
        if found := re.match(r"cannot fuse (\S+) with (\S+): (.*)", said):
            yield Logged(round_, *found.groups())
        elif found := re.match(r"fusing (\S+) with (\S+)$", said):
            yield Logged(round_, *found.groups(), reason="")


def test_the_ledger_says_of_every_pair_what_torchs_own_log_says(run: Run) -> None:
    lines = set(logged(run.log))
    rows = ledger(run.recording)
    items = [item for row in rows for item in row.considered]

    ours = {Logged(i.round, i.first, i.second, "") for i in items if i.outcome == "fused"}
    ours |= {
        Logged(i.round, i.first, i.second, reason)
        for i in items
        for reason in i.torch.split("; ")
        if reason
    }

    assert {line.reason for line in lines} >= {"", "no shared data"}
    assert ours == lines


def test_the_outcome_of_every_pair_follows_from_torchs_own_log(run: Run) -> None:
    """Two nodes are fused if and only if the log's 'fusing' lines put them into one group."""
    group: dict[str, set[str]] = {}
    for line in logged(run.log):
        if not line.reason:
            members = {*line.first.split("_"), *line.second.split("_")}
            for name in members:
                group[name] = members
    for row in ledger(run.recording):
        together = row.second in group.get(row.first, ())
        assert (row.outcome == "fused") == together, row


def test_every_kind_of_outcome_is_there(on_cpu: Run) -> None:
    rows = ledger(on_cpu.recording)
    fused = {row.kind for row in rows if row.outcome == "fused"}
    refused = {row.label for row in rows if row.outcome == "refused"}
    assert fused >= {"vertical", "horizontal", "vertical reduction"}
    assert refused >= {
        "no shared data: another order",
        "memory deps did not match",
        "score_fusion_memory_threshold",
        "different loops",
        "cpp.max_horizontal_fusion_size",
    }
    never = {row.label for row in rows if row.outcome == "never tried"}
    assert never == {"library call", "no kernel"}
    assert {row.confidence for row in rows} == {"proven"}


def row_of(rows: Iterable[LedgerRow], label: str) -> LedgerRow:
    return next(row for row in rows if row.label == label)


def test_a_refusal_comes_with_the_values_that_decided(on_cpu: Run) -> None:
    rows = ledger(on_cpu.recording)
    flipped = row_of(rows, "memory deps did not match")
    assert flipped.torch == "memory deps did not match"
    assert any(re.search(r"writes buf\d+\[", value) for value in flipped.values)
    assert any(re.search(r"reads buf\d+\[.*8064", value) for value in flipped.values)
    tiny = row_of(rows, "score_fusion_memory_threshold")
    assert "shared 4 bytes, score_fusion_memory_threshold 10" in tiny.values


def test_a_refusal_without_a_word_of_torch_is_told_from_what_torch_looked_at(on_cpu: Run) -> None:
    rows = ledger(on_cpu.recording)
    many = row_of(rows, "cpp.max_horizontal_fusion_size")
    assert many.torch == ""
    assert "3 + 3 operations" in many.reason
    assert "at most 3" in many.reason
    assert many.tries == ({"cpp.max_horizontal_fusion_size": 1024},)
    loops = row_of(rows, "different loops")
    assert loops.reason == (
        "Their loops differ. The first runs over 8192; the second over 64 x 128, reducing 128."
    )


def test_nodes_that_came_together_by_way_of_a_group_say_which(on_cpu: Run) -> None:
    rows = [row for row in ledger(on_cpu.recording) if "through the group" in row.reason]
    assert rows
    for row in rows:
        assert row.first not in row.reason.split(" ") or row.second not in row.reason.split(" ")
        assert len({*row.groups}) == 1


def test_what_might_help_is_tried_and_the_result_is_proven(on_cpu: Run) -> None:
    """The graph is compiled again: once as it was, once with the limit lifted."""
    row = row_of(ledger(on_cpu.recording), "cpp.max_horizontal_fusion_size")
    found = inductoscope("fusion", on_cpu.path, "--why", row.first, row.second, "--try", "--quiet")
    assert found.exit_code == 0
    assert "Tried, by compiling the graph again (nothing was run or timed)" in found.stdout
    assert "Proven: with cpp.max_horizontal_fusion_size=1024 the two are fused." in found.words


# --- torch's reasons ------------------------------------------------------------------------------


def reasons_in_torch() -> Iterator[str]:
    """Every reason in the installed torch's source: read, not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("torch is not installed")
    folder = Path(spec.origin).parent / "_inductor"
    for path in (folder / "scheduler.py", folder / "choices.py", *(folder / "codegen").rglob("*")):
        text = path.read_text("utf-8") if path.suffix == ".py" else ""
        if "WhyNoFuse" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and gives_reason(node.func) and node.args:
                    yield as_said(node.args[0])


def gives_reason(function: ast.expr) -> bool:
    """`why(...)`, or `WhyNoFuse(a, b)(...)`."""
    if isinstance(function, ast.Call):
        return isinstance(function.func, ast.Name) and function.func.id.startswith("WhyNoFuse")
    return isinstance(function, ast.Name) and function.id == "why"


def as_said(text: ast.expr) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    words = [str(part.value) if isinstance(part, ast.Constant) else "64" for part in parts]
    return "".join(words).replace("%s", "64")


def test_every_reason_of_the_installed_torch_is_explained() -> None:
    found = set(reasons_in_torch())
    assert len(found) > 50
    assert [reason for reason in found if not explain_reason(reason).words] == []


def test_a_reason_that_is_not_known_is_left_as_it_is() -> None:
    assert explain_reason("the moon is full").words == ""
    assert explain_reason("numel/rnumel mismatch (reduce) (" + ", " * 10_000).words == ""


def test_numbers_in_a_reason_go_into_the_words() -> None:
    found = explain_reason("numel/rnumel mismatch (non-reduce) (64, 128), (1, 1)")
    assert "computes 64 elements, the second 128" in found.words
    assert found.label == "numel/rnumel mismatch"


def test_every_reason_says_what_to_do_or_that_nothing_can_be_done() -> None:
    silent = [reason.pattern for reason in REASONS if not reason.change]
    assert silent == ["node1 must go before node2"]


# --- recordings of an older version ---------------------------------------------------------------


def test_a_training_step() -> None:
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
    assert library.reason == (
        "op5 calls a library (extern_kernels.addmm), whose loops torch cannot extend."
    )
    # 8 x 16 floats, which others need too: only the read would be saved.
    assert library.bytes == 8 * 16 * 4


def test_the_rows_of_the_page_are_plain_data() -> None:
    rows = ledger_rows(load(stored("training_step")), bandwidth=1.0)
    wanted = {
        "graph", "first", "second", "first_operations", "second_operations", "relation", "outcome",
        "kind", "score", "bytes", "microseconds", "reason", "torch", "rounds", "what_to_change",
    }  # fmt: skip
    assert wanted <= rows[0].keys()
    assert json.loads(json.dumps(rows)) == rows
    assert rows[0]["microseconds"] == rows[0]["bytes"] / 1000


def test_a_graph_from_the_cache_says_that_nothing_was_fused() -> None:
    found = inductoscope("fusion", stored("cache_hit"))
    assert found.exit_code == 0
    assert "came from torch's cache" in found.words


def test_what_is_missing_is_not_taken_for_nothing_to_fuse(tmp_path: Path) -> None:
    event = {"kind": "scheduler", "graph": "0/0 inference", "when": "before", "payload": NODES}
    lost = write_recording(tmp_path / "r", {"kind": "compile-start", "compile": "0/0"}, event)
    found = inductoscope("fusion", lost)
    assert "0/0 inference: the list of scheduler nodes is missing or damaged" in found.words
    assert "nothing to fuse" not in found.words


# --- small graphs, written by hand ----------------------------------------------------------------


def node(name: str, reads: str, **more: Any) -> dict[str, Any]:
    """A scheduler node opN that writes bufN."""
    made = f"buf{name.removeprefix('op')}"
    users = more.pop("users", "OUTPUT").split()
    size = [str(n) for n in more.pop("size", [1024])]
    buffer = {"name": made, "users": users, "dtype": "torch.float32", "size": size, "stride": ["1"]}
    return {
        "name": name, "class": "SchedulerNode", "ir": "ComputedBuffer", "device": "cpu",
        "reads": reads.split(), "writes": [made], "buffers": [buffer], "origins": [f"x_{name}"],
        **more,
    }  # fmt: skip


def graph(
    folder: Path,
    nodes: list[dict[str, Any]],
    *events: dict[str, Any],
    more: Mapping[str, str] | None = None,
) -> Path:
    """A recording of one graph with these nodes, in which this was decided about fusion."""
    common = {"graph": "0/0 inference", "round": 1}
    return write_recording(
        folder,
        {"kind": "compile-start", "compile": "0/0"},
        {"kind": "scheduler", "graph": "0/0 inference", "when": "before", "payload": NODES},
        *({**common, **event} for event in events),
        {"kind": "fusion-round", **common, "before": len(nodes), "after": len(nodes)},
        payloads={NODES: nodes, **(more or {})},
    )


def refused(first: str, second: str, reason: str, **more: Any) -> dict[str, Any]:
    names = {"first": first, "second": second}
    return {"kind": "fusion-pair", **names, "possible": False, "reasons": [reason], **more}


def only_row(path: Path) -> LedgerRow:
    (row,) = ledger(load(path))
    return row


def test_a_buffer_that_nobody_else_needs_costs_its_write_too(tmp_path: Path) -> None:
    nodes = [node("op0", "x", users="op1"), node("op1", "buf0")]
    row = only_row(graph(tmp_path / "r", nodes, refused("op0", "op1", "exceeds max fusion")))
    assert (row.relation, row.outcome, row.bytes) == ("producer-consumer", "refused", 2 * 4096)
    assert row.change == "Raise max_fusion_size."


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


def test_a_group_is_found_by_its_name_even_where_names_hold_an_underscore() -> None:
    names = ["true_graph_0_op1", "op1", "true_graph_0_op12"]
    nodes = [ScheduledNode(name, *[""] * 5, *[()] * 5, "", "", (), ()) for name in names]  # type: ignore[arg-type]
    groups = Groups(nodes, [Fusion(1, "op1", "op9", "op1_op9", "", None, {})])
    assert groups.leaves("true_graph_0_op12_op1_true_graph_0_op1") == (
        "true_graph_0_op12",
        "op1",
        "true_graph_0_op1",
    )
    assert groups.leaves("op1_op9") == ("op1", "op9")
    assert groups.leaves("something_else") == ("something_else",)


def test_a_node_far_down_the_list_of_users_is_never_tried(tmp_path: Path) -> None:
    """torch pairs a node with the next 64 that use the same buffer."""
    nodes = [node(f"op{number}", "x") for number in range(70)]
    rows = {(row.first, row.second): row for row in ledger(load(graph(tmp_path / "r", nodes)))}
    far = rows["op0", "op65"]
    assert (far.outcome, far.label, far.confidence) == ("never tried", "too many users", "likely")
    assert "64 other nodes that use the same buffer lie between them" in far.reason
    assert far.tries == ({"max_fusion_buffer_group_pairwise_attempts": 260},)
    near = rows["op0", "op1"]
    assert (near.label, near.confidence) == ("not known", "unknown")


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
            "Triton kernel of the user's",
        ),
    ],
)
def test_what_can_be_fused_with_nothing_says_why(
    tmp_path: Path, kind: str, more: dict[str, Any], label: str
) -> None:
    nodes = [node("op0", "x", users="op1"), node("op1", "buf0", **{"class": kind, **more})]
    row = only_row(graph(tmp_path / "r", nodes))
    assert (row.outcome, row.label, row.confidence) == ("never tried", label, "proven")


def test_a_pair_that_is_decided_by_its_parts_has_their_reason(tmp_path: Path) -> None:
    nodes = [node("op0", "x", users="op1"), node("op1", "buf0")]
    part = refused("op0", "op1", "device mismatch (cuda:0 vs cpu)", within=["op0", "op1"])
    whole = {"kind": "fusion-pair", "first": "op0", "second": "op1", "possible": False}
    row = only_row(graph(tmp_path / "r", nodes, part, whole))
    assert row.reason == "The first runs on cuda:0, the second on cpu."


def test_loops_are_read_as_torch_prints_them() -> None:
    assert str(read_loops("((64,), (128,))")) == "64 x 128, reducing 128"
    assert str(read_loops("((), (s0, 4))")) == "s0 x 4, reducing all"
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
    assert (row.label, row.bytes, row.certain) == ("different parts of a buffer", 0, True)


def body_text(index: str) -> str:
    return (
        f"var_ranges = {{p0: 64, p1: 32}}\nindex0 = {index}\ndef body(self, ops):\n"
        "    get_index = self.get_index('index0')\n    load = ops.load('x', get_index)"
    )


# --- the command ----------------------------------------------------------------------------------


def test_the_table_reads_well_in_80_columns_and_the_costliest_comes_first() -> None:
    found = inductoscope("fusion", stored("training_step"))
    assert found.exit_code == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert "refused           8 pairs" in found.stdout
    assert "Costliest refusals" in found.stdout
    assert "To change: max_autotune" in found.words


def test_time_is_told_from_bytes_where_the_bandwidth_is_known() -> None:
    unknown = inductoscope("fusion", stored("training_step"))
    assert "not known for cpu; give --bandwidth GB/s" in unknown.words
    found = inductoscope("fusion", stored("training_step"), "--bandwidth", "100", "--json", "-")
    assert found.data["time"]["established"] == "bytes / bandwidth, not measured"
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


def test_nodes_that_share_nothing_were_no_candidates() -> None:
    found = why("op8", "op11", "--graph", "forward")
    assert found.exit_code == 0
    assert "They use no common buffer, so torch makes no candidate of them" in found.words


@pytest.mark.parametrize(
    ("first", "second"),
    [("op9", "op11"), ("buf9", "buf11"), ("exp", "div"), ("op11", "exp")],
)
def test_a_pair_can_be_named_in_many_ways(first: str, second: str) -> None:
    found = why(first, second, "--graph", "forward")
    assert found.exit_code == 0
    assert found.stdout.startswith("op9 exp -> op11 div   (0/0 forward)")
    assert "round 1: op9 with op11: refused" in found.stdout
    assert "torch intermediate nodes between node1 & node2" in found.words
    assert "fused (through the group op8_op9_op10) in round 2" in found.words


def test_kernels_stand_for_all_that_is_in_them() -> None:
    recording = load(stored("training_step"))
    names = [kernel.name for kernel in recording.graphs[0].kernels if kernel.language == "C++"]
    found = why(names[0], names[-1], "--graph", "forward")
    assert found.stdout.startswith("op0 var_mean & op8 amax   (0/0 forward)")
    assert "5 more between these two kernels; this is the costliest" in found.words
    found = why("extern_kernels.addmm", "gelu", "--graph", "forward")
    assert "can be 2 pairs: op5 op6 in '0/0 forward'; op6 op7 in '0/0 forward'" in found.words


def test_operations_that_were_never_apart() -> None:
    found = why("sub_1", "exp", "--graph", "forward")
    assert "Both stand for the same scheduler node (op9)" in found.words


def test_an_operation_is_where_it_is_computed_and_not_where_its_name_runs_on() -> None:
    # torch lists var_mean among the origins of op4 too, which only reads what came of it.
    found = why("var_mean", "add_1", "--graph", "forward")
    assert found.exit_code == 2
    assert re.search(r"can be \d pairs: op\d op4 in '0/0 forward'; op\d op4", found.words)
    # Even a library call has the operations before it as origins.
    found = why("mul", "mm", "--graph", "1/0 backward", name="h200_seed")
    assert found.stdout.startswith("op1 fma -> op2 mm   (1/0 backward)")


def test_an_operation_that_is_computed_twice_is_told_for_each_place() -> None:
    found = why("add_3", "exp", "--graph", "forward")
    assert found.stdout.startswith("op8 amax -> op9 exp   (0/0 forward)")
    assert "both have a part in op9: one loop from the start, before any fusion" in found.words


def test_a_graph_that_is_not_there(tmp_path: Path) -> None:
    found = inductoscope("fusion", stored("training_step"), "--graph", "nope")
    assert found.exit_code == 2
    assert "There is no graph 'nope'." in found.words
    assert "Graphs of this recording: 0/0 forward, 0/0 backward." in found.words
    empty = write_recording(tmp_path / "r", {"kind": "process"})
    found = inductoscope("fusion", empty, "--graph", "nope")
    assert found.exit_code == 2
    assert "There is no graph 'nope'. Graphs of this recording: none." in found.words


def test_the_table_keeps_both_names_that_why_needs() -> None:
    found = inductoscope("fusion", stored("training_step"), "--outcome", "never")
    table = found.stdout.partition("Pairs\n")[2].partition("\n\n")[0].splitlines()
    rows = [line for line in table if " more: " not in line]
    assert rows
    assert all(re.search(r" op\d+ .*(->|&) op\d+", row) for row in rows)
    assert len({row.index(" 0/0 ") for row in rows}) == 1
    assert max(map(len, found.stdout.splitlines())) <= 80
    label = "op12 convolution_backward -> op13 native_batch_norm"
    assert shortened_pair(label, 30) == "op12 convo... -> op13 nativ..."
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


def test_trying_needs_a_pair() -> None:
    found = inductoscope("fusion", stored("training_step"), "--try")
    assert found.exit_code == 2
    assert "--why A B --try" in found.words


def test_what_a_stranger_wrote_is_shown_as_text(tmp_path: Path) -> None:
    nodes = [node("op0", "x", users="op1", origins=["\x1b[31mred\x07"]), node("op1", "buf0")]
    path = graph(tmp_path / "r", nodes, refused("op0", "op1", "\x1b]0;title\x07 <script>"))
    page = io.StringIO()
    print_fusion(Printer(page), fusion_view(load(path), Selection()))
    assert "\x1b" not in page.getvalue()
    assert "\x07" not in page.getvalue()
    assert "<script>" in page.getvalue()
