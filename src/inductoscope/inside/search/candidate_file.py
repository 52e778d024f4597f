"""Serialization of a candidate to a file or a message, for another process to read.

All tensors are in main memory; the candidate names the device on which they belong. A graph is
written node by node, because torch's own pickling traces it anew, which loses the names and source
lines of its nodes. Only the intended process reads it: like every pickle, it could run code.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.node import _get_qualified_name, map_aggregate, map_arg

from inductoscope.errors import ToolFailure
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.placement import kept_in_main_memory
from inductoscope.inside.search.user_kernels import (
    KernelReference,
    constants_in,
    kernels_in,
    register_kernels,
)


def write_candidate(candidate: Candidate, path: Path) -> None:
    """Write a candidate to a file; raises `ToolFailure` if a value in it cannot be pickled."""
    _save(kept_in_main_memory(candidate), path)


def read_candidate(path: Path) -> Candidate:
    """Read a candidate from a file, with every tensor in main memory."""
    found = torch.load(path, weights_only=False)
    assert isinstance(found, Candidate)
    return found


def as_bytes(item: Any) -> bytes:
    """Serialize a value that holds candidates; raises `ToolFailure` if it cannot be pickled."""
    page = io.BytesIO()
    _save(item, page)
    return page.getvalue()


def _save(item: Any, target: Path | io.BytesIO) -> None:
    try:
        torch.save(item, target, pickle_module=_PICKLE)
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise ToolFailure(f"the graph cannot be handed to another process: {text}") from error


def from_bytes(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=False)


# --- graphs ---------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """A pickler with its own format for graphs and operators."""

    def reducer_override(self, item: Any) -> Any:
        if isinstance(item, GraphModule):
            tables = kernels_in(item.graph), constants_in(item.graph)
            return _made_module, (_nodes(item), _attributes(item), *tables)
        if isinstance(item, (torch._ops.OperatorBase, torch._ops.OpOverloadPacket)):
            return _operation, (_get_qualified_name(item),)
        return NotImplemented


# All that torch.save wants of a pickle module.
_PICKLE = types.SimpleNamespace(__name__="pickle", Pickler=_Pickler)


class _NodeName(str):
    """The name of a node, in place of the node itself."""

    __slots__ = ()


def _nodes(module: GraphModule) -> list[tuple[Any, ...]]:
    found = []
    for node in module.graph.nodes:
        arguments = map_arg((node.args, node.kwargs), lambda other: _NodeName(other.name))
        found.append((node.op, node.name, node.target, *arguments, node.type, _kept_meta(node)))
    return found


def _kept_meta(node: Node) -> dict[str, Any]:
    """Return the node's stack trace, and an example value of the same kind."""
    meta: dict[str, Any] = {"stack_trace": node.meta.get("stack_trace")}
    value = node.meta.get("example_value", node.meta.get("val"))
    if value is not None:
        is_tensor = isinstance(value, torch.Tensor)
        meta["example_value"] = torch.empty(0, device="meta") if is_tensor else ()
    return meta


def _attributes(module: GraphModule) -> dict[str, Any]:
    """Return the attributes that the graph reads: constants, parameters, graphs, submodules."""
    targets = [node.target for node in module.graph.nodes if node.op in ("get_attr", "call_module")]
    return {str(target): attrgetter(str(target))(module) for target in targets}


def _made_module(
    nodes: list[tuple[Any, ...]],
    attributes: Mapping[str, Any],
    kernels: Mapping[int, KernelReference],
    constants: Mapping[int, dict[str, Any]],
) -> GraphModule:
    register_kernels(kernels, constants)
    graph = Graph()
    known: dict[str, Node] = {}
    for op, name, target, args, kwargs, kind, meta in nodes:
        args, kwargs = map_aggregate(
            (args, kwargs), lambda item: known[item] if isinstance(item, _NodeName) else item
        )
        if op == "output":
            made = graph.output(args[0])
        else:
            made = graph.create_node(op, target, args, kwargs, name=name, type_expr=kind)
        made.meta = meta
        known[name] = made
    with _use_lazy_graph_module(False):
        return GraphModule(dict(attributes), graph)


def _operation(path: str) -> Any:
    """Look up an operator by its qualified name; the reading process must have registered it."""
    return attrgetter(path.removeprefix("torch.ops."))(torch.ops)
