"""Passes that a program has registered are part of the script that shows what they do."""

from __future__ import annotations

import functools

import pytest
import torch
import torch._inductor.config as config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.fx_passes.post_grad import remove_noop_ops
from torch.fx import Graph, Node

from inductoscope.errors import ToolFailure
from inductoscope.inside.repro.replaced_functions import own_passes_text

aten = torch.ops.aten
KEPT = 3


def products(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.target is aten.mm.default]


def narrow(graph: Graph) -> None:
    for node in products(graph):
        with graph.inserting_before(node):
            cut = graph.call_function(aten.slice.Tensor, (node.args[0], 1, 0, KEPT))
        node.args = (cut, node.args[1])


class Narrow(CustomGraphPass):
    def __call__(self, graph: Graph) -> None:
        narrow(graph)

    def uuid(self) -> bytes:
        return get_hash_for_files((__file__,))


def test_a_function_is_copied_with_all_that_it_uses() -> None:
    with config.patch(post_grad_custom_post_pass=narrow):
        text = own_passes_text()
    assert text.endswith("torch._inductor.config.post_grad_custom_post_pass = narrow")
    made: dict[str, object] = {"torch": torch}
    with config.patch(post_grad_custom_post_pass=None):
        exec(text, made)
    assert made["KEPT"] == KEPT
    assert made["aten"] is aten


def test_an_object_is_made_anew_from_its_class() -> None:
    with config.patch(joint_custom_pre_pass=Narrow()):
        text = own_passes_text()
    assert text.endswith("torch._inductor.config.joint_custom_pre_pass = Narrow()")
    made: dict[str, object] = {"torch": torch, "__name__": "script"}
    with config.patch(joint_custom_pre_pass=None):
        exec(text, made)
        assert type(config.joint_custom_pre_pass).__name__ == "Narrow"
    assert made["get_hash_for_files"] is get_hash_for_files


def test_what_cannot_be_copied_is_said() -> None:
    class Counting(Narrow):
        def __init__(self) -> None:
            self.count = 0

    with config.patch(joint_custom_pre_pass=Counting()), pytest.raises(ToolFailure, match="state"):
        own_passes_text()


def test_passes_of_torch_are_left_out() -> None:
    torchs = functools.partial(remove_noop_ops)
    with config.patch(post_grad_custom_post_pass=torchs):
        assert own_passes_text() == ""
