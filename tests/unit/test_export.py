"""`inductoscope export`: traces, pictures, data and files that other programs read."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.cli.commands import export as command
from inductoscope.errors import ToolFailure
from inductoscope.model.fold import load
from inductoscope.model.timeline import Lane, Timeline, timeline
from inductoscope.views.export import FORMS
from inductoscope.views.export.folder import Item, kept_files, safe_name, write_all
from inductoscope.views.export.perfetto import trace
from support.examples import NAMES, inductoscope, stored, write_recording

every_recording = pytest.mark.parametrize("name", NAMES)

HOSTILE = '../../../etc/"passwd"\\n"];}<script>\x1b[31m\n'


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def exported(folder: Path, name: str, *forms: str) -> Path:
    words = [word for form in forms for word in ("--form", form)]
    answer = inductoscope("export", stored(name), "--to", folder, *words)
    assert answer.exit_code == 0, answer.stderr
    return folder


# --- Perfetto -------------------------------------------------------------------------------------


@every_recording
def test_a_trace_holds_what_a_viewer_relies_on(name: str) -> None:
    data = trace(timeline(load(stored(name))))
    assert json.loads(json.dumps(data)) == data
    named = {
        (event["pid"], event["tid"])
        for event in data["traceEvents"]
        if (event["ph"], event["name"]) == ("M", "thread_name")
    }
    spans = [event for event in data["traceEvents"] if event["ph"] == "X"]
    assert [span["ts"] for span in spans] == sorted(span["ts"] for span in spans)
    for span in spans:
        assert (span["pid"], span["tid"]) in named
        assert all(isinstance(span[key], int) and span[key] >= 0 for key in ("ts", "dur"))
        assert span["name"]
        assert span["cat"]


@every_recording
def test_spans_of_a_thread_nest(name: str) -> None:
    """A viewer puts a span below the one that is open: it must not outlast it."""
    ends: dict[tuple[int, int], list[int]] = {}
    for event in trace(timeline(load(stored(name))))["traceEvents"]:
        if event["ph"] != "X":
            continue
        under_way = ends.setdefault((event["pid"], event["tid"]), [])
        while under_way and under_way[-1] <= event["ts"]:
            under_way.pop()
        end = event["ts"] + event["dur"]
        assert not under_way or end <= under_way[-1]
        under_way.append(end)


def test_processes_with_the_same_id_are_told_apart(tmp_path: Path) -> None:
    write_recording(tmp_path, {"kind": "process", "pid": 7, "t": 1.0})
    events = '{"kind": "process", "pid": 7, "t": 2.0}\n'
    (tmp_path / "streams" / "7-2.jsonl").write_text(events)
    data = trace(timeline(load(tmp_path)))
    names = [event for event in data["traceEvents"] if event["name"] == "process_name"]
    assert sorted(event["pid"] for event in names) == [7, 8]


def test_many_processes_with_the_same_id_take_no_time() -> None:
    processes = {7: 10_000, 8: 10_000, -1: 10_000}
    lanes = [
        Lane("python", "program", f"{pid} {number}", pid, 0.0, 0.0, ended=True)
        for pid, count in processes.items()
        for number in range(count)
    ]
    data = trace(Timeline(0.0, 0.0, tuple(lanes), ()))
    numbers = [event["pid"] for event in data["traceEvents"] if event["name"] == "process_name"]
    assert len(set(numbers)) == len(lanes)
    assert (numbers[0], numbers[10_000], numbers[20_000]) == (7, 8, 1)


def test_what_never_ended_is_called_so(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    folder = exported(tmp_path / "out", "killed_while_lowering", "perfetto")
    names = [
        event["name"] for event in json.loads((folder / "trace.json").read_text())["traceEvents"]
    ]
    assert names == snapshot


# --- GraphViz -------------------------------------------------------------------------------------

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_ATTRIBUTES = rf"\[\w+={_STRING}(?:, \w+={_STRING})*\]"
# What the files may be made of: nothing else is a line of one.
_LINES = re.compile(
    rf"digraph {_STRING} \{{|  subgraph cluster_\d+ \{{|\s*\}}"
    rf"|\s*(?:label|style)={_STRING};|\s*(?:node|edge) {_ATTRIBUTES};"
    rf"|\s*n\d+ {_ATTRIBUTES};|\s*n\d+ -> n\d+(?: {_ATTRIBUTES})?;"
)


def lines_of(path: Path) -> list[str]:
    lines = path.read_text("utf-8").rstrip("\n").split("\n")
    for line in lines:
        assert _LINES.fullmatch(line), line
    assert sum(line.endswith("{") for line in lines) == sum(line.strip() == "}" for line in lines)
    return lines


def test_pictures_of_graphs_and_of_fused_groups(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", "training_step", "graphviz") / "graphviz"
    captured = lines_of(folder / "0_0-dynamo.dot")
    assert any("torch.nn.functional.gelu" in line or "gelu" in line for line in captured)
    before = lines_of(folder / "0_0_forward-scheduler-before-fusion.dot")
    after = lines_of(folder / "0_0_forward-scheduler-after-fusion.dot")
    assert not any("subgraph" in line for line in before)
    assert sum("subgraph" in line for line in after) == 2
    assert any(r'[label="buf0\nfloat32[8, 1]"]' in line for line in after)
    # Fusion moves nodes into boxes; what flows between them stays.
    assert sum("->" in line for line in before) == sum("->" in line for line in after)
    for path in folder.iterdir():
        lines_of(path)


def hostile_recording(folder: Path) -> Path:
    node = {"name": HOSTILE, "op": "call_function", "target": HOSTILE, "args": f"({HOSTILE},)"}
    leaf = {"name": HOSTILE, "class": HOSTILE, "origins": [HOSTILE], "reads": [HOSTILE],
            "buffers": [{"name": HOSTILE}], "body": "b" * 32}  # fmt: skip
    graph = {"graph": f"0/0 {HOSTILE}", "compile": "0/0"}
    return write_recording(
        folder,
        {"kind": "process", "pid": 1, "argv": ["python", HOSTILE]},
        {"kind": "compile-start", "compile": "0/0", "function": HOSTILE, "file": HOSTILE},
        {"kind": "graph", "stage": HOSTILE, "payload": "a" * 32, **graph},
        {"kind": "stage-start", "stage": HOSTILE, "detail": HOSTILE, **graph},
        {"kind": "scheduler", "when": "after", "payload": "c" * 32, **graph},
        {"kind": "kernel", "name": HOSTILE, "language": "C++", "payload": "d" * 32, **graph},
        {"kind": "kernel", "name": HOSTILE, "language": "C++", "payload": "e" * 32, **graph},
        {"kind": "native", "tool": "c++", "source": HOSTILE, "payload": "d" * 32, "kernel": "k"},
        payloads={
            "a" * 32: {"nodes": [node], "code": "x"},
            "b" * 32: "body",
            "c" * 32: [leaf, {"class": HOSTILE, "nodes": [leaf]}],
            "d" * 32: "\ud800".encode("utf-8", "replace").decode(),
        },
    )


def test_names_that_lead_elsewhere_lead_nowhere(tmp_path: Path) -> None:
    recording = hostile_recording(tmp_path / "recording")
    folder = tmp_path / "a" / "b" / "out"
    answer = inductoscope("export", recording, "--to", folder)
    assert answer.exit_code == 0
    found = files(folder)
    assert files(tmp_path) == {f"a/b/out/{name}" for name in found} | {
        f"recording/{name}" for name in files(recording)
    }
    assert all(re.fullmatch(r"[A-Za-z0-9._/-]+", name) and ".." not in name for name in found)
    assert sum(name.startswith("raw") and name.endswith(".cpp") for name in found) == 3
    for path in (folder / "graphviz").iterdir():
        lines_of(path)
    assert "\x1b" not in answer.stdout


@pytest.mark.parametrize("text", ["", ".", "..", "../..", "/", "-rf", "\x00", "…", "a" * 999])
def test_a_safe_name_is_never_empty_nor_a_way_out(text: str) -> None:
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}", name)


# --- JSON and raw files ---------------------------------------------------------------------------


def test_everything_in_one_file_needs_no_other(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", "training_step", "json")
    data = json.loads((folder / "recording.json").read_text())
    graph = data["recording"]["compiles"][0]["inductor"][0]
    kernel = graph["kernels"][0]
    assert 'extern "C"' in data["payloads"][kernel["digest"]]
    scheduled = json.loads(data["payloads"][graph["scheduled_after"]])
    assert "ops.load" in data["payloads"][scheduled[0]["nodes"][0]["body"]]
    assert [lane["kind"] for lane in data["timeline"]["lanes"]][:2] == ["launcher", "program"]
    assert data["findings"] == []


def test_what_each_stage_made_as_files(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", "training_step", "raw") / "raw"
    assert {
        "0_0-forward/dynamo.py",
        "0_0-forward/forward/ir.txt",
        "0_0-forward/forward/wrapper.py",
        "0_0-forward/forward/kernels/cpp_fused_gelu_1.cpp",
        "0_0-forward/backward/loop-bodies/op0.txt",
        "0_0-forward/passes/001-remove_noop_ops-before.txt",
        "0_0-forward/guards.json",
    } <= files(folder)
    forms = exported(tmp_path / "gpu", "h200_seed", "raw")
    assert any(name.endswith(".ptx") for name in files(forms))


def test_the_manifest_says_what_each_file_is(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", "relu_add_sum")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["forms"] == list(FORMS)
    assert {row["path"] for row in manifest["files"]} | {"manifest.json"} == files(folder)
    kernel = next(row for row in manifest["files"] if row["path"].endswith("sum_0.cpp"))
    assert (kernel["what"], kernel["graph"]) == ("kernel cpp_fused_add_relu_sum_0", "0/0 inference")
    assert all(row["bytes"] == (folder / row["path"]).stat().st_size for row in manifest["files"])


@every_recording
def test_every_recording_can_be_exported(name: str, tmp_path: Path) -> None:
    answer = inductoscope("export", stored(name), "--to", tmp_path / "out", "--json", "-")
    listed: list[dict[str, Any]] = answer.data["files"]
    assert {row["path"] for row in listed} | {"manifest.json"} == files(tmp_path / "out")


# --- names and sizes that only a stranger's recording has -----------------------------------------


def test_files_of_the_same_name_are_numbered(tmp_path: Path) -> None:
    items = [Item(path, "", str) for path in ("a/x.py", "a/X.py", "a/x_2.py", "a/x.py", "a.b/n")]
    written = write_all(tmp_path, [*items, Item("a.b/N", "", str)])
    paths = ["a/x.py", "a/X_2.py", "a/x_2_2.py", "a/x_3.py", "a.b/n", "a.b/N_2"]
    assert [file.path for file in written] == paths


def test_many_files_of_the_same_name_take_no_time(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure):  # Names are found before anything is written.
        write_all(tmp_path, [Item("x.py", "", lambda: "x")] * 20_000, largest=0)


def test_a_name_that_is_both_a_file_and_a_folder(tmp_path: Path) -> None:
    names = ("raw/x.py", "raw/x.py/y.txt", "RAW/X.PY/y/z", "raw/x.py/Y")
    written = write_all(tmp_path, [Item(name, "", lambda: "text") for name in names])
    paths = ["raw/x_2.py", "raw/x.py/y.txt", "RAW/X.PY/y/z", "raw/x.py/Y_2"]
    assert [file.path for file in written] == paths
    assert files(tmp_path) == {*paths, "manifest.json"}


def test_an_export_that_grows_beyond_the_recording_is_stopped(tmp_path: Path) -> None:
    items = [Item(f"raw/{number}.txt", "", lambda: "x" * 1000) for number in range(10)]
    with pytest.raises(ToolFailure, match=r"larger than 0 MiB, far larger than the recording"):
        write_all(tmp_path, items, largest=3500)
    written = {f"raw/{number}.txt" for number in range(3)}
    assert files(tmp_path) == {*written, "manifest.json"}
    # What was written is known to be of an export, so that the next one may replace it.
    assert len(write_all(tmp_path, items, largest=10_000)) == 10


# --- files that are there already -----------------------------------------------------------------


def test_an_export_may_be_made_again(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", "relu_add_sum")
    before = files(folder)
    exported(folder, "relu_add_sum", "raw")
    exported(folder, "relu_add_sum")
    assert files(folder) == before


def test_a_file_of_somebody_else_is_not_written_over(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    own = tmp_path / "out" / "trace.json"
    own.parent.mkdir()
    own.write_text("mine")
    answer = inductoscope("export", stored("relu_add_sum"), "--to", own.parent)
    assert answer.exit_code == 2
    assert answer.words == snapshot
    assert (own.read_text(), files(own.parent)) == ("mine", {"trace.json"})


def test_a_file_that_was_changed_since_is_somebodys(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    folder = exported(tmp_path / "out", "relu_add_sum", "perfetto")
    (folder / "trace.json").write_text("annotated")
    answer = inductoscope("export", stored("relu_add_sum"), "--to", folder)
    assert (answer.exit_code, (folder / "trace.json").read_text()) == (2, "annotated")
    assert answer.words == snapshot


def test_an_export_takes_the_place_of_another_recordings(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", "training_step", "raw", "graphviz")
    alone = files(exported(tmp_path / "alone", "relu_add_sum", "raw"))
    edited = next(path for path in sorted(files(folder) - alone) if path.startswith("raw/"))
    (folder / edited).write_text("annotated")
    (folder / "mine.txt").write_text("mine")
    exported(folder, "relu_add_sum", "raw")
    assert files(folder) == {*alone, edited, "mine.txt"}
    assert sorted(kept_files(folder)) == sorted([edited, "mine.txt"])
    assert not (folder / "graphviz").exists()


@pytest.mark.parametrize("path", ["../victim", "{tmp}/victim", "link/victim", "./../victim"])
def test_a_manifest_of_a_stranger_removes_nothing_elsewhere(path: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    digest = hashlib.sha256(b"mine").hexdigest()
    rows = [{"path": path.format(tmp=tmp_path), "sha256": digest}]
    manifest = {"tool": "inductoscope", "recording": "/another", "files": rows}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    exported(folder, "relu_add_sum", "perfetto")
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("name", ["trace.json", "raw", "manifest.json"])
def test_a_link_is_not_followed(name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(elsewhere if name == "raw" else elsewhere / "file")
    answer = inductoscope("export", stored("relu_add_sum"), "--to", tmp_path / "out")
    assert (answer.exit_code, files(elsewhere)) == (2, set())


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "file").write_text("")
    answer = inductoscope("export", stored("relu_add_sum"), "--to", tmp_path / "file" / "out")
    assert answer.exit_code == 2
    assert answer.words == snapshot


def test_the_forms_of_the_command_are_those_there_are() -> None:
    option = next(p for p in command.command.params if p.name == "forms")
    assert list(option.type.choices) == list(FORMS)  # type: ignore[attr-defined]
