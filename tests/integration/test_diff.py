"""`inductoscope diff`: two recordings, what differs, and in which stage it began."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inductoscope.analysis.diff.compare import compare, generate_same_code, match
from inductoscope.analysis.diff.entities import Difference
from inductoscope.analysis.diff.materials import STAGES
from inductoscope.analysis.diff.sides import Renaming, graph_lines
from inductoscope.model.fold import load
from inductoscope.model.fx import graph_from
from inductoscope.views.report.difference import likely_cause, verdict
from support.examples import NAMES, Answer, inductoscope, stored, write_recording
from support.programs import Workplace

Event = dict[str, Any]

# One program under two settings and with other names, recorded by one process.
PROGRAM = """
import sys
import inductoscope
import torch
import torch._inductor.config as config

# A hit in a cache would leave nothing to compare.
config.force_disable_caches = True

def block(x, w, b):
    y = torch.nn.functional.layer_norm(x, (64,), w, b)
    return torch.relu(y) + x

def renamed(inputs, weight, shift):
    normed = torch.nn.functional.layer_norm(inputs, (64,), weight, shift)
    positive = torch.relu(normed)
    return positive + inputs

arguments = torch.randn(32, 64), torch.randn(64), torch.randn(64)
for name, function, settings in (
    ("before", block, {}),
    ("after", block, {"max_fusion_size": 2}),
    ("names", renamed, {}),
):
    torch._dynamo.reset()
    with config.patch(settings), inductoscope.record(output=f"{sys.argv[1]}/{name}"):
        torch.compile(function)(*arguments)

torch._dynamo.reset()
torch._dynamo.mark_dynamic(arguments[0], 0, min=2, max=100)
with inductoscope.record(output=f"{sys.argv[1]}/sized"):
    torch.compile(block, options={"epilogue_fusion": False}, fullgraph=True)(*arguments)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recordings that PROGRAM makes."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("diff")
    (folder / "program.py").write_text(PROGRAM)
    place = Workplace(folder, folder / "cache")
    command = [sys.executable, "program.py", str(folder)]
    done = place.call(command, TORCHINDUCTOR_VEC_ISA_OK="1", TORCHINDUCTOR_COMPILE_THREADS="1")
    assert done.returncode == 0, done.stderr
    return folder


def copied(folder: Path, name: str = "relu_add_sum", change: Callable[[Event], Any] = id) -> Path:
    """A copy of a stored recording; `change` edits each event, and returns None to drop it."""
    shutil.copytree(stored(name), folder)
    for path in (folder / "streams").iterdir():
        events = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [event for event in events if change(event) is not None]
        path.write_text("".join(json.dumps(event) + "\n" for event in kept))
    return folder


def diff(first: Path, second: Path) -> Difference:
    return compare(load(first), load(second))


# --- the same -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_the_same_as_itself(name: str) -> None:
    answer = inductoscope("diff", stored(name), stored(name))
    assert answer.exit_code == 0
    assert "differs" not in answer.words
    assert "The runs themselves" not in answer.words


def test_another_run_of_the_same_program_is_the_same_but_for_its_seconds(tmp_path: Path) -> None:
    def slower(event: Event) -> Event:
        if "seconds" in event and event["kind"] == "stage":
            event["seconds"] += 1
        return event

    answer = inductoscope("diff", stored("relu_add_sum"), copied(tmp_path / "b", change=slower))
    assert answer.exit_code == 0
    assert "The same in every stage." in answer.words
    assert re.search(r"lowering +0\.00 +1\.00", answer.stdout)


def test_other_names_are_no_difference(recorded: Path, tmp_path: Path) -> None:
    found = diff(recorded / "before", recorded / "names")
    assert [item.function for item in found.only] == []
    assert not any(graph.differs for graph in found.graphs)
    assert verdict(found) == "The same: only names differ."
    assert generate_same_code(load(recorded / "before"), load(recorded / "names"))
    assert not generate_same_code(load(recorded / "before"), load(recorded / "after"))


def test_code_that_was_not_recorded_is_not_called_the_same(tmp_path: Path) -> None:
    def without_wrapper(event: Event) -> Event | None:
        return None if event["kind"].startswith("wrapper") else event

    first = load(stored("relu_add_sum"))
    assert generate_same_code(first, load(copied(tmp_path / "a")))
    bare = load(copied(tmp_path / "b", change=without_wrapper))
    assert not generate_same_code(first, bare)


def test_other_numbers_are_no_difference(tmp_path: Path) -> None:
    """Buffers, operations, kernels and nodes that are only counted otherwise."""
    folder = copied(tmp_path / "b")
    renamed = {"buf0": "buf7", "op0": "op5", "sum_1": "sum_4", "arg0_1": "arg3_1",
               "cpp_fused_add_relu_sum_0": "cpp_fused_add_relu_sum_9"}  # fmt: skip
    for path in (p for p in folder.rglob("*") if p.is_file()):
        text = path.read_text()
        for old, new in renamed.items():
            text = re.sub(rf"\b{old}\b", new, text)
        path.write_text(text)
    found = diff(stored("relu_add_sum"), folder)
    assert found.only == ()
    assert not any(graph.differs for graph in found.graphs)
    status = {stage.stage: stage.status for stage in found.graphs[0].stages}
    assert (status["dynamo"], status["scheduler"], status["wrapper"]) == ("renamed",) * 3


def test_an_input_that_is_called_like_an_operation_is_no_operation() -> None:
    """The backward graph gets `rsqrt` as an input, and calls ops.rsqrt as well."""
    renaming = Renaming()
    renaming.know(["rsqrt", "mul"], "node")
    assert renaming.text("ops.rsqrt(rsqrt) * mul + buf3") == "ops.rsqrt(node#0) * node#1 + buf#0"


def test_an_order_of_inputs_is_no_name() -> None:
    def graph(arguments: str) -> tuple[str, ...]:
        nodes = [
            {"name": "a", "op": "placeholder"},
            {"name": "b", "op": "placeholder"},
            {"name": "sub", "op": "call_function", "target": "aten.sub", "args": arguments},
        ]
        found = graph_from({"nodes": nodes})
        assert found is not None
        return graph_lines(found)

    assert graph("(a, b)") != graph("(b, a)")


# --- fusion ---------------------------------------------------------------------------------------


def test_a_lost_fusion_is_named_with_torchs_reason(recorded: Path) -> None:
    answer = inductoscope("diff", recorded / "before", recorded / "after")
    assert answer.exit_code == 1
    assert (
        "block (program.py:10), inference: the second run lost the fusion of layer_norm with "
        "layer_norm + relu + add because torch says 'exceeds max fusion'." in answer.words
    )
    assert (
        "Likely cause, the only setting that differs: torch._inductor.config.max_fusion_size: the "
        "default in the first run, 2 in the second." in answer.words
    )
    assert max(map(len, answer.stdout.replace(str(recorded), "").splitlines())) <= 80


def test_arguments_of_torch_compile_and_marked_sizes_are_named_as_the_cause(
    recorded: Path,
) -> None:
    found = diff(recorded / "before", recorded / "sized")
    assert [(fact.name, fact.first, fact.second) for fact in found.settings] == [
        (
            "the call for block (program.py:10)",
            "torch.compile without arguments",
            "torch.compile(options={'epilogue_fusion': False}, fullgraph=True)",
        ),
        (
            "marked sizes of block (program.py:10)",
            "none",
            "mark_dynamic(x, 0, min=2, max=100)",
        ),
    ]
    assert "Likely cause, the only settings that differ:" in likely_cause(found.settings, ())
    shown = inductoscope("show", recorded / "sized").words
    assert "torch._inductor.config.force_disable_caches = True mark_dynamic(x, 0, min" in shown


def test_the_same_settings_are_no_cause(recorded: Path) -> None:
    answer = inductoscope("diff", recorded / "before", recorded / "names")
    assert "cause" not in answer.words


def test_a_gained_fusion_is_the_same_the_other_way_round(recorded: Path) -> None:
    found = diff(recorded / "after", recorded / "before")
    (change,) = found.graphs[0].fusions
    assert (change.what, change.confidence) == ("gained", "proven")
    assert "gained the fusion of layer_norm with layer_norm + relu + add" in verdict(found)


def test_the_stages_before_a_lost_fusion_are_the_same(recorded: Path) -> None:
    graph = diff(recorded / "before", recorded / "after").graphs[0]
    assert graph.first_different is not None
    assert graph.first_different.stage == "fusion"
    assert {s.stage for s in graph.stages if s.status == "different"} >= {"fusion", "kernel"}
    (kernel,) = graph.kernels
    assert (kernel.what, kernel.operations) == ("changed", ("layer_norm", "relu", "add"))


def test_a_changed_kernel_as_a_diff(recorded: Path) -> None:
    words = "diff", recorded / "before", recorded / "after"
    answer = inductoscope(*words, "--kernel", "layer_norm")
    assert "-            for(int64_t x0=" in answer.stdout
    data = inductoscope(*words, "--json", "-").data
    (kernel,) = data["graphs"][0]["kernels"]
    assert kernel["diff"].startswith("--- first\n+++ second\n@@ -")
    refused = inductoscope(*words, "--kernel", "no_such")
    assert refused.exit_code == 2
    assert "No kernel no_such changed. Changed: cpp_fused" in refused.words
    assert "Stage dynamo does not differ." in inductoscope(*words, "--stage", "dynamo").words


# --- the first stage that differs -----------------------------------------------------------------


def planted(folder: Path, kinds: dict[str, Any], old: str, new: str) -> Path:
    """A copy in which the payload of one event says `new` for `old`."""

    def change(event: Event) -> Event:
        if all(event.get(key) == value for key, value in kinds.items()) and "payload" in event:
            digest = event["payload"]
            text = (stored("relu_add_sum") / "payloads" / digest[:2] / digest[2:]).read_text()
            assert old in text
            event["payload"] = digest[::-1]
            path = folder / "payloads" / digest[::-1][:2] / digest[::-1][2:]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace(old, new))
        return event

    return copied(folder, change=change)


@pytest.mark.parametrize(
    ("stage", "kinds", "old", "new"),
    [
        ("dynamo", {"kind": "graph", "stage": "dynamo"}, '"target":"relu"', '"target":"tanh"'),
        ("pre-grad-pass", {"kind": "graph", "stage": "pre-grad"}, "relu", "tanh"),
        ("aot", {"kind": "graph", "stage": "aot-inference"}, "aten.relu", "aten.tanh"),
        ("joint-pass", {"kind": "graph", "stage": "joint"}, "aten.relu", "aten.tanh"),
        ("post-grad-pass", {"kind": "graph", "stage": "post-grad"}, "aten.relu", "aten.tanh"),
        ("scheduler", {"kind": "scheduler", "when": "before"}, "Reduction", "Pointwise"),
        ("kernel", {"kind": "kernel"}, "1.0", "2.0"),
        ("wrapper", {"kind": "wrapper"}, "del arg0_1", "pass"),
    ],
)
def test_the_first_stage_that_differs(
    stage: str, kinds: Event, old: str, new: str, tmp_path: Path
) -> None:
    found = diff(stored("relu_add_sum"), planted(tmp_path / "b", kinds, old, new))
    first = found.graphs[0].first_different
    assert first is not None
    assert first.stage == stage
    assert first.diff.startswith("--- first\n+++ second")
    before = list(STAGES)[: list(STAGES).index(stage)]
    assert {s.status for s in found.graphs[0].stages if s.stage in before} <= {"same"}


def test_ir_that_differs_names_the_operation(tmp_path: Path) -> None:
    def change(event: Event) -> Event:
        if event.get("node") == "add":
            event["ir"]["inner"] = event["ir"]["inner"].replace("constant(1,", "constant(2,")
        return event

    found = diff(stored("relu_add_sum"), copied(tmp_path / "b", change=change))
    assert found.graphs[0].first_different is not None
    assert "stage ir: add = aten.add.Tensor" in verdict(found)
    assert "versions and the recorded environment variables are the same" in found.notes[-1]


def test_a_pass_that_no_longer_applies(tmp_path: Path) -> None:
    def change(event: Event) -> Event | None:
        return None if event.get("name") == "remove_noop_ops" else event

    second = copied(tmp_path / "b", "training_step", change)
    answer = inductoscope("diff", stored("training_step"), second)
    assert answer.exit_code == 1
    assert "remove_noop_ops (joint-pass) changed the graph once, now never" in answer.words


def test_kernels_that_are_in_one_run_alone(tmp_path: Path) -> None:
    def change(event: Event) -> Event | None:
        return None if event.get("name") == "cpp_fused_gelu_1" else event

    second = copied(tmp_path / "b", "training_step", change)
    (kernel,) = diff(stored("training_step"), second).graphs[0].kernels
    assert (kernel.what, kernel.name, kernel.operations) == (
        "removed",
        "cpp_fused_gelu_1",
        ("gelu",),
    )
    (added,) = diff(second, stored("training_step")).graphs[0].kernels
    assert added.what == "added"


# --- what is compared with what -------------------------------------------------------------------


def test_what_has_the_same_key_is_paired_in_order() -> None:
    found = match(["a1", "b1", "a2"], ["a3", "c1", "a4"], lambda x: x[0])
    assert found.pairs == (("a1", "a3"), ("a2", "a4"))
    assert (found.only_first, found.only_second) == (("b1",), ("c1",))


def test_a_function_that_moved_to_another_line_is_the_same_function(tmp_path: Path) -> None:
    def change(event: Event) -> Event:
        if event["kind"] == "compile-start":
            event.update(line=99, file="/elsewhere/script.py")
        return event

    found = diff(stored("relu_add_sum"), copied(tmp_path / "b", change=change))
    assert not found.differs
    assert not found.only


def test_a_function_that_was_renamed_is_found_by_its_graph(tmp_path: Path) -> None:
    def change(event: Event) -> Event:
        if event["kind"] == "compile-start":
            event.update(function="other", file="/elsewhere/other.py")
        return event

    assert not diff(stored("relu_add_sum"), copied(tmp_path / "b", change=change)).only


def test_compiles_without_a_counterpart_are_listed() -> None:
    answer = inductoscope("diff", stored("relu_add_sum"), stored("graph_breaks"))
    assert answer.exit_code == 1
    assert "Only the first run compiled chain" in answer.words


def test_the_same_sentence_is_said_once_with_a_count(tmp_path: Path) -> None:
    once = [{"kind": "compile-start", "compile": f"{n}/0", "function": "f"} for n in range(3)]
    answer = inductoscope(
        "diff", write_recording(tmp_path / "a"), write_recording(tmp_path / "b", *once)
    )
    assert answer.words.count("Only the second run compiled f (unknown place): ") == 1
    assert "(3 times)." in answer.words


# --- the runs themselves --------------------------------------------------------------------------


def test_versions_and_devices_are_said_first() -> None:
    answer = inductoscope("diff", stored("h200_seed"), stored("relu_add_sum"))
    assert answer.exit_code == 1
    head, _, rest = answer.words.partition("Dynamo already captured a different graph")
    assert "torch 2.11.0+cu130 → 2.13.0+cpu" in head
    assert "devices gpu → cpu" in head
    assert "%l_x_: float32[10, 100] cuda:0 became %l_x_: float32[10, 100]" in rest
    assert "triton_per_fused_add_relu_sum_0 (relu, add, sum) removed, its work is in" in rest


def test_a_setting_of_the_environment_is_said(tmp_path: Path) -> None:
    folder = copied(tmp_path / "b")
    manifest = json.loads((folder / "recording.json").read_text())
    manifest["environment"]["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
    (folder / "recording.json").write_text(json.dumps(manifest))
    answer = inductoscope("diff", stored("relu_add_sum"), folder)
    assert "TORCHINDUCTOR_MAX_AUTOTUNE not set → 1" in answer.words
    assert answer.exit_code == 0


# --- what cannot be compared ----------------------------------------------------------------------


def cached(event: Event) -> Event | None:
    """As it would be recorded had the graph come out of a cache."""
    gone = ("lowering", "scheduler", "fusion", "fused", "kernel", "buffers", "inductor", "pass")
    if event["kind"].startswith(gone) or event.get("stage") in ("joint", "post-grad"):
        return None
    if event["kind"] == "wrapper":
        event["kind"] = "cached-graph"
    if event["kind"] == "cache":
        event["outcome"] = "hit"
    return event


def test_a_graph_out_of_a_cache_has_less_to_compare(tmp_path: Path) -> None:
    answer = inductoscope("diff", stored("relu_add_sum"), copied(tmp_path / "b", change=cached))
    assert answer.exit_code == 0
    assert "The same, as far as both runs recorded it" in answer.words
    assert "ir, scheduler, fusion, loop-body, kernel" in answer.words
    assert "the second run has none: the graph came from a cache" in answer.words
    assert "Record with 'run --fresh'." in answer.words


def test_a_run_that_was_killed_says_where_it_ended() -> None:
    found = diff(stored("killed_while_lowering"), stored("killed_while_lowering"))
    assert not found.differs
    finished = diff(stored("killed_while_lowering"), stored("relu_add_sum"))
    assert {item.outcome for item in finished.only} == {"not finished", "compiled"}


def outcome_of(answer: Answer) -> int:
    assert "Traceback" not in answer.stderr
    return answer.exit_code


@pytest.mark.parametrize("part", range(0, 100, 7))
def test_a_recording_that_is_cut_short_is_compared_as_far_as_it_goes(
    part: int, tmp_path: Path
) -> None:
    folder = copied(tmp_path / "b", "training_step")
    stream = max((folder / "streams").iterdir(), key=lambda path: path.stat().st_size)
    data = stream.read_bytes()
    stream.write_bytes(data[: len(data) * part // 100])
    assert outcome_of(inductoscope("diff", stored("training_step"), folder)) in (0, 1)
    assert outcome_of(inductoscope("diff", folder, stored("training_step"))) in (0, 1)


def test_texts_that_are_gone_are_told(tmp_path: Path) -> None:
    folder = copied(tmp_path / "b")
    shutil.rmtree(folder / "payloads")
    answer = inductoscope("diff", stored("relu_add_sum"), folder)
    assert outcome_of(answer) == 0
    assert "has none" in answer.words
    assert "ir: the second run lacks the final graph and the scheduler's nodes" in answer.words
    assert "first differ" not in answer.words


def test_what_stands_in_a_recording_is_shown_as_text(tmp_path: Path) -> None:
    evil = "\x1b[31m</script>"
    folder = write_recording(
        tmp_path / "a",
        {"kind": "process", "pid": 1, "argv": [evil]},
        {"kind": "torch", "version": evil},
        {"kind": "compile-start", "compile": "0/0", "function": evil, "file": evil},
        {"kind": "compile-end", "compile": "0/0", "outcome": evil},
        manifest={"environment": {evil: evil}, "target": {"name": evil}},
    )
    answer = inductoscope("diff", folder, stored("relu_add_sum"))
    assert outcome_of(answer) == 1
    assert "\x1b" not in answer.stdout


# --- which recordings -----------------------------------------------------------------------------


def test_without_names_it_is_the_last_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # So that no path is wrapped.
    recordings = Path(os.environ["INDUCTOSCOPE_RECORDINGS"])
    assert "Found 0 recordings, and diff needs two" in inductoscope("diff").words
    shutil.copytree(stored("relu_add_sum"), recordings / "20260101-000000-a")
    assert inductoscope("diff").exit_code == 2
    shutil.copytree(stored("relu_add_sum"), recordings / "20260102-000000-b")
    answer = inductoscope("diff")
    assert answer.exit_code == 0
    assert "20260101-000000-a" in answer.stdout
    assert "20260102-000000-b" in answer.stdout
    assert inductoscope("diff", stored("training_step")).exit_code == 1


def test_a_folder_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    answer = inductoscope("diff", stored("relu_add_sum"), tmp_path)
    assert answer.exit_code == 2
    assert "is not a recording" in answer.words


def test_json_holds_what_the_text_says() -> None:
    data = inductoscope("diff", stored("h200_seed"), stored("relu_add_sum"), "--json", "-").data
    assert (data["schema"], data["differs"]) == (1, True)
    assert data["graphs"][0]["first_different_stage"] == "dynamo"
    assert data["surroundings"][0] == {
        "name": "torch", "first": "2.11.0+cu130", "second": "2.13.0+cpu",
    }  # fmt: skip
    assert set(data["seconds"]["cpp-compile"])
    assert data["notes"] == []
