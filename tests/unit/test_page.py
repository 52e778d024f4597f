"""The data behind the page: what each pane holds, and that a click in one finds the others."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.model.fold import load
from inductoscope.recording.location import this_machine
from inductoscope.torch_facts.triton_kernels import source_links
from inductoscope.views.page import document
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.document import compact, write_page
from inductoscope.views.page.live import LiveServer
from support.examples import NAMES, inductoscope, stored, write_recording
from support.kept_recordings import NOBODY, rename_stream
from support.linking import linked_panes

WEB = Path(__file__).resolve().parents[2] / "web"
ASSETS = Path(document.__file__).parent / "assets"


def as_sent(value: Any) -> Any:
    """A part of the page as a browser gets it."""
    return json.loads(compact(value))


def linked(name: str) -> Any:
    """The first graph, as the browser links it."""
    return as_sent(linked_panes(load(stored(name))))


def chunk(name: str, wanted: str) -> Any:
    return as_sent(Contents(load(stored(name))).chunks[wanted]())


def lines_of(graph: dict[str, Any], operation: str) -> dict[str, list[str]]:
    """Lines highlighted in every pane when an operation is chosen."""
    texts = {pane["id"]: pane["text"].split("\n") for pane in graph["panes"]}
    chosen = next(item for item in graph["operations"] if item["name"] == operation)
    return {
        pane: [texts[pane][number - 1].strip() for number in numbers]
        for pane, numbers in chosen["lines"].items()
    }


# --- linked panes ---------------------------------------------------------------------------------


def test_an_operation_is_highlighted_at_every_level() -> None:
    lines = lines_of(linked("relu_add_sum"), "relu")
    assert lines["python"] == ["return x.relu().add(1).sum(-1)"]
    assert lines["dynamo"] == ["%relu = relu(l_x_)  # float32[10, 100]"]
    assert lines["post-grad"] == ["%relu = aten.relu.default(arg0_1)  # float32[10, 100]"]
    assert "# relu = aten.relu.default" in lines["ir"]
    assert "op0: SchedulerNode(ComputedBuffer(Reduction))" in lines["scheduler"][0]
    assert "relu = ops.relu(load)" in lines["loop-body"]
    assert any("at::vec::clamp_min" in line for line in lines["kernel"])
    assert any(line.startswith("cpp_fused_add_relu_sum_0(") for line in lines["wrapper"])


def test_lines_of_the_program_keep_their_numbers() -> None:
    panes = {pane["id"]: pane for pane in linked("training_step")["panes"]}
    assert panes["python"]["text"].split("\n")[1].startswith("hidden = torch.nn.functional.gelu")
    assert panes["python"]["numbers"] == [None, 15, 16]


def test_calls_of_the_same_library_function_are_told_apart_by_what_they_write() -> None:
    graph = linked("training_step")
    first, second = (lines_of(graph, name)["wrapper"] for name in ("addmm", "addmm_1"))
    assert len(first) == len(second) == 1
    assert "out=buf5" in first[0]
    assert "out=buf7" in second[0]


def test_triton_code_is_linked_down_to_its_machine_code() -> None:
    contents = Contents(load(stored("h200_seed")))
    graph = as_sent(linked_panes(load(stored("h200_seed"))))
    kernel = graph["kernels"][0]
    source = next(p for p in graph["panes"] if p["id"] == "kernel")["text"].split("\n")
    forms = {form["name"]: as_sent(contents.chunks[form["chunk"]]()) for form in kernel["forms"]}
    assert list(forms) == ["ttir", "ttgir", "llir", "ptx"]
    number = next(n for n, line in enumerate(source, 1) if line.strip() == "tmp4 = tmp2 + tmp3")
    found = {
        name: [form["text"].splitlines()[line - 1] for line in form["links"][str(number)]]
        for name, form in forms.items()
    }
    assert any("arith.addf" in line for line in found["ttir"])
    assert any("fadd" in line for line in found["llir"])
    assert any("add.f32" in line for line in found["ptx"])


def test_what_is_inlined_belongs_to_the_line_that_calls_it() -> None:
    ptx = """
\t.loc\t1 24 28   // k.py:24:28
\tmov.u32 %r1, %ctaid.x;
\t.loc\t2 116 15  // triton_helpers.py:116:15 @[ k.py:36:40 ]
\tsetp.lt.f32 %p1, %r2, 0f00000000;
$L__func_end0:
\tret;
"""
    assert source_links("ptx", ptx) == {24: [3], 36: [5]}


def test_a_form_without_line_numbers_has_no_links() -> None:
    assert source_links("ptx", "add.f32 %r1, %r2, %r3;") == {}
    assert source_links("sass?", ".loc 1 2 3\nadd") == {}
    assert source_links("ttir", "#loc1 = loc(#loc1)\n%0 = tt.load loc(#loc1)") == {}


def test_what_an_operation_merely_led_to_is_apart_from_what_computes_it() -> None:
    """torch lists gelu's multiplications as origins of the product that reads their result."""
    graph = linked("training_step")
    chosen = {item["name"]: item for item in graph["operations"]}
    wrapper = next(p for p in graph["panes"] if p["id"] == "wrapper")["text"].split("\n")
    computed, led_to = (
        [wrapper[number - 1] for number in chosen["mul_2"][which].get("wrapper", ())]
        for which in ("lines", "leads")
    )
    assert [line.strip().partition("(")[0] for line in computed] == ["cpp_fused_gelu_1"]
    assert all("extern_kernels" in line for line in led_to)


def test_an_operation_without_code_says_why() -> None:
    operations = linked("training_step")["operations"]
    why = {item["name"]: item["no_code"] for item in operations if item["no_code"]}
    view = "a view: it only changes how memory is addressed"
    result = "one of the results of var_mean"
    assert why == {"getitem": result, "getitem_1": result, "permute": view, "permute_1": view}
    for item in operations:
        assert bool(item["no_code"]) is ("kernel" not in item["lines"])


def test_an_operation_is_in_the_library_call_that_it_was_lowered_to() -> None:
    """torch calls the parts of its result that operation's buffers, and the call nobody's."""
    lines = lines_of(linked("exported_package"), "topk")
    assert any("aten.topk.default" in line for line in lines["kernel"])


def test_a_template_is_marked_as_a_whole() -> None:
    graph = linked("h200_autotune")
    template = next(kernel for kernel in graph["kernels"] if "triton_tem" in kernel["name"])
    chosen = next(item for item in graph["operations"] if item["name"] == "mm")
    every_line = range(template["first_line"], template["last_line"] + 1)
    assert chosen["lines"]["kernel"] == list(every_line)


def test_scheduler_nodes_that_compute_the_same_are_told_apart() -> None:
    """A variance is computed by three of them."""
    labels = [node["label"] for node in chunk("training_step", "schedule-0")["nodes"]]
    assert len(set(labels)) == len(labels)
    assert "var_mean → buf0" in labels


def test_a_library_call_lists_what_it_computes() -> None:
    """torch also lists what led to it: the gelu before a product."""
    table = as_sent(Contents(load(stored("training_step"))).index)["kernels"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    calls = [row["operations"] for row in rows if row["made"] == "library call"]
    assert calls == ["addmm", "addmm_1", "mm", "mm_2", "mm_1", "mm_3"]


def test_a_kernel_that_is_called_twice_is_shown_once() -> None:
    for name in NAMES:
        recording = load(stored(name))
        for number, graph in enumerate(recording.graphs):
            kernels = as_sent(Contents(recording).chunks[f"sources-{number}"]())["kernels"]
            ids = [kernel["id"] for kernel in kernels]
            assert len(set(ids)) == len(ids)
            generated = {k.name for k in graph.kernels if k.language != "extern"}
            assert len([k for k in kernels if k["name"] in generated]) == len(generated)


def test_a_compile_is_counted_once_however_many_kernels_it_served() -> None:
    recording = load(stored("training_step"))
    table = as_sent(Contents(recording).index)["kernels"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    total = sum(native.seconds or 0.0 for native in recording.natives)
    assert sum(row["seconds"] or 0.0 for row in rows) <= total + 0.01
    assert {row["made"] for row in rows} <= {"compiled", "reused", "library call", ""}


def test_a_traceback_is_shown_and_not_its_digest() -> None:
    compiles = as_sent(Contents(load(stored("refused_by_compiler"))).index)["compiles"]
    (error,) = [error for one in compiles for error in one["errors"]]
    assert error["traceback"].startswith("Traceback (most recent call last):")
    assert "InductorError" in error["traceback"]


# --- the rest -------------------------------------------------------------------------------------


def test_the_scheduler_is_drawn_with_what_flows_along_its_edges() -> None:
    drawn = chunk("training_step", "schedule-0")
    edge = next(edge for edge in drawn["edges"] if edge["writer"] == "op0")
    flows = {"buffer": "buf0", "bytes": 32, "inside": True}
    assert edge == {"writer": "op0", "reader": "op1", **flows}
    groups = {group["id"]: group["members"] for group in drawn["groups"]}
    assert ["op0", "op1", "op2", "op3", "op4"] in groups.values()


def test_passes_lead_to_the_graph_before_and_after() -> None:
    contents = Contents(load(stored("training_step")))
    found = as_sent(contents.chunks["passes-0"]())
    graphs = found["graphs"]
    assert len(set(graphs)) == len(graphs), "each graph is there once"
    assert found["passes"]
    for change in found["passes"]:
        before, after = (contents.chunks[graphs[change[key]]]() for key in ("before", "after"))
        assert before != after, change["name"]


def test_empty_panes_say_why() -> None:
    graph = linked("cache_hit")
    missing = {pane["id"]: pane["missing"] for pane in graph["panes"] if not pane["text"]}
    assert "came from a cache" in missing["ir"]
    assert "--fresh" in missing["ir"]


@pytest.mark.parametrize("name", NAMES)
def test_everything_of_every_recording_can_be_shown(name: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    contents = Contents(load(stored(name)))
    write_page(contents, path)
    text = path.read_text("utf-8")
    packed = re.findall(r'id="chunk-([\w-]+)">([^<]*)<', text)
    assert [found for found, _ in packed] == list(contents.chunks)
    for _, data in packed:
        json.loads(gzip.decompress(base64.b64decode(data)))
    assert "http://" not in re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.S)


def test_a_page_with_many_chunks_is_the_same_each_time(tmp_path: Path) -> None:
    contents = Contents(load(stored("h200_seed")))
    assert len(contents.chunks) > 40
    write_page(contents, tmp_path / "first.html")
    write_page(Contents(load(stored("h200_seed"))), tmp_path / "second.html")
    assert (tmp_path / "first.html").read_bytes() == (tmp_path / "second.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.html", "second.html"]


def test_no_text_can_end_the_element_that_it_is_in(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--"
    folder = write_recording(
        tmp_path / "recording",
        {"kind": "compile-start", "compile": "0/0", "function": evil, "file": evil, "line": 1},
        {"kind": "inductor-start", "compile": "0/0", "graph": "0/0 forward", "phase": "forward"},
        {"kind": "graph", "stage": "dynamo", "compile": "0/0", "payload": f'"{evil}'},
        manifest={"command": ["python", f"{evil}.py"]},
    )
    write_page(Contents(load(folder)), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "alert(1)</script>" not in text
    assert "<title>script&gt;&lt;!--.py" in text


def test_the_verdict_of_the_doctor_is_on_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    shutil.copytree(stored("relu_add_sum"), folder)
    verdict = {"verdict": "nan", "stage": "runtime", "summary": "NaN", "confidence": "proven"}
    verdict |= {
        "repro": {"path": "repro.py", "verified": True, "failed": 3, "of": 3, "nodes": 2},
        "repro_text": "1/0",
    }
    verdict["notes"] = [
        {"compile": "0/0", "aspect": "stride", "where": "output 0", "text": "other strides"},
        7,
    ]
    verdict["not_checked"] = ["random numbers"]
    verdict["values"] = [{"where": "output 0", "index": [2], "actual": "nan", "expected": "1"}, 7]
    (folder / "verdict.json").write_text(json.dumps(verdict))
    shown = Contents(load(folder)).index.verdict
    assert shown is not None
    assert shown.verdict == "nan"
    assert (shown.notes[0].what, shown.notes[0].where) == ("other strides", "compile 0/0")
    assert shown.not_checked == ("random numbers",)
    value = shown.values[0]
    assert (value.where, value.index, value.actual) == ("output 0", (2,), "nan")
    assert (value.expected, value.elements) == ("1", 0)
    assert shown.repro is not None
    assert (shown.repro.verified, shown.repro.text) == (True, "1/0")
    (folder / "verdict.json").rename(tmp_path / "elsewhere")
    (folder / "verdict.json").symlink_to(tmp_path / "elsewhere")
    assert Contents(load(folder)).index.verdict is None
    (folder / "verdict.json").unlink()
    (folder / "verdict.json").write_text("{cut sho")
    assert Contents(load(folder)).index.verdict is None


def test_damage_that_is_not_listed_is_counted(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "recording", {"kind": "process", "pid": 1})
    for number in range(2, 27):
        (folder / "streams" / f"{number}-1.jsonl").write_text("no JSON\n{}\n")
    recording = load(folder)
    notes = Contents(recording).index.notes
    listed = [note for note in notes if ".jsonl" in note]
    assert len(recording.damage) > len(listed) > 0
    assert f"{len(recording.damage) - len(listed)} more places are damaged." in notes


# --- the command ----------------------------------------------------------------------------------


def test_report_writes_one_file_and_says_where(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    answer = inductoscope("report", str(stored("relu_add_sum")), "-o", str(path))
    assert answer.exit_code == 0
    assert str(path) in answer.stdout.replace("\n", "")  # A long path is broken anywhere.
    assert path.read_text("utf-8").startswith("<!doctype html>")


def test_report_exits_with_0_when_it_wrote_the_page_whatever_is_in_it(tmp_path: Path) -> None:
    path = str(tmp_path / "page.html")
    assert inductoscope("report", str(stored("killed_while_lowering")), "-o", path).exit_code == 0


def test_a_page_that_cannot_be_written_is_an_error_and_leaves_nothing(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    path = str(tmp_path / "missing" / "page.html")
    answer = inductoscope("report", str(stored("relu_add_sum")), "-o", path)
    assert answer.exit_code == 2
    assert answer.words == snapshot
    assert list(tmp_path.iterdir()) == []


def test_the_built_assets_are_those_of_the_sources() -> None:
    """Node is not needed for the tests; whoever changes web/ has to run 'make web'."""
    digest = hashlib.sha256()
    sources = [path for path in (WEB / "src").rglob("*") if path.is_file()]
    files = (*sources, WEB / "package-lock.json", WEB / "build.mjs")
    for name in sorted(path.relative_to(WEB).as_posix() for path in files):
        digest.update(name.encode() + b"\0" + (WEB / name).read_bytes() + b"\0")
    assert (ASSETS / "built_from.txt").read_text().strip() == digest.hexdigest()


def test_the_page_counts_what_refusals_cost_as_fusion_does() -> None:
    """Several pairs move the same buffer again, which counts once."""
    found = inductoscope("fusion", stored("training_step"), "--json", "-").data["conditions"]
    causes = as_sent(Contents(load(stored("training_step"))).index)["ledger"]["causes"]
    told = [{name: each[name] for name in causes[0]} for each in found]
    assert causes == sorted(told, key=lambda cause: -cause["bytes"])
    assert (6, 512) in [(cause["pairs"], cause["bytes"]) for cause in causes]


# --- live -----------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    folder = tmp_path / "recording"
    shutil.copytree(stored("relu_add_sum"), folder)
    with LiveServer(folder) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def fetch(address: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_run_is_followed_while_it_goes_on(server: LiveServer) -> None:
    status, page = fetch(server.address)
    assert (status, page[:15]) == (200, b"<!doctype html>")
    _, before = fetch(server.address + "index.json")
    assert json.loads(before)["live"] is True
    stream = next((server.recording.path / "streams").glob("*.jsonl"))
    with stream.open("a") as file:
        event = {"n": 99, "t": 1.0, "kind": "compile-start", "compile": "7/0", "function": "late"}
        file.write(json.dumps(event) + "\n")
    _, after = fetch(server.address + "index.json")
    assert "late" in [compile_["function"] for compile_ in json.loads(after)["compiles"]]
    status, graph = fetch(server.address + "chunk/sources-0")
    assert status == 200
    assert json.loads(graph)["computed"]


def test_a_recording_that_goes_away_is_said_to_be_gone(server: LiveServer) -> None:
    path = server.recording.path
    (path / "streams" / "9-9.jsonl").symlink_to(path / "vanished")
    assert fetch(server.address + "index.json")[0] == 200
    path.rename(path.with_name("moved"))
    gone = f"The recording {path} was deleted or moved.".encode()
    assert fetch(server.address + "index.json") == (410, gone)
    assert fetch(server.address)[0] == 200
    path.with_name("moved").rename(path)
    assert fetch(server.address + "index.json")[0] == 200
    next((path / "streams").iterdir()).unlink()  # The folder is being deleted.
    assert fetch(server.address + "index.json") == (410, gone)


def test_a_page_is_live_as_long_as_a_process_of_the_run(tmp_path: Path) -> None:
    """A program that is killed together with the tool leaves a recording without an end."""
    process, here = {"kind": "process", "pid": 7}, {"machine": this_machine()}
    folder = write_recording(tmp_path / "recording", process, manifest=here)
    rename_stream(folder, os.getpid())
    index = Contents(load(folder), live=True).index
    assert (index.finished, index.program.ending) == (False, "none so far")
    rename_stream(folder, NOBODY)
    index = Contents(load(folder), live=True).index
    assert (index.finished, index.program.ending) == (True, "the recording has no end")


def test_only_who_knows_the_token_and_asks_this_machine_gets_an_answer(server: LiveServer) -> None:
    root = f"http://127.0.0.1:{server.server_port}/"
    assert server.server_address[0] == "127.0.0.1"
    assert fetch(root)[0] == 404
    assert fetch(root + "guess/index.json")[0] == 404
    assert fetch(server.address, Host="evil.example:80")[0] == 404
    assert fetch(server.address + "chunk/../../recording.json")[0] == 404
    request = urllib.request.Request(server.address, data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(request, timeout=20)
