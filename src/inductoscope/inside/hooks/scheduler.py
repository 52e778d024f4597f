"""The scheduler: its nodes, buffers and loop bodies before fusion and after, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from inductoscope.inside.graphs import target_name
from inductoscope.inside.hooks.kernel_lines import lines_by_owner
from inductoscope.inside.observe import Arguments, Keywords, stage, watch
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.recording.events import NodesScheduled
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Replacement, Wrap


def _listed(when: str) -> Replacement:
    def observer(args: Arguments, kwargs: Keywords) -> None:
        if SCOPE.is_timing:
            return
        # Nodes are guarded one by one: a node that cannot be described must not lose the list.
        describe = _measured_node if when == "before" else describe_node
        described = [SCOPE.guard(describe, node) for node in args[0]]
        nodes = [node for node in described if node is not BROKEN]
        SCOPE.emit(NodesScheduled(graph=SCOPE.graph, when=when, payload=SCOPE.json(nodes)))
        if when == "after":
            _printed.bodies.clear()

    return watch(observer)


def describe_node(node: Any) -> dict[str, Any]:
    """Describe a scheduler node; a fused one with the nodes inside it."""
    found: dict[str, Any] = {
        "name": node.get_name(),
        "class": type(node).__name__,
        "device": str(node.get_device()),
        "reads": sorted({dep.name for dep in node.read_writes.reads}),
        "writes": sorted({dep.name for dep in node.read_writes.writes}),
        "unmet": sorted({dep.name for dep in node.unmet_dependencies}),
        "buffers": [_describe_buffer(buffer) for buffer in node.get_outputs()],
    }
    group = getattr(node, "group", None)
    if group is not None:
        found["group"] = str(group[1])
    parts = getattr(node, "snodes", None)
    if parts is not None:
        found["nodes"] = [describe_node(part) for part in parts]
    else:
        found.update(_describe_single(node))
    return found


def _describe_single(node: Any) -> dict[str, Any]:
    operation = node.node
    found: dict[str, Any] = {
        "ir": type(operation).__name__,
        "loops": type(getattr(operation, "data", None)).__name__,
        "origins": origin_names(operation),
    }
    sizes = getattr(node, "_sizes", None)
    if sizes is not None:
        found["sizes"] = [[str(size) for size in group] for group in sizes]
    kernel = getattr(operation, "python_kernel_name", None)
    if kernel:
        found["kernel"] = str(kernel)
    body = getattr(node, "_body", None)
    if body is not None:
        found["body"] = _stored_body(body)
        indirect = SCOPE.guard(_indirect_indices, body)
        if indirect is not BROKEN and indirect:
            found["indirect"] = indirect
        computes = SCOPE.guard(lines_by_owner, operation, body)
        if computes is not BROKEN and computes:
            found["computes"] = computes
    return found


def _indirect_indices(body: Any) -> dict[str, dict[str, Any]]:
    """Return the variable and bounds check of each line that turns a value into an index."""
    found = {}
    for name, block in body.submodules.items():
        known = getattr(getattr(block, "clone", None), "keywords", None) or {}
        if "var" in known and "size" in known:
            found[name] = {
                "variable": str(known["var"]),
                "size": str(known["size"]),
                "checked": bool(known.get("check")),
                "wraps": bool(known.get("wrap_neg")),
            }
    return found


def _measured_node(node: Any) -> dict[str, Any]:
    moved = SCOPE.guard(_bytes_moved, node)
    return {**describe_node(node), **({} if moved is BROKEN else {"bytes": moved})}


def _bytes_moved(node: Any) -> dict[str, int]:
    """Return the bytes that a node reads or writes of each buffer, by torch's estimate."""
    from torch._inductor.virtualized import V

    size_of = getattr(V.graph, "get_dep_size_hint", None)
    found: dict[str, int] = {}
    for dep in (*node.read_writes.reads, *node.read_writes.writes):
        # A dependency that only enforces order moves no bytes.
        if type(dep).__name__ != "WeakDep":
            size = dep.numbytes_hint() if size_of is None else size_of(dep)
            found[dep.name] = found.get(dep.name, 0) + int(size)
    return {name: size for name, size in found.items() if size}


class _Printed(threading.local):
    """Loop bodies stored for the current graph; most are the same objects after fusion."""

    def __init__(self) -> None:
        self.bodies: dict[int, tuple[Any, str]] = {}


_printed = _Printed()


def _stored_body(body: Any) -> str:
    if id(body) not in _printed.bodies:
        # The body is kept alive with its digest, so that its id is not reused.
        _printed.bodies[id(body)] = (body, SCOPE.text(body_text(body)))
    return _printed.bodies[id(body)][1]


def body_text(body: Any) -> str:
    """Print a loop body; torch's own printing builds a module for it, which costs far more."""
    lines = [f"var_ranges = {dict(body.var_ranges)}"]
    lines += [f"{name} = {expression}" for name, expression in body.indexing_exprs.items()]
    for name, block in (("body", body.root_block), *body.subblocks.items()):
        inputs = [node.name for node in block.graph.nodes if node.op == "placeholder"]
        lines.append(f"def {name}({', '.join(['self', *inputs])}):")
        lines += [f"    {text}" for node in block.graph.nodes if (text := _body_line(node))]
    return "\n".join(lines)


def _body_line(node: Any) -> str:
    if node.op == "call_method":
        owner, *arguments = node.args
        return f"{node.name} = {owner}.{node.target}({_arguments(arguments, node.kwargs)})"
    if node.op == "call_module":
        return f"{node.name} = self.{node.target}({_arguments(node.args, node.kwargs)})"
    if node.op == "call_function":
        return f"{node.name} = {target_name(node)}({_arguments(node.args, node.kwargs)})"
    return f"return {node.args[0]}" if node.op == "output" else ""


def _arguments(args: Iterable[Any], kwargs: dict[str, Any]) -> str:
    # FX nodes print as their names, and strings quoted, which gives the text of a call.
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])


def _describe_buffer(buffer: Any) -> dict[str, Any]:
    node = buffer.node
    origin = node.get_origin_node()
    found: dict[str, Any] = {
        "name": buffer.get_name(),
        "users": [user.node.get_name() for user in buffer.users],
        "origin": None if origin is None else origin.name,
        "mutates": list(buffer.get_mutations()),
        "aliases": list(buffer.get_aliases()),
    }
    layout: Any = getattr(node, "layout", None)
    if hasattr(layout, "size") and hasattr(layout, "dtype"):
        found["dtype"] = str(layout.dtype)
        found["size"] = [str(size) for size in layout.size]
        found["stride"] = [str(stride) for stride in layout.stride]
    return found


def origin_names(operation: Any) -> list[str]:
    origins = list(getattr(operation, "origins", None) or ())
    if len(origins) > 1:
        origins.sort()  # FX nodes compare by position in the graph.
    return [origin.name for origin in origins]


HOOKS = (
    Hook(
        stage=stages.SCHEDULER,
        records="scheduler nodes, buffers and loop bodies, before and after fusion",
        wraps=(
            Wrap(hooked.SCHEDULER_INIT, stage(stages.SCHEDULER, of_graph=True)),
            Wrap(hooked.LOG_IR_PRE_FUSION, _listed("before")),
            Wrap(hooked.LOG_IR_POST_FUSION, _listed("after")),
        ),
        reads=(
            hooked.LOOP_BODY,
            hooked.GET_OUTPUTS,
        ),
    ),
)
