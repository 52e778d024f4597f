"""A graph whose tensors are all inputs: parameters, buffers and constants as well.

What is compared, cut down and written into a script are inputs. An exported program keeps its
weights as attributes instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from inductoscope.doctor.compare.graphs import snapshot

TORCH_NAMES = {
    "torch._ops": ("OpOverload",),
    "torch.fx._lazy_graph_module": ("_use_lazy_graph_module",),
}


@dataclass
class LiftedGraph:
    """The graph, and the tensors that it takes after its own inputs."""

    # With everything that it returns, and with its tensors alone, which can be compared.
    whole: GraphModule
    module: GraphModule
    # The places of those tensors in what it returns.
    compared: tuple[int, ...]
    # By the names of the new inputs, in order; and what the program calls each of them.
    attributes: dict[str, torch.Tensor]
    named: dict[str, str]
    # Whether it changes its own attributes, so that every call finds others than the one before.
    changes_itself: bool = False
    _versions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.note_values()

    def note_values(self) -> None:
        """From now on, a change of an attribute is one that a package does not know of."""
        self._versions = {name: value._version for name, value in self.attributes.items()}

    @property
    def changed_since(self) -> str:
        """An attribute that the program has changed since then; empty if it has changed none.

        They are the model's own tensors, of which a package has a copy.
        """
        changed = (
            name
            for name, value in self.attributes.items()
            if value._version != self._versions[name]
        )
        return next((self.named[name] for name in changed), "")


def lifted(module: GraphModule) -> LiftedGraph:
    """A copy of the graph with its tensors as inputs."""
    graph, copies = Graph(), dict[Node, Node]()
    for node in module.graph.find_nodes(op="placeholder"):
        copies[node] = _copied(graph, node, copies)
    inputs, attributes, named = _inputs_for_attributes(graph, module)
    for node in module.graph.nodes:
        if node in copies:
            continue
        if node.op == "get_attr" and str(node.target) in inputs:
            copies[node] = inputs[str(node.target)]
        else:
            copies[node] = _copied(graph, node, copies)
    with _use_lazy_graph_module(False):
        whole = GraphModule(module, graph)
    compared = _places_of_tensors(whole)
    return LiftedGraph(
        whole,
        _returning(whole, compared),
        compared,
        attributes,
        named,
        any(_is_written(node, set()) for node in graph.nodes if node.name in attributes),
    )


def _copied(graph: Graph, node: Node, copies: dict[Node, Node]) -> Node:
    copy = graph.node_copy(node, copies.__getitem__)
    copy.meta = dict(node.meta)
    return copy


def _inputs_for_attributes(
    graph: Graph, module: GraphModule
) -> tuple[dict[str, Node], dict[str, torch.Tensor], dict[str, str]]:
    """New inputs by the targets of the attributes that they stand for; values; targets."""
    inputs: dict[str, Node] = {}
    attributes, named = {}, {}
    for node in module.graph.find_nodes(op="get_attr"):
        target = str(node.target)
        value: Any = module
        for part in target.split("."):
            value = getattr(value, part)
        if target in inputs or not isinstance(value, torch.Tensor):
            continue
        inputs[target] = graph.placeholder(target.replace(".", "_"))
        attributes[inputs[target].name] = value.detach()
        named[inputs[target].name] = target
    return inputs, attributes, named


# --- what it returns ------------------------------------------------------------------------------


def _places_of_tensors(module: GraphModule) -> tuple[int, ...]:
    """Numbers, too, are returned by a package as tensors: they cannot be compared as they are."""
    returned = _returned(module)
    return tuple(number for number, item in enumerate(returned) if _is_tensor(item))


def _returned(module: GraphModule) -> list[Any]:
    items = module.graph.output_node().args[0]
    return list(items) if isinstance(items, (tuple, list)) else [items]


def _is_tensor(item: Any) -> bool:
    if not isinstance(item, Node):
        return False
    value = item.meta.get("val")
    return value is None or isinstance(value, torch.Tensor)


def _returning(module: GraphModule, places: tuple[int, ...]) -> GraphModule:
    """A copy that returns only some of its results."""
    found = snapshot(module)
    output = found.graph.output_node()
    output.args = (tuple(_returned(found)[place] for place in places),)
    found.recompile()
    return found


# --- what it writes to ----------------------------------------------------------------------------


def _is_written(node: Node, seen: set[Node]) -> bool:
    """Whether the graph writes to a tensor, or to a view of it."""
    if node in seen:
        return False
    seen.add(node)
    return any(
        _writes_to(user, node) or (_may_be_view(user) and _is_written(user, seen))
        for user in node.users
    )


def _writes_to(user: Node, node: Node) -> bool:
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    declared = user.target._schema.arguments
    given = [*zip(declared, user.args, strict=False)]
    given += [(one, user.kwargs[one.name]) for one in declared if one.name in user.kwargs]
    return any(
        one.alias_info is not None and one.alias_info.is_write and node in _nodes_in(value)
        for one, value in given
    )


def _nodes_in(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _may_be_view(user: Node) -> bool:
    """Whether a result may share memory with what it is made from."""
    if not isinstance(user.target, torch._ops.OpOverload):
        return user.op != "output"  # Unpacking, for one.
    return any(one.alias_info is not None for one in user.target._schema.returns)
