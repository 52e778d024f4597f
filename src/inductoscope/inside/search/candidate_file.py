"""A candidate in a file or a message, for another process to read.

All tensors are in main memory; the candidate says on which device they belong. A graph is written
node by node, because torch's own way traces it anew, which loses the names and the source lines of
its nodes. It is read only by the process that it was written for: like every pickle, it could run
code.
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
    """Write it; raises `ToolFailure` if something in it cannot be written."""
    path.write_bytes(as_bytes(kept_in_main_memory(candidate)))


def read_candidate(path: Path) -> Candidate:
    """Read it, with every tensor in main memory."""
    found = from_bytes(path.read_bytes())
    assert isinstance(found, Candidate)
    return found


def as_bytes(item: Any) -> bytes:
    """Something with candidates in it; raises `ToolFailure` if it cannot be written."""
    page = io.BytesIO()
    try:
        torch.save(item, page, pickle_module=_PICKLE)
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise ToolFailure(f"the graph cannot be handed to another process: {text}") from error
    return page.getvalue()


def from_bytes(data: bytes) -> Any:
    """Read what `as_bytes` wrote."""
    return torch.load(io.BytesIO(data), weights_only=False, pickle_module=_PICKLE)


# --- graphs ---------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Writes graphs and operations; everything else as usual."""

    def reducer_override(self, item: Any) -> Any:
        if isinstance(item, GraphModule):
            tables = kernels_in(item.graph), constants_in(item.graph)
            return _made_module, (_nodes(item), _attributes(item), *tables)
        if isinstance(item, (torch._ops.OperatorBase, torch._ops.OpOverloadPacket)):
            return _operation, (_get_qualified_name(item),)
        return NotImplemented


# In the form in which torch.save and torch.load want it.
_PICKLE = types.SimpleNamespace(
    __name__="pickle",
    Pickler=_Pickler,
    Unpickler=pickle.Unpickler,
    UnpicklingError=pickle.UnpicklingError,
    dumps=lambda item, protocol=None: _dumped(item, protocol),
    dump=lambda item, file, protocol=None: _Pickler(file, protocol).dump(item),
    load=pickle.load,
    loads=pickle.loads,
)


def _dumped(item: Any, protocol: int | None) -> bytes:
    page = io.BytesIO()
    _Pickler(page, protocol).dump(item)
    return page.getvalue()


class _NodeName(str):
    """Refers to a node."""

    __slots__ = ()


def _nodes(module: GraphModule) -> list[tuple[Any, ...]]:
    found = []
    for node in module.graph.nodes:
        arguments = map_arg((node.args, node.kwargs), lambda other: _NodeName(other.name))
        found.append((node.op, node.name, node.target, *arguments, node.type, _kept_meta(node)))
    return found


def _kept_meta(node: Node) -> dict[str, Any]:
    """Where a node comes from, and what kind of value it has."""
    meta: dict[str, Any] = {"stack_trace": node.meta.get("stack_trace")}
    value = node.meta.get("example_value", node.meta.get("val"))
    if value is not None:
        is_tensor = isinstance(value, torch.Tensor)
        meta["example_value"] = torch.empty(0, device="meta") if is_tensor else ()
    return meta


def _attributes(module: GraphModule) -> dict[str, Any]:
    """Attributes that the graph reads: constants, parameters, inner graphs, modules it calls."""
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
    """An operation by its name; the one that reads must have registered it too."""
    return attrgetter(path.removeprefix("torch.ops."))(torch.ops)
