"""Recorded graphs, built anew from data and compiled with other settings. Nothing is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inductoscope.errors import ToolFailure
from inductoscope.inside.rebuilding import (
    Names,
    Rebuilder,
    Rebuilt,
    Unbuildable,
    check_method,
    read_arguments,
    resolve_function,
)
from inductoscope.model.fold import load
from inductoscope.model.fx import FxGraph, graph_from
from inductoscope.model.target import left_out, recording_target
from inductoscope.targets.recompile import recompile
from inductoscope.targets.work_list import captured_graphs
from support.examples import stored
from support.recompiled import captured, output, placeholder, tensor

torch = pytest.importorskip("torch")

# --- arguments are parsed -------------------------------------------------------------------------

NAMES = Names({"x": "the node x", "x_1": "the node x_1"}, {"cpu": "meta"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(x, 1, -2.5, True, None)", ("the node x", 1, -2.5, True, None)),
        ("(x, [x_1, 3], (16,))", ("the node x", ["the node x_1", 3], (16,))),
        ("(x, slice(None, 2, None), Ellipsis)", ("the node x", slice(None, 2, None), ...)),
        ("{'dim': -1, 'keepdim': False}", {"dim": -1, "keepdim": False}),
        ("(inf, -inf)", (float("inf"), -float("inf"))),
        ("((1+2j),)", (1 + 2j,)),
        ("('mean', 'ij,jk->ik')", ("mean", "ij,jk->ik")),
        ("(torch.float16, torch.channels_last)", (torch.float16, torch.channels_last)),
        ("(torch.Size([2, 3]),)", ((2, 3),)),
        ("(device(type='cpu'),)", (torch.device("meta"),)),
        ("(device(type='cuda', index=0),)", (torch.device("cuda"),)),
        ("", ()),
    ],
)
def test_arguments_are_read_as_they_were_printed(text: str, value: Any) -> None:
    assert read_arguments(text, NAMES) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "(lambda: 1,)",
        "([i for i in (1, 2)],)",
        "(x.grad_fn,)",
        "(torch.load,)",
        "(y,)",
        "(x if True else 1,)",
        "('a quote \" and more',)",
        "('two\\nlines',)",
        "(b'bytes',)",
        "(10**10**10,)",
        "(<function f at 0x7f>,)",
        "(" * 300,
        "(x, [1, 2, 3,",
    ],
)
def test_whatever_else_stands_there_is_refused(text: str) -> None:
    with pytest.raises(Unbuildable):
        read_arguments(text, NAMES)


# --- operations are looked up ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "written", "function"),
    [
        ("torch._VariableFunctionsClass.softmax", "", torch.softmax),
        ("torch._C._nn.gelu", "", torch.nn.functional.gelu),
        ("torch.nn.functional.layer_norm", "", torch.nn.functional.layer_norm),
        ("add", "", __import__("operator").add),
        ("math.sqrt", "", __import__("math").sqrt),
        ("aten.relu.default", "", torch.ops.aten.relu.default),
        # Functions that torch makes in one place share a name; printed code tells them apart.
        (
            "torch.nn.functional.boolean_dispatch.<locals>.fn",
            "torch.nn.functional.max_pool2d",
            torch.nn.functional.max_pool2d,
        ),
    ],
)
def test_what_torch_computes_with_is_found(name: str, written: str, function: Any) -> None:
    assert resolve_function(name, written) is function


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "exec",
        "torch.load",
        "torch.serialization.save",
        "torch._VariableFunctionsClass.from_file",
        "torch._VariableFunctionsClass._from_blob",
        "aten.from_file.default",
        "aten.save.default",
        "attrgetter",
        "_operator.methodcaller",
        "torch.ops.load_library",
        "torch.hub.load",
        "torch.compile",
        "torch.nn.functional.boolean_dispatch.<locals>.fn",
        "",
    ],
)
def test_what_reads_files_or_calls_back_is_not_there(name: str) -> None:
    with pytest.raises(Unbuildable):
        resolve_function(name, name)


def test_an_operator_of_the_programs_own_is_named_as_such() -> None:
    with pytest.raises(Unbuildable, match=r"mine\.twice\.default is an operator of the program's"):
        resolve_function("mine.twice.default", "")


@pytest.mark.parametrize("name", ["numpy", "data_ptr", "apply_", "__reduce_ex__", "set_", "new"])
def test_methods_that_reach_memory_or_python_are_refused(name: str) -> None:
    assert check_method("relu") == "relu"
    with pytest.raises(Unbuildable):
        check_method(name)


# --- graphs ---------------------------------------------------------------------------------------


def rebuild(graph: FxGraph | None) -> Rebuilt:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    assert graph is not None
    return Rebuilder(FakeTensorMode(shape_env=ShapeEnv()), {}).build(graph)


def test_a_graph_keeps_its_names_its_lines_and_its_inputs() -> None:
    (order,) = captured_graphs(load(stored("training_step")))
    rebuilt = rebuild(graph_from(dict(order.graph)))
    nodes = {node.name: node for node in rebuilt.module.graph.nodes}
    assert list(nodes) == [node["name"] for node in order.graph["nodes"]]
    assert "script.py" in nodes["softmax"].meta["stack_trace"]
    weight = rebuilt.inputs[0]
    assert (tuple(weight.shape), weight.requires_grad) == ((16,), True)
    assert order.learns


def test_a_graph_keeps_the_modules_that_its_operations_are_part_of() -> None:
    inside = [["L['self']", "Model"], ["L['self'].h['a\rb']", "Block"]]
    data = {"nodes": [{**placeholder("x", tensor(2)), "modules": 0}, output("x")]}
    (x,) = rebuild(graph_from({**data, "modules": [inside]})).module.graph.find_nodes(
        op="placeholder"
    )
    assert list(x.meta["nn_module_stack"].values()) == [("", "Model"), ("h.a?b", "Block")]


def test_a_size_that_was_not_fixed_is_not_fixed_again() -> None:
    size = {"type": "SymInt", "text": "s77", "hint": 6}
    rows = {**tensor(6, 4), "shape": ["s77", 4], "hints": [6, 4]}
    double = {**tensor(12), "shape": ["2*s77"], "hints": [12]}
    nodes = [placeholder("n", size), placeholder("x", rows), placeholder("y", double)]
    n, x, y = rebuild(graph_from({"nodes": [*nodes, output("x")]})).inputs
    assert isinstance(n, torch.SymInt)
    assert str(x.shape[0]) == str(n)
    assert y.shape[0] == 2 * n
    assert x.shape[1] == 4


@pytest.mark.parametrize("size", [-1, "u0", "f(s77)", "s77**s77", "(" * 50, None, 1 << 70])
def test_a_size_that_only_running_tells_leaves_the_graph_out(size: Any) -> None:
    value = {**tensor(6), "shape": [size]}
    with pytest.raises(Unbuildable):
        rebuild(graph_from({"nodes": [placeholder("x", value), output("x")]}))


def test_lines_and_names_of_a_stranger_cannot_become_code() -> None:
    x = placeholder("x", tensor(2))
    stack = 'File "a.py", line 1, in f\n    x\rimport os\x0b\u2028y\n'
    data = {"nodes": [{**x, "stack": 0}, output("x")], "stacks": [stack]}
    text = (
        rebuild(graph_from(data)).module.graph.find_nodes(op="placeholder")[0].meta["stack_trace"]
    )
    assert not set("\r\x0b\u2028") & set(text)
    named = {"nodes": [{**x, "name": "x\nimport os"}, output("x")]}
    with pytest.raises(Unbuildable, match="a node has the name"):
        rebuild(graph_from(named))


# --- compiled once more ---------------------------------------------------------------------------


def test_a_changed_setting_is_tried_without_any_compiler_for_machine_code(tmp_path: Path) -> None:
    before = load(stored("training_step"))
    path = recompile(before, target=None, settings={"max_fusion_size": 1}, into=tmp_path / "again")
    after = load(path)
    (compile_,) = after.compiles
    assert (compile_.id, compile_.outcome) == ("0/0", "compiled")
    assert [graph.key for graph in after.graphs] == ["0/0 forward", "0/0 backward"]
    assert sum(len(graph.fusions) for graph in before.graphs) > 0
    assert sum(len(graph.fusions) for graph in after.graphs) == 0
    assert after.natives == ()
    assert recording_target(after) == ""
    assert left_out(after) == ()
    places = {str(f.place) for f in graph_nodes(after, "dynamo") if f.place}
    assert "/scripts/training_step/script.py:16" in places


def graph_nodes(recording: Any, stage: str) -> list[Any]:
    graphs = [g for c in recording.compiles for g in c.graphs if g.stage == stage]
    found = graph_from(recording.data(graphs[-1].payload))
    return list(found.nodes) if found else []


def test_a_recording_without_graphs_is_a_failure_that_says_so(tmp_path: Path) -> None:
    recording = load(captured(tmp_path / "empty", {}))
    with pytest.raises(ToolFailure, match="no captured graph"):
        recompile(recording, target=None, settings={}, into=tmp_path / "again")


def test_a_setting_is_a_plain_value(tmp_path: Path) -> None:
    recording = load(captured(tmp_path / "one", {"f": [placeholder("x", tensor(2)), output("x")]}))
    with pytest.raises(ToolFailure, match="plain value"):
        recompile(recording, target=None, settings={"a b": 1}, into=tmp_path / "again")
