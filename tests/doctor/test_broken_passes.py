"""A pass that breaks a type or a shape is named, wherever the compiler then fails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
import torch._inductor.config
import torch._inductor.fx_passes.joint_graph as joint_graph
import torch._inductor.fx_passes.post_grad as post_grad
from torch.fx import Graph, GraphModule

from inductoscope.doctor.failure import Location
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.location import locate_error
from inductoscope.inside.search.oracle import Oracle
from support.graphs import captured, numbers

aten = torch.ops.aten
settings = torch._inductor.config.patch


def project(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.sin(x) @ w.t()) + 1


INPUTS = (numbers(8, 16), numbers(4, 16))


def calls(graph: Graph, target: Any) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if node.target is target]


# --- faults ---------------------------------------------------------------------------------------


def halve_weights(graph: Graph) -> None:
    """The second operand of every product becomes bfloat16, the first one does not."""
    for node in calls(graph, aten.mm.default):
        with graph.inserting_before(node):
            half = torch.ops.prims.convert_element_type.default
            node.args = (node.args[0], graph.call_function(half, (node.args[1], torch.bfloat16)))


def forget_transposes(graph: Graph) -> None:
    for node in calls(graph, aten.permute.default):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def double_first(graph: Graph) -> None:
    for node in graph.nodes:
        if getattr(node.target, "__name__", "") == "matmul":
            with graph.inserting_before(node):
                node.args = (graph.call_method("double", (node.args[0],)), node.args[1])


def nameless_node(graph: Graph) -> None:
    """A right node, without the metadata that passes after it read."""
    for node in calls(graph, aten.mm.default):
        with graph.inserting_before(node):
            node.args = (graph.call_function(aten.neg.default, (node.args[0],)), node.args[1])
            node.args = (graph.call_function(aten.neg.default, (node.args[0],)), node.args[1])


def after(original: Callable[..., Any], fault: Callable[[Graph], None]) -> Callable[..., Any]:
    """A pass of torch that does something wrong in the end."""

    @functools.wraps(original)
    def broken(graph: Any, *rest: Any) -> Any:
        result = original(graph, *rest)
        fault(graph.graph if isinstance(graph, GraphModule) else graph)
        return result

    return broken


def broken(module: Any, name: str, fault: Callable[[Graph], None]) -> AbstractContextManager[Any]:
    return mock.patch.object(module, name, after(getattr(module, name), fault))


def located(plant: AbstractContextManager[Any], *, backward: bool = False) -> Location:
    """The place that is blamed, if the exception was raised while operations were lowered."""
    inputs = tuple(value.clone().requires_grad_(backward) for value in INPUTS)
    candidate = Candidate(captured(project, *inputs), inputs, backward=backward)
    with plant:
        forks = Forks()
        failure = Oracle(forks).failure(candidate)
        assert failure is not None
        return locate_error(candidate, replace(failure, stage="lowering"), forks)


def test_a_kernel_refuses_a_type_that_a_pass_of_the_program_gave_it() -> None:
    found = located(settings(post_grad_custom_post_pass=halve_weights))
    assert (found.stage, found.pass_name) == ("post-grad-pass", "post_grad_custom_post_pass")
    line = halve_weights.__code__.co_firstlineno
    assert found.own_pass == f"halve_weights ({__file__}:{line})"
    assert found.operation == "aten.mm.default"
    assert "aten.mm.default (node mm) fails: RuntimeError: expected m1 and m2" in found.text
    assert found.added == ("prims.convert_element_type.default",)


def test_a_shape_that_a_pass_broke_is_named() -> None:
    found = located(broken(post_grad, "remove_assert_ops", forget_transposes))
    assert (found.stage, found.pass_name) == ("post-grad-pass", "remove_assert_ops")
    assert found.removed == ("aten.permute.default",)


def test_a_later_pass_fails_over_a_node_of_an_earlier_one() -> None:
    """Where the exception is raised, nothing is wrong."""
    plant = broken(joint_graph, "constant_fold_uniform_value", nameless_node)
    found = located(plant)
    assert (found.stage, found.pass_name) == ("joint-pass", "constant_fold_uniform_value")
    assert found.text == "node neg_default (aten.neg.default) has no metadata"
    assert found.how.endswith("without this pass, nothing fails")


def test_aot_autograd_fails_over_a_pass_before_it() -> None:
    found = located(settings(pre_grad_custom_pass=double_first))
    assert (found.stage, found.pass_name) == ("pre-grad-pass", "pre_grad_custom_pass")
    assert found.own_pass.startswith("double_first ")


def test_a_pass_that_breaks_the_backward_graph_alone() -> None:
    def halve_in_backward(graph: Graph) -> None:
        if len(calls(graph, aten.mm.default)) > 1:
            halve_weights(graph)

    plant = settings(post_grad_custom_post_pass=halve_in_backward)
    found = located(plant, backward=True)
    assert (found.stage, found.pass_name) == ("post-grad-pass", "post_grad_custom_post_pass")
    assert "halve_in_backward" in found.own_pass


def test_an_error_that_no_pass_made_stays_where_it_was_raised() -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("planted")

    lowerings = torch._inductor.lowering.lowerings
    found = located(mock.patch.dict(lowerings, {aten.sin.default: refuse}))
    assert found.stage == "lowering"
    assert not found.pass_name
