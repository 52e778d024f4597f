"""`inductoscope show --op`: one operation at every level, from the user's line to the kernel's."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.model.fold import load
from inductoscope.model.fx import FxNode, graph_from
from inductoscope.model.operation_trace import by_operation, is_dead_code, trace
from inductoscope.torch_facts.loop_bodies import matching_steps, own_expressions, steps_of
from inductoscope.views.report.alike import alike
from inductoscope.views.report.operation import print_operation
from inductoscope.views.report.terminal import Printer
from support.examples import inductoscope, stored
from support.recompiled import call, captured, output, placeholder, tensor

CHAIN = stored("relu_add_sum")
TRAINING = stored("training_step")


def follow(*words: object) -> list[dict[str, Any]]:
    answer = inductoscope("show", *map(str, words), "--json", "-")
    assert answer.exit_code == 0, answer.stderr
    operations: list[dict[str, Any]] = answer.data["operations"]
    return operations


def names(operations: list[dict[str, Any]]) -> list[str]:
    return [operation["aten"]["name"] for operation in operations]


# --- every level ----------------------------------------------------------------------------------


def test_relu_is_shown_at_every_level() -> None:
    shown = inductoscope("show", CHAIN, "--op", "relu").stdout.splitlines()
    # The numbers of lines and the seconds are those of the machine that recorded.
    text = [re.sub(r"^    \d+  |in [\d.]+ s$", "    ", line).rstrip() for line in shown]
    for line in (
        "relu in graph 0/0 inference",
        "  Python: /scripts/relu_add_sum/script.py:7",
        "    return x.relu().add(1).sum(-1)",
        "  Dynamo graph",
        "    %relu = relu(l_x_)",
        "  FX / ATen",
        "    %relu = aten.relu.default(arg0_1)   # float32[10, 100]",
        "  Inductor IR",
        "    Pointwise(dtype=torch.float32, ranges=[10, 100])",
        "          tmp1 = ops.relu(tmp0)",
        "  Scheduler",
        "    op0: SchedulerNode(ComputedBuffer(Reduction)) reads arg0_1, writes buf0,",
        "  Fused group: not fused with another node",
        "    operations inside: relu, add, sum_1",
        "  Loop body of op0",
        "    relu = ops.relu(load)",
        "  Kernel (C++): cpp_fused_add_relu_sum_0",
        "    auto tmp1 = at::vec::clamp_min(tmp0, decltype(tmp0)(0));",
        "    compiled by c++",
    ):
        assert line in text


def test_relu_has_its_own_lines_and_no_others() -> None:
    (relu,) = follow(CHAIN, "--op", "relu")
    assert relu["loop_body"] == [
        {
            "node": "op0",
            "lines": ["load = ops.load('arg0_1', get_index)", "relu = ops.relu(load)"],
        }
    ]
    (kernel,) = relu["kernel"]
    load, clamp = kernel["lines"]
    assert "loadu(in_ptr0" in load["text"]
    assert "clamp_min" in clamp["text"]
    assert clamp["number"] == load["number"] + 1
    (native,) = kernel["native"]
    assert (native["tool"], native["exit_code"]) == ("c++", 0)


def test_sum_has_the_reducing_and_the_storing_lines(snapshot: SnapshotAssertion) -> None:
    (total,) = follow(CHAIN, "--op", "sum")
    assert total["python"]["code"] == "return x.relu().add(1).sum(-1)"
    assert total["dynamo"] == ["%sum_1 = sum(add, -1)"]
    assert total["aten"]["text"] == snapshot
    (ir,) = total["ir"]["nodes"]
    assert (ir["buffer"], ir["loops"], ir["reduction"]) == ("buf0", "Reduction", "sum")
    assert [node["name"] for node in total["scheduler"]] == ["op0"]
    assert total["fused_group"][0]["origins"] == ["relu", "add", "sum_1"]
    (body,) = total["loop_body"]
    assert [line.partition(" = ")[0] for line in body["lines"]] == ["reduction", "store_reduction"]
    (kernel,) = total["kernel"]
    assert kernel["lines"][-1]["text"].strip().startswith("out_ptr0[")
    assert kernel["native"]


def test_a_variance_has_its_reductions() -> None:
    """Its sum of squares is a buffer that is the result of no operation."""
    found = next(trace(load(TRAINING), by_operation("var_mean")))
    lines = [step.text for steps in found.steps.values() for step in steps]
    assert sum("store_reduction" in line for line in lines) == 2


def test_together_the_operations_own_every_line_of_the_loop_body_once() -> None:
    lines = [
        line
        for name in ("relu", "add", "sum")
        for body in follow(CHAIN, "--op", name)[0]["loop_body"]
        for line in body["lines"]
    ]
    assert len(lines) == len(set(lines)) == 6


def test_softmax_is_found_in_what_it_was_decomposed_into() -> None:
    operations = follow(TRAINING, "--op", "softmax")
    assert names(operations) == ["amax", "sub_1", "exp", "sum_1", "div"]
    for operation in operations:
        assert operation["made_from"] == "aten._softmax.default"
        assert operation["python"]["source"] == "/scripts/training_step/script.py:16"
        assert "softmax" in operation["dynamo"][0]
        assert operation["fused_group"][0]["nodes"] == ["op8", "op9", "op10", "op11"]
        (kernel,) = operation["kernel"]
        assert kernel["name"] == "cpp_fused__softmax_add_2"
        assert kernel["lines"]
        assert kernel["native"]


def test_what_merely_reads_a_result_is_not_what_it_became() -> None:
    """torch lists fma among the origins of mm, too, which reads what op1 computed of it."""
    (fma,) = follow(stored("h200_seed"), "--op", "fma")
    assert [node["name"] for node in fma["scheduler"]] == ["op1"]


@pytest.mark.parametrize("aten", ["aten._softmax.default", "aten._safe_softmax.default"])
def test_softmax_finds_its_variants(aten: str) -> None:
    node = FxNode("exp", "call_function", "aten.exp.default", "", "", None, aten, (), ())
    assert by_operation("softmax")(node)
    assert not by_operation("log_softmax")(node)
    assert not by_operation("max")(node)


def layer(number: int) -> dict[str, Any]:
    """Code of relu in one of several equal layers; names differ by their numbers."""
    (found,) = follow(CHAIN, "--op", "relu")
    text = json.dumps(found)
    for name in ("arg0_1", "buf0", "op0", "in_ptr0"):
        text = text.replace(name, re.sub(r"\d", str(number), name, count=1))
    if number:
        text = re.sub(r'(?<=["%])relu(?= =|")', f"relu_{number}", text)
    layer: dict[str, Any] = json.loads(text)
    return layer


def test_repeated_layers_are_one_block() -> None:
    layers = [layer(number) for number in range(4)]
    assert layers[1] != layers[0]
    assert alike(layers) == [[0, 1, 2, 3]]
    page = io.StringIO()
    print_operation(Printer(page), layers[0], ["relu_1", "relu_2", "relu_3"])
    assert "×4, the same but for names: relu_1, relu_2, relu_3" in page.getvalue()


@pytest.mark.parametrize(
    ("text", "other"), [("ops.relu(", "ops.exp("), ("float32", "float64"), ("arg3_1", "7")]
)
def test_a_layer_that_differs_in_more_than_names_is_a_block_of_its_own(
    text: str, other: str
) -> None:
    different = json.loads(json.dumps(layer(3)).replace(text, other))
    assert alike([layer(0), layer(2), different]) == [[0, 1], [2]]


def test_linear_is_found_in_the_library_call_that_it_became(snapshot: SnapshotAssertion) -> None:
    operation = next(o for o in follow(TRAINING, "--op", "linear") if o["aten"]["name"] == "addmm")
    assert operation["kernel"][0]["name"] == "extern_kernels.addmm"
    text = inductoscope("show", TRAINING, "--op", "addmm").words
    assert text == snapshot


def test_gelu_is_found_where_the_backward_graph_computes_it_again() -> None:
    graphs = {operation["graph"] for operation in follow(TRAINING, "--op", "gelu")}
    assert graphs == {"0/0 forward", "0/0 backward"}


@pytest.mark.parametrize("name", ["relu_add_sum", "training_step", "graph_breaks", "h200_seed"])
def test_every_operation_of_a_generated_kernel_has_lines_in_it(name: str) -> None:
    for found in trace(load(stored(name)), lambda node: True):
        for item in found.kernels:
            is_no_operation = found.node.target == "getitem"
            if item.kernel.language != "extern" and not is_no_operation:
                assert item.lines, found.node.name
                assert found.steps, found.node.name


# --- ways to choose -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "sum_1", "SUM", " sum ", "aten.sum.dim_IntList"])
def test_an_operation_goes_by_its_name_or_its_nodes(name: str) -> None:
    assert names(follow(CHAIN, "--op", name)) == ["sum_1"]


def test_a_part_of_a_name_is_not_enough() -> None:
    assert inductoscope("show", CHAIN, "--op", "rel").exit_code == 2


@pytest.mark.parametrize(
    "place",
    [
        "script.py",
        "script.py:7",
        "script.py:07",
        "./script.py:7",
        "relu_add_sum/script.py:7",
        "/scripts/relu_add_sum/script.py:7",
    ],
)
def test_a_line_leads_to_all_that_it_became(place: str) -> None:
    assert names(follow(CHAIN, "--source", place)) == ["relu", "add", "sum_1"]


def test_one_line_of_several() -> None:
    lines = {o["python"]["source"] for o in follow(TRAINING, "--source", "script.py:16")}
    assert lines == {"/scripts/training_step/script.py:16"}


@pytest.mark.parametrize("place", ["script.py:6", "cript.py:7", "other.py", "script.py:²", ":7"])
def test_a_line_that_became_nothing(place: str) -> None:
    answer = inductoscope("show", CHAIN, "--source", place)
    assert answer.exit_code == 2
    assert f"Nothing in the compiled graphs matches {place}." in answer.words


def test_only_in_one_compile() -> None:
    recording = stored("graph_breaks")
    operations = follow(recording, "--source", "script.py", "--compile", "1/0")
    assert names(operations) == ["sum_1", "gt"]


def test_an_unknown_operation_lists_those_there_are(snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("show", CHAIN, "--op", "conv2d")
    assert answer.exit_code == 2
    assert answer.words == snapshot


def test_after_a_cache_hit_the_next_step_is_named(snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("show", stored("cache_hit"), "--op", "cos")
    assert answer.exit_code == 2
    assert answer.words == snapshot


# --- which lines are an operation's own (torch_facts/loop_bodies.py) ------------------------------

RELU = """
def inner_fn(index):
    i0, i1 = index
    tmp0 = ops.load(arg0_1, i1 + 100 * i0)
    tmp1 = ops.relu(tmp0)
    return tmp1
"""
ADD = """
def inner_fn(index):
    i0, i1 = index
    tmp0 = ops.load(arg0_1, i1 + 100 * i0)
    tmp1 = ops.relu(tmp0)
    tmp2 = ops.constant(1, torch.float32)
    tmp3 = tmp1 + tmp2
    return tmp3
"""
BODY = """
def body(self, ops):
    get_index = self.get_index('index0')
    load = ops.load('arg0_1', get_index)
    relu = ops.relu(load)
    constant = ops.constant(1.0, torch.float32)
    add = ops.add(relu, constant)
    reduction = ops.reduction(torch.float32, torch.float32, 'sum', add)
    get_index_1 = self.get_index('index1')
    store_reduction = ops.store_reduction('buf0', get_index_1, reduction)
"""


def lines_of(function: str, *inputs: str, **more: Any) -> list[str]:
    return [step.name for step in matching_steps(BODY, own_expressions(function, inputs), **more)]


def test_an_operation_owns_what_its_inputs_do_not_compute() -> None:
    assert lines_of(RELU) == ["load", "relu"]
    assert lines_of(ADD, RELU) == ["constant", "add"]


def test_a_reduction_owns_the_reducing_line_and_its_store() -> None:
    assert lines_of(ADD, ADD) == []
    assert lines_of(ADD, ADD, stores=["buf0"], reduces=True) == ["reduction", "store_reduction"]
    assert lines_of(ADD, ADD, stores=["buf"]) == []


def test_the_same_operation_twice_in_a_chain_is_two() -> None:
    once = "a = ops.load(x, i)\nb = ops.relu(a)\n"
    between = once + "c = b * b\n"
    twice = between + "d = ops.relu(c)\n"
    body = "l = ops.load('x', j)\nr = ops.relu(l)\nm = ops.mul(r, r)\nr_1 = ops.relu(m)"

    def own(function: str, below: str) -> list[str]:
        return [s.name for s in matching_steps(body, own_expressions(function, [below]))]

    assert own(once, "") == ["l", "r"]
    assert own(between, once) == ["m"]
    assert own(twice, between) == ["r_1"]


GATHERED = """
index0 = p0
index1 = indirect0 + 4000*p0
def body(self, ops):
    get_index = self.get_index('index0')
    load = ops.load('ids', get_index)
    set_indirect0 = self.set_indirect0(load)
    get_index_1 = self.get_index('index1')
    load_1 = ops.load('x', get_index_1)
    get_index_2 = self.get_index('index0')
    load_2 = ops.load('y', get_index_2)
    sub = ops.sub(load_1, load_2)
"""


def test_a_gather_owns_its_indirect_load_and_its_input_what_it_computes_there() -> None:
    x_minus_y = "tmp0 = ops.load(x, i1 + 4000 * i0)\ntmp1 = ops.load(y, i0)\ntmp2 = tmp0 - tmp1"
    gather = (
        "tmp0 = ops.load(ids, i0)\ntmp1 = ops.load(x, tmp0 + 4000 * i0)\n"
        "tmp2 = ops.load(y, i0)\ntmp3 = tmp1 - tmp2"
    )
    own = own_expressions(gather, [x_minus_y, "tmp0 = ops.load(ids, i0)"])
    assert [step.name for step in matching_steps(GATHERED, own)] == ["load_1"]
    below = own_expressions(x_minus_y, [])
    assert [step.name for step in matching_steps(GATHERED, below)] == ["load_2", "sub"]
    # Where both are computed in one body, each has its own.
    both = GATHERED + "    load_3 = ops.load('x', get_index)\n    sub_1 = ops.sub(load_3, load_2)\n"
    assert [s.name for s in matching_steps(both, below)] == ["load_2", "load_3", "sub_1"]


def test_the_only_index_that_is_a_value_is_known_again() -> None:
    function = "t0 = ops.load(x, i0)\nt1 = ops.index_expr(i1, torch.int64)\nt2 = t0 == t1"
    body = (
        "get_index = self.get_index('index0')\nload = ops.load('x', get_index)\n"
        "get_index_1 = self.get_index('index1')\n"
        "index_expr = ops.index_expr(get_index_1, torch.int64)\neq = ops.eq(load, index_expr)\n"
    )
    own = own_expressions(function, [])
    assert [step.name for step in matching_steps(body, own)] == ["load", "index_expr", "eq"]
    other = body + "index_expr_1 = ops.index_expr(get_index, torch.int64)"
    assert [step.name for step in matching_steps(other, own)] == ["load"]


def test_operators_are_the_operations_that_they_stand_for() -> None:
    written = "a = ops.load(x, i)\nb = -a\nc = a / b\nd = b < c\ne = ~d"
    called = (
        "p = ops.load('x', j)\nq = ops.neg(p)\nr = ops.truediv(p, q)\n"
        "s = ops.lt(q, r)\nt = ops.invert(s)"
    )
    assert [s.expression for s in steps_of(written)] == [s.expression for s in steps_of(called)]


def test_a_negative_constant_is_the_same_written_out_and_worked_out() -> None:
    worked_out = "a = ops.constant(2, torch.int64)\nb = ops.constant(-3, torch.int64)\n"
    apart = steps_of(f"{worked_out}c = ops.mul(a, b)\nd = ops.add(ops.load('x', i), c)")
    written = steps_of("c = ops.constant(-6, torch.int64)\nd = ops.add(ops.load('x', i), c)")
    assert apart[-1].expression == written[-1].expression


def test_arithmetic_on_indices_computes_no_value() -> None:
    assert steps_of("i = p0 + 100 * p1\nj = i % 7\nk = -j") == ()


def test_an_operand_used_twice_does_not_double_the_text() -> None:
    squares = "".join(f"t{n + 1} = ops.mul(t{n}, t{n})\n" for n in range(200))
    steps = steps_of("t0 = ops.load('x', i)\n" + squares)
    assert len({step.expression for step in steps}) == 201
    assert max(len(step.expression) for step in steps) < 250


@pytest.mark.parametrize(
    "line",
    [
        "this is no Python",
        "x = ops.f(" + "9" * 400 + ")",
        "x = ops.f(" + "-" * 900 + "y)",
        "x = ops.f(" + "a + " * 3000 + "b)",
        "x = '\0'",
        "x, y = ops.f(y)",
        "for x in y: pass",
        "x = ops.load(",
    ],
)
def test_a_line_that_cannot_be_read_is_passed(line: str) -> None:
    assert [step.name for step in steps_of(f"y = ops.load('b', i)\n{line}\nz = y + 1")] == [
        "y",
        "z",
    ]


@pytest.mark.parametrize("call", ["load()", "store()", "store('b')", "store_reduction()", "f()"])
def test_calls_without_arguments_are_read_too(call: str) -> None:
    assert len(steps_of(f"x = ops.{call}")) == 1


# --- what goes no further -------------------------------------------------------------------------

TANH = [
    placeholder("x", tensor(4)),
    call("tanh", "torch._VariableFunctionsClass.tanh", "(x,)"),
    output("tanh"),
]


def test_an_operation_whose_compile_ended_early_is_told_from_one_that_is_not_there(
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    path = captured(tmp_path / "recording", {"f": TANH}, reason="a limit of --target")
    said = inductoscope("show", path, "--op", "tanh").words
    assert said == snapshot
    assert "Nothing in" not in said


LOWERED = {"kind": "lowering", "graph": "0/0 inference", "node": "relu", "seconds": 0.1}
# A second graph, which `captured` writes as the next payload.
WITHOUT_TANH = [
    placeholder("arg0_1", tensor(4)),
    call("relu", "aten.relu.default", "(arg0_1,)", **{"from": ["relu"]}),
    output("relu"),
]


def removed(folder: Path, before: list[dict[str, Any]], stage: str) -> str:
    """What is said of tanh when the next recorded graph is without it."""
    after = {"kind": "graph", "stage": stage, "compile": "0/0", "payload": f"{1:032x}"}
    path = captured(folder, {"f": before, "g": WITHOUT_TANH}, more=[after, LOWERED])
    return inductoscope("show", path, "--op", "tanh").words


def test_an_operation_that_a_pass_replaced_was_there(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    assert removed(tmp_path / "recording", TANH, "pre-grad") == snapshot


def test_dead_code_is_named_with_what_removed_it(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    sine = call("sin", "torch._VariableFunctionsClass.sin", "(tanh,)")
    relu = call("relu", "torch._VariableFunctionsClass.relu", "(x,)")
    unused = [*TANH[:2], sine, relu, output("relu")]
    assert removed(tmp_path / "recording", unused, "aot-inference") == snapshot


@pytest.mark.parametrize(
    ("target", "writes"),
    [
        ("add_", True),
        ("aten.add_.Tensor", True),
        ("_operator.setitem", True),
        ("_operator.and_", False),
        ("aten.add.Tensor", False),
    ],
)
def test_what_writes_to_its_operand_is_no_dead_code(target: str, writes: bool) -> None:
    unused = call("unused", target, "(x,)")
    graph = graph_from({"nodes": [placeholder("x", tensor(4)), unused, output("x")]})
    assert graph is not None
    (node,) = graph.calls
    assert is_dead_code(graph, node) is not writes


def test_where_no_later_graph_is_recorded_nobody_is_named(tmp_path: Path) -> None:
    path = captured(tmp_path / "recording", {"f": TANH}, more=[LOWERED])
    assert "a later stage replaced it" in inductoscope("show", path, "--op", "tanh").words
