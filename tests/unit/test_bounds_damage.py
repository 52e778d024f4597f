"""Bounds where the text is damaged, enormous or late: something is said, and nothing breaks."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from inductoscope.analysis.bounds.accesses import NO_TIME, BodyJudge, PointBudget
from inductoscope.analysis.bounds.kernels import judge_recording
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import DataDependent, OutOfReach, Proven
from inductoscope.analysis.rules.wrong_indices import out_of_bounds
from inductoscope.model.fold import load
from inductoscope.model.memory import GraphMemory, Room
from inductoscope.torch_facts.index_expressions import NotUnderstood, read_expression
from inductoscope.torch_facts.loop_bodies import read_body
from inductoscope.views.report.bounds import bounds_view, print_bounds
from inductoscope.views.report.terminal import Printer
from support.loop_bodies import PLAIN, body_text, judged, value_text

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "recordings").glob("*/recording"))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "p0.real",
        "(" * 100 + ")" * 100,
        "lambda: 0",
        "p0 if p1 else 2",
        "1e999*p0",
        "p0/0",
        "p0//0",
        "Eq(1, 2, 3)",
        "FloorDiv(p0)",
        "Max()",
    ],
)
def test_what_is_no_index_expression_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        read_expression(text)


@pytest.mark.parametrize("index", ["p0/(1 - 1)", "10**70*p0*10**70", "2**(p0 - 99999999)"])
def test_a_number_that_cannot_be_computed_is_out_of_reach(index: str) -> None:
    assert isinstance(judged(body_text("{p0: 4}", index), ("4",), ("1",)), OutOfReach)


@pytest.mark.parametrize(
    "line", ["ops.check_bounds()", "ops.constant()", "ops.load_seed()", "ops.to_dtype()"]
)
def test_a_line_without_its_arguments_harms_nobody(line: str) -> None:
    text = body_text("{p0: 4}", "p0", f"    other = {line}")
    assert isinstance(judged(text, ("4",), ("1",)), Proven)


def test_a_value_that_doubles_on_every_line_is_given_up() -> None:
    lines = [f"v{n + 1} = ops.add(v{n}, v{n})" for n in range(38)]
    text = value_text(*lines, "value = ops.to_dtype(v38, torch.int64)")
    assert isinstance(judged(text, ("300",), ("1",), indirect=PLAIN), DataDependent)


def test_blocks_that_call_each_other_again_and_again_are_given_up() -> None:
    calls = "\n".join(f"    v{n} = self.block{{}}(mask, 0)" for n in range(10))
    blocks = [f"def block{n}(self, ops):\n{calls.format(*[n + 1] * 10)}" for n in range(8)]
    main = f"def body(self, ops):\n{calls.format(*[0] * 10)}"
    with pytest.raises(NotUnderstood, match="too many lines"):
        read_body("\n".join(("var_ranges = {p0: 4}", main, *blocks)))


def test_what_there_was_no_time_for_is_said_to_be_open() -> None:
    sizes = AdmittedSizes(GraphMemory({"x": Room(("4",), ("1",))}, {}, {}, ()))
    late = PointBudget(1000, until=time.monotonic() - 1)
    body = read_body(body_text("{p0: 4}", "p0 + 1"))
    assert [BodyJudge(body, sizes, {}, late).judge(access) for access in body.accesses] == [
        OutOfReach(NO_TIME)
    ]


def test_a_recording_without_time_for_proofs_says_so() -> None:
    recording = load(next(path for path in RECORDINGS if path.parent.name == "relu_add_sum"))
    view = bounds_view(recording, judge_recording(recording, seconds=-1))
    texts = [access["text"] for graph in view["graphs"] for access in graph["accesses"]]
    assert texts
    assert all(text.endswith(NO_TIME) for text in texts)
    written = io.StringIO()
    print_bounds(Printer(written), view)
    assert "some accesses were not looked at" in written.getvalue()


@pytest.mark.parametrize(
    "body",
    [
        "",
        "var_ranges = {p0: 1e999}\ndef body(self, ops):\n    pass",
        "var_ranges = {p0: 4}\ndef body(self, ops):\n    a = ops.load('buf0', ops.x())",
        "var_ranges = {p0: 4}\ndef body(self, ops):\n    a = ops.load()",
        "var_ranges = {p0: 4}\ndef body(self, ops):\n    a = ops.lt()",
    ],
)
def test_a_damaged_loop_body_never_ends_the_report(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = load(next(path for path in RECORDINGS if path.parent.name == "relu_add_sum"))
    own = recording.payload
    monkeypatch.setattr(
        type(recording),
        "payload",
        lambda self, digest: body if "def body" in own(digest) else own(digest),
    )
    assert list(out_of_bounds(recording)) == []
    kinds = {
        access.verdict.kind for graph in judge_recording(recording) for access in graph.accesses
    }
    assert kinds == {"out-of-reach"}


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        7,
        "x",
        [],
        [[1], {"nodes": 3, "buffers": "x", "indirect": [1]}],
        {"buffers": [1], "symbols": 3},
        {"buffers": {"buf0": {"same_as": "buf0", "inside": "buf0"}}},
        {"buffers": {"buf0": {"size": ["s0//0"], "stride": [None], "itemsize": "four"}}},
        {"symbols": {"s0": {"lower": "x", "upper": []}}, "assumed": ["(((", None]},
    ],
)
def test_a_damaged_description_of_a_graph_never_ends_the_report(
    damaged: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in the place of its buffers, sizes and scheduler nodes."""
    recording = load(next(path for path in RECORDINGS if path.parent.name == "relu_add_sum"))
    (graph,) = (graph for compile_ in recording.compiles for graph in compile_.inductor)
    own = type(recording).data
    for digests in (graph.memory, (graph.scheduled_after, graph.scheduled_before)):
        monkeypatch.setattr(
            type(recording),
            "data",
            lambda self, digest, lost=digests: damaged if digest in lost else own(self, digest),
        )
        kinds = {
            access.verdict.kind for found in judge_recording(recording) for access in found.accesses
        }
        assert "broken" not in kinds
