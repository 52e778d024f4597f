"""Parts of a graph: any set of its nodes is a candidate that runs on the values of the whole."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule, Interpreter, Node

from inductoscope.inside.compare.values import copy_values, run
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.subgraph import (
    RecordedGraph,
    record_values,
    record_values_of,
    subgraph,
)
from support.graphs import captured, numbers


def candidate_of(function: Callable[..., Any], *inputs: Any) -> Candidate:
    """The graph that Dynamo takes of a function."""
    return Candidate(captured(function, *inputs), inputs)


def parameters(candidate: Candidate) -> list[str]:
    return [node.name for node in candidate.module.graph.nodes if node.op == "placeholder"]


def output_names(candidate: Candidate) -> list[str]:
    return [node.name for node in candidate.module.graph.output_node().args[0]]


def values_of(candidate: Candidate) -> dict[str, Any]:
    """Results of every operation of the candidate, right after it ran."""
    found: dict[str, Any] = {}

    class Keeping(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if n.op not in ("placeholder", "output"):
                found[n.name] = value.clone() if isinstance(value, torch.Tensor) else value
            return value

    Keeping(candidate.module).run(*copy_values(candidate.inputs))
    return found


# --- transforms -----------------------------------------------------------------------------------


def test_a_graph_that_fails_inside_vmap_leaves_no_transform_behind() -> None:
    """A Mamba's scan is such a graph; the program would go on inside of vmap."""
    functorch = torch._C._functorch

    def enter_and_fail(x: torch.Tensor) -> torch.Tensor:
        functorch._vmap_increment_nesting(3, "error")  # What Dynamo writes into a graph.
        raise ValueError("no such operation in float64")

    with pytest.raises(ValueError, match="float64"):
        run(enter_and_fail, [numbers(3)], backward=False)
    assert functorch.get_dynamic_layer_stack_depth() == 0

    graph = Graph()
    entered = graph.call_function(functorch._vmap_increment_nesting, (3, "error"))
    graph.output((entered,))
    record_values(Candidate(GraphModule(torch.nn.Module(), graph), ()))
    assert functorch.get_dynamic_layer_stack_depth() == 0


# --- any subset -----------------------------------------------------------------------------------


def ten_operations(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """With a write, a view and two operations that give several results."""
    y = x @ w
    y[0] = 1.0
    flat = y.view(-1)
    positive = flat.relu()
    largest, places = torch.max(y, 1)
    one, two = positive.chunk(2)
    product = one * two
    total = largest.sum()
    both = product + total
    return both.double(), places


NAMES = ["y", "setitem", "flat", "positive", "max_1", "chunk", "product", "total", "both", "double"]
subsets = st.sets(st.sampled_from(NAMES))


@functools.cache
def ten() -> RecordedGraph:
    return record_values(candidate_of(ten_operations, numbers(4, 3), numbers(3, 4)))


def test_what_can_be_left_out_are_the_operations_without_the_taking_of_single_results() -> None:
    assert ten().names == NAMES
    assert ten().candidate.size == len(NAMES)
    assert len(ten().candidate.operations) == len(NAMES) + 4


@given(subsets)
def test_every_subset_runs(keep: set[str]) -> None:
    cut = subgraph(ten(), keep)
    if keep <= {"setitem"}:
        assert cut is None, "nothing would come out of it"
        return
    assert cut is not None
    assert cut.size == len(keep)
    values = cut.module(*copy_values(cut.inputs))
    assert len(values) == len(output_names(cut)) > 0


@given(subsets)
def test_every_operation_of_a_subset_gives_what_it_gives_in_the_whole(keep: set[str]) -> None:
    if "y" in keep:
        keep.add("setitem")  # Without what is written to y its readers would see something else.
    cut = subgraph(ten(), keep)
    for name, value in (values_of(cut) if cut is not None else {}).items():
        expected = ten().made[name]
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, expected), name
            assert value.stride() == expected.stride(), name


@given(subsets)
def test_every_operation_of_a_subset_is_an_output_or_is_read(keep: set[str]) -> None:
    cut = subgraph(ten(), keep)
    if cut is None:
        return
    for node in cut.operations:
        if isinstance(ten().made[node.name], torch.Tensor):
            assert node.users, f"{node.name} would be removed as dead code"


@given(subsets.filter(lambda keep: not keep <= {"setitem"}))
def test_a_subset_leaves_the_recorded_values_alone(keep: set[str]) -> None:
    before = {name: copy_values([value])[0] for name, value in ten().made.items()}
    cut = subgraph(ten(), keep)
    assert cut is not None
    cut.module(*copy_values(cut.inputs))
    for name, value in before.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(ten().made[name], value)


# --- the cut --------------------------------------------------------------------------------------


def test_what_comes_from_outside_becomes_an_input() -> None:
    cut = subgraph(ten(), ["product", "both"])
    assert cut is not None
    assert parameters(cut) == ["one", "two", "total"]
    assert output_names(cut) == ["both"]
    for name, value in zip(parameters(cut), cut.inputs, strict=True):
        assert torch.equal(value, ten().made[name])


def test_all_nodes_together_are_the_whole() -> None:
    whole = subgraph(ten(), NAMES)
    assert whole is not None
    assert parameters(whole) == ["l_x_", "l_w_"]
    assert output_names(whole) == ["places", "double"]
    expected = ten_operations(*copy_values(whole.inputs))
    places, double = whole.module(*copy_values(whole.inputs))
    assert torch.equal(double, expected[0])
    assert torch.equal(places, expected[1])


def test_an_operation_with_several_results_brings_those_that_are_taken() -> None:
    cut = subgraph(ten(), ["max_1"])
    assert cut is not None
    assert output_names(cut) == ["largest", "places"]


def test_what_is_written_to_last_is_an_output() -> None:
    cut = subgraph(ten(), ["y", "setitem"])
    assert cut is not None
    assert output_names(cut) == ["y"]
    assert cut.module(*copy_values(cut.inputs))[0][0].tolist() == [1.0] * 4


def test_a_reader_sees_what_was_written_before() -> None:
    cut = subgraph(ten(), ["flat"])
    assert cut is not None
    (y,) = cut.inputs
    assert y[0].tolist() == [1.0] * 4, "written to"
    assert ten().made["y"][0].tolist() != [1.0] * 4, "not yet written to"


def test_two_readers_see_what_each_of_them_saw() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = x + 1
        x.mul_(0)
        after = x + 2
        return before, after

    recorded = record_values(candidate_of(function, numbers(3)))
    cut = subgraph(recorded, ["before", "after"])
    assert cut is not None
    assert values_of(cut)["after"].tolist() == recorded.made["after"].tolist()


def test_an_input_that_was_written_to_before_is_a_new_one_for_every_candidate() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    recorded = record_values(candidate_of(function, x))
    assert x.tolist() == [0, 0, 0]
    cut = subgraph(recorded, ["mul"])
    assert cut is not None
    assert cut.inputs[0].tolist() == [1, 1, 1]


def test_the_candidate_stays_compiled_as_the_program_compiles_it() -> None:
    whole = candidate_of(lambda x: x.sin().cos(), numbers(3))
    whole = Candidate(
        whole.module,
        whole.inputs,
        dynamic=True,
        options={"max_autotune": True},
        config={"epilogue_fusion": False},
        recipes=("torch.ones(3)",),
    )
    cut = subgraph(record_values(whole), ["cos"])
    assert cut is not None
    assert (cut.dynamic, cut.options, cut.config) == (True, whole.options, whole.config)
    assert cut.recipes == (), "its inputs are others"


def test_an_input_at_the_cut_asks_for_gradients_where_the_value_did() -> None:
    whole = candidate_of(lambda x, y: x.sin() * y.cos(), numbers(3), numbers(3))
    x, y = whole.inputs
    whole = Candidate(whole.module, (x.requires_grad_(), y), backward=True)
    cut = subgraph(record_values(whole), ["mul"])
    assert cut is not None
    assert [(value.requires_grad, value.is_leaf) for value in cut.inputs] == [
        (True, True),
        (False, True),
    ]


# --- each alone -----------------------------------------------------------------------------------


def test_apart_every_operation_reads_inputs_only() -> None:
    apart = subgraph(ten(), NAMES, separate=True)
    assert apart is not None
    assert apart.size == len(NAMES)
    own = {node.name for node in apart.operations}
    for node in apart.operations:
        read = {argument.name for argument in node.all_input_nodes} & own
        assert read <= {"max_1", "chunk"}, "only their single results are taken from them"


def test_apart_every_operation_is_an_output_with_the_value_that_it_has_in_the_whole() -> None:
    apart = subgraph(ten(), NAMES, separate=True)
    assert apart is not None
    tensors = [name for name, value in ten().made.items() if isinstance(value, torch.Tensor)]
    assert set(output_names(apart)) == set(tensors) - {"l_x_", "l_w_"}
    values = apart.module(*copy_values(apart.inputs))
    for name, value in zip(output_names(apart), values, strict=True):
        assert torch.equal(value, ten().made[name]), name


# --- what is no tensor ----------------------------------------------------------------------------


def module_with(graph: Graph, **attributes: Any) -> GraphModule:
    root = torch.nn.Module()
    for name, value in attributes.items():
        setattr(root, name, value)
    return GraphModule(root, graph)


def test_a_constant_tensor_of_the_module_becomes_an_input() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    table = graph.get_attr("table", type_expr=None)
    graph.output((graph.call_method("sin", (graph.call_function(torch.add, (x, table)),)),))
    table_values = torch.arange(3.0)
    module = module_with(graph, table=torch.nn.Buffer(table_values))
    cut = subgraph(record_values(Candidate(module, (numbers(3),))), ["add"])
    assert cut is not None
    assert parameters(cut) == ["x", "table"]
    assert torch.equal(cut.inputs[1], table_values)
    assert cut.module(*cut.inputs)[0].tolist() == (numbers(3) + table_values).tolist()


def test_a_constant_of_the_module_that_is_no_tensor_is_read_from_it_still() -> None:
    """A branch of torch.cond, say."""
    graph = Graph()
    x = graph.placeholder("x")
    inner = graph.get_attr("inner")
    applied = graph.call_function(_apply, (inner, graph.call_method("sin", (x,))), name="applied")
    graph.output((applied,))
    module = module_with(graph, inner=torch.nn.Threshold(0.0, 7.0))
    cut = subgraph(record_values(Candidate(module, (torch.tensor([1.0, -1.0]),))), ["applied"])
    assert cut is not None
    assert parameters(cut) == ["sin"]
    assert cut.module(torch.tensor([1.0, -1.0]))[0].tolist() == [1.0, 7.0]


def test_numbers_and_sizes_are_written_into_the_graph() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x,))
    graph.output((graph.call_function(torch.zeros, (size,), {"dtype": torch.int64}),))
    cut = subgraph(record_values(Candidate(GraphModule({}, graph), (numbers(2, 3),))), ["zeros"])
    assert cut is not None
    assert cut.inputs == ()
    assert cut.module()[0].shape == (2, 3)


def test_a_size_that_may_be_dynamic_stays_an_input() -> None:
    graph = Graph()
    size, x = graph.placeholder("s0"), graph.placeholder("x")
    graph.output((graph.call_method("view", (graph.call_method("sin", (x,)), size, -1)),))
    cut = subgraph(record_values(Candidate(GraphModule({}, graph), (2, numbers(6)))), ["view"])
    assert cut is not None
    assert parameters(cut) == ["sin", "s0"]
    assert cut.inputs[1] == 2


def with_a_thing() -> RecordedGraph:
    """thing = object(); used = use(x, thing); sin = used.sin()"""
    graph = Graph()
    x = graph.placeholder("x")
    thing = graph.call_function(_make_thing, (), name="thing")
    used = graph.call_function(_use_thing, (x, thing), name="used")
    graph.output((graph.call_method("sin", (used,)),))
    return record_values(Candidate(GraphModule({}, graph), (numbers(3),)))


def test_an_operation_whose_argument_cannot_be_written_down_is_left_out() -> None:
    assert subgraph(with_a_thing(), ["used"]) is None
    rest = subgraph(with_a_thing(), ["used", "sin"])
    assert rest is not None
    assert [node.name for node in rest.operations] == ["sin"]
    together = subgraph(with_a_thing(), ["thing", "used"])
    assert together is not None
    assert [node.name for node in together.operations] == ["thing", "used"]


def test_an_operation_that_is_left_out_leaves_no_input_behind() -> None:
    rest = subgraph(with_a_thing(), ["used", "sin"])
    assert rest is not None
    assert parameters(rest) == ["used"]


def _apply(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return function(x)


def _make_thing() -> object:
    return object()


def _use_thing(x: torch.Tensor, thing: object) -> torch.Tensor:
    return x + 1


def test_a_large_graph_runs_no_further_than_to_the_wanted_nodes() -> None:
    """The last operation would fail on these inputs."""
    graph = Graph()
    x = graph.placeholder("x")
    doubled = graph.call_function(torch.add, (x, x))
    parts = graph.call_function(torch.split, (doubled, 2))
    parts.meta["example_value"] = torch.arange(4.0).split(2)
    first = graph.call_function(operator.getitem, (parts, 0))
    graph.output(graph.call_function(torch.mm, (first, x)))
    module, given = GraphModule({}, graph), torch.arange(4.0)
    whole = Candidate(module, (given,))
    found = subgraph(record_values_of(whole, ["split"], [given], ()), ["split"])
    assert found is not None
    (part,) = run(found.module, found.inputs, backward=False).outputs[:1]
    assert part.tolist() == [0, 2]
