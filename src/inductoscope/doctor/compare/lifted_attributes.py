"""A graph whose tensors are all inputs: parameters, buffers and constants as well.

What is compared, cut down and written into a script are inputs. An exported program keeps its
weights as attributes instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module

TORCH_NAMES = {
    "torch._ops": ("OpOverload",),
    "torch.fx._lazy_graph_module": ("_use_lazy_graph_module",),
}


@dataclass
class LiftedGraph:
    """The graph, and the tensors that it takes after its own inputs."""

    module: GraphModule
    # By the names of the new inputs, in order; and what the program calls each of them.
    attributes: dict[str, torch.Tensor]
    named: dict[str, str]
    # Whether it changes its own attributes, so that a second call finds others than the first.
    changes_itself: bool = False


def lifted(module: GraphModule) -> LiftedGraph:
    """A copy of the graph with its tensors as inputs; it leaves the attributes as they are."""
    graph, made = Graph(), LiftedGraph(module, {}, {})
    copies: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            copies[node] = _copied(graph, node, copies)
    inputs = _inputs_for_attributes(graph, module, made)
    for node in module.graph.nodes:
        if node in copies:
            continue
        if node.op == "get_attr" and str(node.target) in inputs:
            copies[node] = inputs[str(node.target)]
        elif node.op == "output":
            graph.output(_tensors_of(graph.node_copy(node, copies.__getitem__)))
        else:
            copies[node] = _copied(graph, node, copies)
    made.changes_itself = _keep_as_they_are(graph, list(made.attributes))
    with _use_lazy_graph_module(False):
        made.module = GraphModule(module, graph)
    return made


def _copied(graph: Graph, node: Node, copies: dict[Node, Node]) -> Node:
    copy = graph.node_copy(node, copies.__getitem__)
    copy.meta = dict(node.meta)
    return copy


def _inputs_for_attributes(graph: Graph, module: GraphModule, made: LiftedGraph) -> dict[str, Node]:
    """New inputs, by the targets of the attributes that they stand for."""
    found: dict[str, Node] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        target = str(node.target)
        value: Any = module
        for part in target.split("."):
            value = getattr(value, part)
        if target in found or not isinstance(value, torch.Tensor):
            continue
        found[target] = graph.placeholder(target.replace(".", "_"))
        made.attributes[found[target].name] = value.detach()
        made.named[found[target].name] = target
    return found


def _tensors_of(output: Node) -> tuple[Node, ...]:
    """The outputs that are computed: a package returns only those."""
    nodes = tuple(output.all_input_nodes)
    wanted = tuple(node for node in _leaves(output.args[0]) if isinstance(node, Node))
    output.graph.erase_node(output)
    return wanted or nodes


def _leaves(item: Any) -> list[Any]:
    return (
        [leaf for part in item for leaf in _leaves(part)]
        if isinstance(item, (tuple, list))
        else [item]
    )


def _keep_as_they_are(graph: Graph, names: list[str]) -> bool:
    """Let the graph write to copies of attributes; whether it writes to any."""
    written = [node for node in graph.nodes if node.name in names and _is_written(node)]
    for node in written:
        with graph.inserting_after(_last_input(graph)):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        node.replace_all_uses_with(copy, delete_user_cb=lambda user, own=copy: user is not own)
    return bool(written)


def _last_input(graph: Graph) -> Node:
    return list(graph.find_nodes(op="placeholder"))[-1]


def _is_written(node: Node) -> bool:
    return any(_writes_to(user, node) for user in node.users)


def _writes_to(user: Node, node: Node) -> bool:
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    declared = zip(user.target._schema.arguments, user.args, strict=False)
    return any(
        given is node and one.alias_info is not None and one.alias_info.is_write
        for one, given in declared
    )
