"""Turns an FX graph into plain data: its nodes, where each came from, and code that runs.

Only shapes, types and names are stored, never the values of tensors.
"""

from __future__ import annotations

import re
from typing import Any

from inductoscope.inside.scope import SCOPE

# A list of this many characters is literal data, not structure: left out.
_LONG_LITERAL = re.compile(r"\[[^\[\]\n]{1000,}\]")

# The path and class of each module, the outermost first.
_ModuleStack = tuple[tuple[str, str], ...]

# Arguments longer than this are literal data (a constant list), not structure.
_LONGEST_ARGUMENTS = 2000


def store_graph(module: Any, *, code: bool = True) -> str:
    """Store a GraphModule (or Graph) as data and return the digest of the payload.

    `code` adds what it takes to run the graph; printing that is half of the cost.
    """
    return SCOPE.json(describe_graph(module, code=code))


def describe_graph(module: Any, *, code: bool = True) -> dict[str, Any]:
    """Return a GraphModule (or Graph) as JSON-ready data."""
    graph = getattr(module, "graph", module)
    owner = module if graph is not module else graph.owning_module
    stacks: dict[str, int] = {}
    modules: dict[_ModuleStack, int] = {}
    nodes = [_describe_node(node, stacks, modules) for node in graph.nodes]
    found: dict[str, Any] = {"nodes": nodes, "stacks": list(stacks)}
    if modules:
        found["modules"] = list(modules)
    if code:
        found.update(_code(graph), attributes=_describe_attributes(graph, owner))
    return found


def _describe_node(
    node: Any, stacks: dict[str, int], modules: dict[_ModuleStack, int]
) -> dict[str, Any]:
    meta = node.meta
    found: dict[str, Any] = {"name": node.name, "op": node.op, "target": target_name(node)}
    if node.args:
        found["args"] = str(node.args)[:_LONGEST_ARGUMENTS]
    if node.kwargs:
        found["kwargs"] = str(node.kwargs)[:_LONGEST_ARGUMENTS]
    value = meta.get("val", meta.get("example_value"))
    if value is not None:
        found["value"] = describe_value(value)
    stack = meta.get("stack_trace")
    if stack:
        found["stack"] = stacks.setdefault(stack, len(stacks))
    inside = _module_stack(meta)
    if inside:
        found["modules"] = modules.setdefault(inside, len(modules))
    aten = meta.get("original_aten")
    if aten is not None:
        found["aten"] = str(aten)
    origins = _origins(meta.get("from_node"))
    if origins:
        found["from"] = origins
    return found


def _module_stack(meta: Any) -> _ModuleStack:
    """Return the modules whose code made a node; for a backward node, those of its forward node."""
    known = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if not isinstance(known, dict):
        return ()
    pairs = [value for value in known.values() if isinstance(value, tuple) and len(value) == 2]
    return tuple((str(path), _class_name(kind)) for path, kind in pairs)


def _class_name(kind: Any) -> str:
    name = kind if isinstance(kind, str) else getattr(kind, "__qualname__", "")
    return str(name).rpartition(".")[2]


def target_name(node: Any) -> str:
    """Return the operation of a node as torch prints it."""
    target = node.target
    if isinstance(target, str):
        return target
    module = getattr(target, "__module__", "") or ""
    name = str(target)
    if name.startswith("<"):  # Functions and built-ins print with an address.
        name = getattr(target, "__qualname__", getattr(target, "__name__", name))
        return name if module in ("", "builtins", "_operator") else f"{module}.{name}"
    return name


def _origins(sources: Any) -> list[str]:
    """Return the names of the nodes in earlier graphs that a node was made from, nearest first."""
    names: list[str] = []
    queue = list(sources or ())
    while queue and len(names) < 16:
        source = queue.pop(0)
        name = getattr(source, "name", None)
        if name and name not in names:
            names.append(name)
        queue.extend(getattr(source, "from_node", None) or ())
    return names


def describe_value(value: Any) -> Any:
    """Describe a tensor by shape, strides, dtype and device, other values by their structure."""
    if isinstance(value, (list, tuple)):
        return [describe_value(item) for item in value]
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype"):
        return {"type": type(value).__name__, "text": str(value)[:200], **_hint(value)}
    found: dict[str, Any] = {
        "shape": [_size(size) for size in shape],
        "dtype": str(value.dtype),
        "device": str(value.device),
    }
    if any(type(size) is not int for size in shape):
        found["hints"] = [_known_size(size) for size in shape]
    try:
        found["stride"] = [_size(size) for size in value.stride()]
        if getattr(value, "requires_grad", False):
            found["requires_grad"] = True
    except Exception:
        pass  # Sparse and nested tensors have no strides.
    return found


def _size(size: Any) -> Any:
    return size if type(size) is int else str(size)


def _known_size(size: Any) -> int | None:
    """Return the size in this run; None if it is data-dependent."""
    return size if type(size) is int else _hint(size).get("hint")


def _hint(value: Any) -> dict[str, Any]:
    """Return the hint of a symbolic size, which a script made from the graph needs."""
    hint = getattr(getattr(value, "node", None), "hint", None)
    return {"hint": int(hint)} if isinstance(hint, int) else {}


def _code(graph: Any) -> dict[str, Any]:
    """Return the graph printed as a Python function, and the import path of each global in it."""
    try:
        printed = graph.python_code("self")
    except Exception as error:
        return {"code": f"# the graph cannot be printed: {type(error).__name__}: {error}"}
    names = {name: _import_path(value) for name, value in printed.globals.items()}
    source, left_out = _LONG_LITERAL.subn("[...]", str(printed.src))
    found = {"code": source, "globals": names}
    return {**found, "left_out": left_out} if left_out else found


def _import_path(value: Any) -> str | None:
    """Return the import path of a global in the printed code; None if it has none."""
    if isinstance(value, (int, float, str, bool)) or value is None:
        return None if isinstance(value, str) else repr(value)
    name = getattr(value, "__qualname__", getattr(value, "__name__", None))
    module = getattr(value, "__module__", None)
    if name is None or "<" in name:
        return None
    return f"{module}.{name}" if module else str(name)


def _describe_attributes(graph: Any, owner: Any) -> dict[str, Any]:
    """Describe the module attributes that the graph reads: tensors by shape, subgraphs in full."""
    from torch.fx import GraphModule

    found: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op not in ("get_attr", "call_module") or node.target in found or owner is None:
            continue
        value = _lookup(owner, str(node.target))
        kind = type(value)
        if isinstance(value, GraphModule):
            found[node.target] = {"graph": describe_graph(value)}
        elif hasattr(value, "forward"):
            found[node.target] = {"module": f"{kind.__module__}.{kind.__qualname__}"}
        elif value is not None:
            found[node.target] = describe_value(value)
    return found


def _lookup(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner
