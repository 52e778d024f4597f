"""`inductoscope show --runnable`: a recorded graph as a script that needs only torch.

That the scripts run, and compute what the graph computes, is tested where there is a torch.
"""

from __future__ import annotations

import ast
import builtins
import py_compile
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inductoscope.doctor.graph_script import NamedGraph, graph_names, write_script
from inductoscope.errors import ToolFailure
from inductoscope.model.fold import load
from inductoscope.model.fx import graph_from, read_graph
from support.examples import NAMES, inductoscope, stored, write_recording

NAMED = NamedGraph("0/0 dynamo", "", "forward at /model.py:3")


def scripts(name: str) -> Iterator[tuple[NamedGraph, str]]:
    recording = load(stored(name))
    for named in graph_names(recording):
        yield named, write_script(named, read_graph(recording, named.digest))


def undefined(script: str) -> set[str]:
    """Names that the script uses and nobody defines."""
    top = symtable.symtable(script, "script.py", "exec")
    known = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    known |= {table.get_name() for table in top.get_children()} | set(dir(builtins)) | {"__name__"}

    def used(table: symtable.SymbolTable) -> set[str]:
        names = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        return names.union(*(used(child) for child in table.get_children()))

    return used(top) - known


# --- every stored graph ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_graph_becomes_valid_python(name: str, tmp_path: Path) -> None:
    written = list(scripts(name))
    assert written
    for number, (_, script) in enumerate(written):
        path = tmp_path / f"graph_{number}.py"
        path.write_text(script, "utf-8")
        py_compile.compile(str(path), cfile=str(path.with_suffix(".pyc")), doraise=True)
        assert undefined(script) == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_script_makes_one_input_per_parameter(name: str) -> None:
    for named, script in scripts(name):
        functions = {
            n.name: n for n in ast.walk(ast.parse(script)) if isinstance(n, ast.FunctionDef)
        }
        made = functions["inputs"].body[0]
        assert isinstance(made, ast.Return)
        assert isinstance(made.value, ast.List)
        taken = functions["forward"].args.args[1:]
        assert len(made.value.elts) == len(taken), named.name


def test_a_script_makes_inputs_of_the_recorded_layout() -> None:
    script = {named.name: text for named, text in scripts("training_step")}["0/0 dynamo"]
    assert "make([32, 16], [16, 1], torch.float32, 'cpu').requires_grad_(),  # l_self_" in script
    assert "make([8, 16], [16, 1], torch.float32, 'cpu'),  # l_x_" in script
    assert script.startswith(
        "# Graph '0/0 dynamo' of forward at /scripts/training_step/script.py:14, written by"
    )


def test_a_joint_graph_takes_its_inputs_one_by_one() -> None:
    script = {named.name: text for named, text in scripts("training_step")}["0/0 aot-joint"]
    assert "def forward(self, primals_1, primals_2," in script
    assert "return [div, " in script
    assert "_spec" not in script


def test_inductors_own_operations_are_imported_where_they_are_used() -> None:
    for _, script in scripts("training_step"):
        uses = "torch.ops.prims.fma" in script
        assert uses == ("import torch._inductor.inductor_prims" in script)


# --- which graph ----------------------------------------------------------------------------------


def test_a_script_is_written_where_the_user_says(tmp_path: Path) -> None:
    target = tmp_path / "graph.py"
    answer = inductoscope(
        "show", stored("relu_add_sum"), "--runnable", "0/0 dynamo", "--to", target
    )
    assert answer.exit_code == 0
    assert "0/0 dynamo written to" in answer.stdout
    assert str(target) in "".join(answer.stdout.split())
    assert "class Graph(torch.nn.Module):" in target.read_text()


def test_a_script_is_named_after_its_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inductoscope("show", stored("training_step"), "--runnable", "backward post-grad")
    assert [path.name for path in tmp_path.glob("*.py")] == ["graph_0_0_backward_post-grad.py"]


def test_a_script_on_stdout_is_the_script_alone(tmp_path: Path) -> None:
    words = ("show", stored("relu_add_sum"), "--runnable", "aot-inference", "--to")
    inductoscope(*words, tmp_path / "graph.py")
    assert inductoscope(*words, "-").stdout == (tmp_path / "graph.py").read_text()


def test_a_part_of_a_name_that_only_one_graph_has_is_enough() -> None:
    answer = inductoscope(
        "show", stored("training_step"), "--runnable", "aot-joint", "--to", "-", "--json", "-"
    )
    assert answer.data["graph"] == "0/0 aot-joint"


def test_a_name_that_several_graphs_have_lists_them() -> None:
    answer = inductoscope("show", stored("training_step"), "--runnable", "0/0 post-grad")
    assert answer.exit_code == 2
    assert answer.stderr.splitlines() == [
        "inductoscope: More than one graph is called '0/0 post-grad'. Choose one of:",
        "  0/0 forward post-grad",
        "  0/0 backward post-grad",
    ]


def test_a_name_that_no_graph_has_lists_all() -> None:
    answer = inductoscope("show", stored("relu_add_sum"), "--runnable", "9/9 dynamo")
    assert answer.exit_code == 2
    assert "There is no graph called '9/9 dynamo'. Choose one of:" in answer.stderr
    assert "  0/0 inference post-grad" in answer.stderr.splitlines()


def test_a_recording_without_graphs_has_none_to_choose(tmp_path: Path) -> None:
    answer = inductoscope("show", write_recording(tmp_path / "r"), "--runnable", "0/0 dynamo")
    assert answer.exit_code == 2
    assert "Choose one of: none" in answer.stderr


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    target = tmp_path / "no" / "graph.py"
    answer = inductoscope(
        "show", stored("relu_add_sum"), "--runnable", "0/0 dynamo", "--to", target
    )
    assert answer.exit_code == 2
    assert "graph.py cannot be written: No such file or directory." in answer.words


# --- graphs with more in them ---------------------------------------------------------------------


def script_of(**graph: Any) -> str:
    return write_script(NAMED, graph_from({"nodes": [], **graph}))


FORWARD = "def forward(self, x):\n    return x"
TENSOR = {"dtype": "torch.int64", "shape": [2, "s0"], "hints": [2, 5], "device": "cuda:0"}


def test_constants_are_made_wherever_they_lie() -> None:
    script = script_of(code=FORWARD, attributes={"layers.0.weight": TENSOR})
    assert "put(self, 'layers.0.weight', make([2, 5], [5, 1], torch.int64, 'cuda:0'))" in script
    assert undefined(script) == set()


def test_a_graph_inside_a_graph_is_a_class_ahead_of_it() -> None:
    inner = {"nodes": [], "code": FORWARD, "globals": {"device": "torch.device"}}
    script = script_of(code=FORWARD, attributes={"true_graph_0": {"graph": inner}})
    assert script.index("class Graph_true_graph_0(") < script.index("class Graph(")
    assert "put(self, 'true_graph_0', Graph_true_graph_0())" in script
    assert "from torch import device as device" in script
    assert undefined(script) == set()


def test_a_size_that_only_a_run_tells_gets_its_hint() -> None:
    sizes = [
        {"name": "s0", "op": "placeholder", "value": {"text": "s0", "hint": 5}},
        {"name": "u0", "op": "placeholder", "value": {"text": "u0"}},
    ]
    script = script_of(code=FORWARD, nodes=sizes)
    assert "        5,  # s0\n        8,  # u0\n" in script


def test_a_graph_that_calls_modules_names_a_later_stage() -> None:
    with pytest.raises(ToolFailure, match=r"calls modules \(conv\).*Choose a later stage"):
        script_of(code=FORWARD, attributes={"conv": {"module": "torch.nn.Conv2d"}})


def test_a_graph_that_is_missing_says_so() -> None:
    with pytest.raises(ToolFailure, match="0/0 dynamo is missing from the recording"):
        write_script(NAMED, None)


# --- graphs by somebody who means harm ------------------------------------------------------------

HARM = "x\nimport shutil; shutil.rmtree('/')\n\x0cimport os\u2028import os"


def test_names_in_a_recording_cannot_become_statements() -> None:
    hostile = NamedGraph(f"0/0 {HARM}", "", HARM)
    tensor = {"dtype": HARM, "shape": [1], "device": HARM}
    graph = graph_from(
        {
            "code": FORWARD,
            "nodes": [{"name": HARM, "op": "placeholder", "value": tensor}],
            "attributes": {HARM: tensor},
            "globals": {HARM: "os.system", "fine": HARM},
        }
    )
    script = write_script(hostile, graph)
    imported = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Import)]
    assert [alias.name for node in imported for alias in node.names] == ["torch"]


def test_a_graph_cannot_choose_where_its_script_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    digest = "a" * 32
    start = {"kind": "compile-start", "compile": "../../evil\0"}
    graph = {**start, "kind": "graph", "stage": "dynamo", "payload": digest}
    content = {"nodes": [], "code": FORWARD}
    recording = write_recording(tmp_path / "r", start, graph, payloads={digest: content})
    assert inductoscope("show", recording, "--runnable", "dynamo").exit_code == 0
    assert [path.name for path in folder.iterdir()] == ["graph_.._.._evil__dynamo.py"]


def test_a_graph_with_data_left_out_says_so_instead_of_a_wrong_script() -> None:
    graph = {"nodes": [], "code": "def forward(self):\n    return torch.tensor([...])"}
    with pytest.raises(ToolFailure, match="leaves out"):
        write_script(NamedGraph("0/0 dynamo", "", "f"), graph_from(graph))
