"""Lowering: for each FX node, the IR that it became, or its fallback to eager."""

from __future__ import annotations

import time
from typing import Any

from inductoscope.inside.graphs import store_graph, target_name
from inductoscope.inside.hooks.kernel_lines import claim
from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    Watching,
    current_compile_id,
    enter_graph_stage,
    in_part,
    until_left,
    watch,
)
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import GraphState, LoweredNode
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

# Boxes around the IR that a node became.
_BOXES = ("TensorBox", "StorageBox")


def _lower_graph(args: Arguments, kwargs: Keywords) -> Watching:
    frame = enter_graph_stage(stages.LOWERING)
    if frame.graph:
        # A subgraph, which the hooks of the passes have not recorded.
        SCOPE.guard(_emit_graph, args[0])
    yield from until_left(frame)


def _emit_graph(lowering: Any) -> None:
    payload, compile_id = store_graph(lowering.module), current_compile_id()
    SCOPE.emit(
        GraphState(stage="post-grad", compile=compile_id, graph=SCOPE.graph, payload=payload)
    )


def _lower_node(args: Arguments, kwargs: Keywords) -> Watching:
    graph, node = args[0], args[1]
    if node.op != "call_function":
        yield
        return
    operations, started = len(graph.operations), time.perf_counter()
    result = yield from in_part(stages.LOWERING, node.name)
    seconds = time.perf_counter() - started
    new = graph.operations[operations:]
    made = [_describe_operation(operation) for operation in new]
    SCOPE.emit(
        LoweredNode(
            graph=SCOPE.graph,
            node=node.name,
            target=target_name(node),
            ir=None if SCOPE.is_timing else _describe_result(result),
            made=tuple(made),
            fallback=any("Fallback" in item["class"] for item in made),
            seconds=round(seconds, 6),
        )
    )
    claim(_computed_by(node), result, new)


def _computed_by(node: Any) -> str:
    """Return the operation that computes a node's result, looking through getitem."""
    while target_name(node) == "getitem" and hasattr(node.args[0], "name"):
        node = node.args[0]
    return str(node.name)


def _describe_operation(operation: Any) -> dict[str, Any]:
    return {
        "name": operation.get_operation_name(),
        "class": type(operation).__name__,
        "kernel": getattr(operation, "python_kernel_name", None),
    }


def _describe_result(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [_describe_result(item) for item in result]
    inner = result
    while type(inner).__name__ in _BOXES:
        inner = inner.data
    return describe_ir(inner)


def describe_ir(node: Any) -> dict[str, Any]:
    """Describe an IR node: its class, ranges and, for loops, the inner function."""
    found: dict[str, Any] = {"class": type(node).__name__}
    name = getattr(node, "name", None)
    if isinstance(name, str):
        found["buffer"] = name
    loops = getattr(node, "data", node)
    if hasattr(loops, "inner_fn"):
        found.update(_describe_loops(loops))
    elif hasattr(node, "get_size") and not isinstance(node, type):
        found["ranges"] = _sizes(node)
    return found


def _describe_loops(loops: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "loops": type(loops).__name__,
        "dtype": str(loops.dtype),
        "ranges": [str(size) for size in loops.ranges],
        "inner": loops.inner_fn_str(),
    }
    if getattr(loops, "reduction_ranges", None) is not None:
        found["reduction_ranges"] = [str(size) for size in loops.reduction_ranges]
        found["reduction"] = str(getattr(loops, "reduction_type", ""))
    return found


def _sizes(node: Any) -> list[str] | None:
    try:
        return [str(size) for size in node.get_size()]
    except Exception:
        return None  # Not every IR node has a size: multi-output kernels do not.


HOOKS = (
    Hook(
        stage=stages.LOWERING,
        records="the IR that each FX node became",
        wraps=(
            Wrap(hooked.GRAPH_LOWERING_RUN, watch(_lower_graph)),
            Wrap(hooked.RUN_NODE, watch(_lower_node)),
        ),
        reads=(hooked.INNER_FN_STR,),
    ),
)
