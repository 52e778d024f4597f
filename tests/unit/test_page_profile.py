"""Run time on the page and in the trace: modules, kernels at them, and measured calls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from inductoscope.model.fold import load
from inductoscope.model.fx import graph_from
from inductoscope.model.wrapper_lines import kernels_by_line
from inductoscope.recording.profile_file import KERNELS, profile_path
from inductoscope.torch_facts.printed_graphs import Module, module_names
from inductoscope.views.export.perfetto import whole_trace
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.contract import PageTable
from inductoscope.views.page.graph_tables import GrowingTree, module_row
from support.examples import stored

Row = dict[str, Any]


def rows(table: PageTable[Any]) -> list[Row]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def profiled(tmp_path: Path, *, harm: Any = None) -> Path:
    """A training step with the profile that 'profile' would keep: 2 ms for every kernel."""
    folder = tmp_path / "recording"
    shutil.copytree(stored("training_step"), folder)
    recording = load(folder)
    kernels, graphs = [], []
    for graph in recording.graphs:
        calls = sorted(kernels_by_line(recording, graph).items())
        took = {"median": 0.002, "low": 0.0019, "high": 0.0022}
        spans = [
            {"kernel": k.name, "wrapper_line": line, "start": 0.003 * at, "seconds": 0.002}
            for at, (line, k) in enumerate(calls)
        ]
        kernels += [
            {"kernel": span["kernel"], "graph": graph.key, "wrapper_line": span["wrapper_line"],
             "device": "cpu", "calls": 10, "seconds": took, "total": 0.02, "lost": 0.01,
             "read": 64, "written": 64, "flops": 32, "operations": ["mm"], "places": ["a.py:1"]}
            for span in spans
        ]  # fmt: skip
        usual = {"seconds": 0.003 * len(spans), "kernels": spans}
        graphs.append({"graph": graph.key, "seconds": took, "calls": 10, "usual_call": usual})
    view = {"headline": "half is lost", "kernels": kernels, "graphs": graphs}
    profile_path(folder, KERNELS).write_text(json.dumps(harm(view) if harm else view))
    return folder


def test_module_paths_are_read_in_every_form_that_torch_writes() -> None:
    """Dynamo starts at a variable; an exported program has plain names."""
    for path in (
        "L['self'].h.0.attn",
        "L['self']._modules['h']._modules['0'].attn",
        "getattr(L['self'].h, '0').attn",
        "L['model'].h[0].attn",
        "h.0.attn",
    ):
        assert module_names(path) == ("h", "0", "attn"), path
    assert module_names("L['self']") == module_names("") == ()


def test_a_node_knows_its_modules_and_a_damaged_graph_has_none() -> None:
    node = {"name": "mm", "op": "call_function", "target": "aten.mm", "modules": 0}
    stack = [["L['self'].h.0", "Block"], ["L['self'].h.0.attn", "Linear"]]
    graph = graph_from({"nodes": [node], "modules": [stack]})
    assert graph is not None
    assert [module.path for module in graph.nodes[0].modules] == ["h.0", "h.0.attn"]
    for damage in (7, [7], [[7]], [[["a", "b", "c"]]], None):
        harmed = graph_from({"nodes": [node], "modules": damage})
        assert harmed is not None
        assert harmed.nodes[0].modules == ()


def test_layers_of_one_class_with_the_same_parts_are_alike() -> None:
    """Four blocks, of which the last has another part; what was compiled is the root."""
    tree = GrowingTree()
    root = tree.root(load(stored("training_step")).compiles[0])
    for layer in range(4):
        block = Module(("h", str(layer)), "Block")
        part = "mlp" if layer < 3 else "experts"
        for name in ("ln", part):
            tree.note(root, (Module((), "Model"), block, Module((*block.names, name), "M")), 0)
    found = {row.path: row for row in map(module_row, tree.nodes)}
    assert found["h.0"].label == "h.0"
    assert found["h.0.mlp"].label == "mlp"
    assert found[""].operations == 8
    assert found["h.0"].alike == found["h.1"].alike == found["h.2"].alike is not None
    assert found["h.3"].alike is None


def test_a_profiled_model_is_a_tree_with_its_layers_alike() -> None:
    """Three real layers; a kernel that computes parts of two layers stands above both."""
    tree = Contents(load(stored("profiled_layers"))).chunks["modules"]()
    modules = rows(tree.modules)
    layers = [row for row in modules if row["kind"] == "Layer"]
    assert [row["path"] for row in layers] == ["layers.0", "layers.1", "layers.2"]
    assert {row["alike"] for row in layers} == {modules.index(layers[0])}
    at = {row["name"]: modules[row["module"]]["path"] for row in rows(tree.kernels)}
    assert at["cpp_fused_native_layer_norm_0"] == "layers.0.norm"
    assert at["cpp_fused_add_native_layer_norm_relu_1"] == ""
    assert all(row["seconds"] > 0 for row in rows(tree.kernels))


def test_every_kernel_is_at_a_module_with_its_measured_time(tmp_path: Path) -> None:
    contents = Contents(load(profiled(tmp_path)))
    assert contents.index.profile is not None
    tree = contents.chunks["modules"]()
    kernels = rows(tree.kernels)
    assert {row["seconds"] for row in kernels} == {0.02 * row["calls"] for row in kernels}
    # The bytes are those of the table of kernels.
    table = rows(contents.index.kernels)
    assert sum(row["bytes"] for row in kernels) == sum(row["bytes"] for row in table)


def test_measured_kernels_lead_to_the_same_kernel_as_the_table(tmp_path: Path) -> None:
    """Two library calls have one name: only the line of the wrapper tells them apart."""
    contents = Contents(load(profiled(tmp_path)))
    profile = contents.chunks["profile"]()
    known = {(row["graph"], row["id"]) for row in rows(contents.index.kernels)}
    assert {(row["graph"], row["id"]) for row in rows(profile.kernels)} == known
    spans = [(graph.graph, row["id"]) for graph in profile.graphs for row in rows(graph.kernels)]
    assert set(spans) == known


def test_a_damaged_profile_is_left_out_and_the_rest_is_shown(tmp_path: Path) -> None:
    def harm(view: Row) -> Row:
        view["kernels"][0] = {"graph": ["?"], "seconds": 7, "wrapper_line": "x", "places": 3}
        view["graphs"][0] = {"usual_call": {"kernels": [None]}, "eager": []}
        return {**view, "machines": "none"}

    contents = Contents(load(profiled(tmp_path, harm=harm)))
    profile = contents.chunks["profile"]()
    assert rows(profile.kernels)[0]["graph"] is None
    assert contents.chunks["modules"]()


def test_measured_calls_are_a_track_each_that_perfetto_can_nest(tmp_path: Path) -> None:
    """On one track, spans lie beside or inside each other; every track and process has a name."""
    events = json.loads(json.dumps(whole_trace(load(profiled(tmp_path)))))["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in events)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[Row]] = {}
    for event in events:
        assert event["ph"] in ("X", "M"), event
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    assert tracks.keys() <= named
    for spans in tracks.values():
        open_: list[float] = []
        for span in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
            while open_ and open_[-1] <= span["ts"] + 0.001:
                open_.pop()
            end = span["ts"] + span["dur"]
            assert not open_ or end <= open_[-1] + 0.01, span
            open_.append(end)
