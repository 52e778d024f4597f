"""Omissions of a recompile for a GPU are reported, in one line for all compiles alike. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inductoscope.model.fold import load
from inductoscope.targets.work_list import captured_graphs
from support.examples import inductoscope
from support.recompiled import captured, output, placeholder, tensor

GRAPH = [placeholder("x", tensor(2)), output("x")]


def settings(compile_id: str, **more: Any) -> dict[str, Any]:
    return {"kind": "settings", "compile": compile_id, **more}


def test_settings_of_inductor_are_left_out_and_those_of_dynamo_are_in_the_graph(
    tmp_path: Path,
) -> None:
    used = settings(
        "0/0",
        arguments={"mode": "'max-autotune'", "dynamic": "True", "fullgraph": "True"},
        config={"torch._dynamo.config.verbose": "True", "torch._inductor.config.debug": "True"},
        marked=["mark_dynamic(x, 0)"],
    )
    (graph,) = captured_graphs(load(captured(tmp_path / "recording", {"f": GRAPH}, more=[used])))
    assert graph.left_out == (
        "torch.compile(mode='max-autotune')",
        "torch._inductor.config.debug = True",
    )


def test_the_same_note_on_several_compiles_is_one_line(tmp_path: Path) -> None:
    notes = [{"kind": "target-note", "compile": f"{n}/0", "note": "as on no GPU"} for n in range(8)]
    recording = captured(
        tmp_path / "recording", {"f": GRAPH}, more=notes, manifest={"target": "cuda:90"}
    )
    said = inductoscope("show", recording).words
    assert said.count("as on no GPU") == 1
    assert "0/0, 1/0, 2/0, 3/0, 4/0, 5/0 and 2 more: as on no GPU." in said
