"""Whether a kernel computes wrong numbers because of its lowering or of its code."""

from __future__ import annotations

import contextlib
from typing import Any

import sympy
import torch

from inductoscope.doctor.compare.bug_or_rounding import is_close
from inductoscope.doctor.compare.loop_bodies import CannotEvaluate, evaluate
from inductoscope.doctor.compare.watched_graphs import (
    KernelDivergence,
    WatchedGraph,
    planned_dtype,
)
from inductoscope.vocabulary import stages

TORCH_NAMES = {
    "torch._inductor.scheduler": ("SchedulerNode",),
}


def lowering_or_codegen(found: KernelDivergence) -> tuple[str, str]:
    """Whether the loop body is wrong already or only the code made from it, and how we know."""
    if found.is_overwritten:
        how = "after each kernel, every buffer that is read later was compared with what it held"
        return (stages.WRAPPER if found.shares_memory_with else ""), how
    how = "each buffer was compared with its node, computed in eager"
    value = found.graph.checked[found.buffer]
    if planned_dtype(found.graph, found.buffer, value) != value.dtype:
        return stages.LOWERING, f"{how}, and its type with that of the lowered graph"
    if found.kernel.startswith(("extern_kernels", "torch.ops", "aten.")):
        if _gets_other_inputs(found):
            return (
                stages.LOWERING,
                f"{how}; eager's kernel gets other inputs than the node",
            )
        return stages.RUNTIME, f"{how}; the kernel is one of eager's"
    if strides := _other_strides(found):
        return stages.WRAPPER, f"{how}; {strides}"
    expected = found.graph.expected
    eager = expected.eager.get(found.node) if expected is not None else None
    if isinstance(eager, torch.Tensor):
        values = [_loop_body_value(found, widened) for widened in (False, True)]
        known = [value for value in values if value is not None]
        if any(_agree(value, eager) for value in known):
            return stages.CODEGEN, f"{how}; its loop body, evaluated step by step, is right"
        if any(_agree(value, found.graph.checked[found.buffer]) for value in known):
            return stages.LOWERING, f"{how}; its loop body, evaluated step by step, is wrong too"
    return "", f"{how}; its loop body could not be evaluated"


def _gets_other_inputs(found: KernelDivergence) -> bool:
    """Whether the lowered graph passes other values to an extern kernel than the node reads."""
    nodes = {node.name: node for node in found.graph.module.graph.nodes}
    expected, buffer = found.graph.expected, found.graph.lowered.name_to_buffer[found.buffer]
    known = {**found.graph.inputs, **found.graph.checked, **found.graph.lowered.constants}
    if expected is None or found.node not in nodes:
        return False
    asked = [expected.eager.get(node.name) for node in nodes[found.node].all_input_nodes]
    try:
        given = [_laid_out(known[item.get_name()], item.get_layout()) for item in buffer.inputs]
    except (AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError):
        return False  # Unknown.
    pairs = [(one, two) for one, two in zip(asked, given, strict=False) if one is not None]
    is_whole = len(asked) == len(given) == len(pairs)
    return is_whole and any(one.shape != two.shape or not _agree(one, two) for one, two in pairs)


def _laid_out(value: torch.Tensor, layout: Any) -> torch.Tensor:
    """A buffer as a kernel reads it."""
    size, stride = ([int(item) for item in part] for part in (layout.size, layout.stride))
    return torch.as_strided(value, size, stride, int(layout.offset))


def _other_strides(found: KernelDivergence) -> str:
    """How the strides that the wrapper allocated differ from those of the lowered graph."""
    buffer, value = found.graph.lowered.name_to_buffer[found.buffer], found.graph.checked
    try:
        planned = tuple(int(step) for step in buffer.get_layout().stride)
        sizes = tuple(int(size) for size in buffer.get_layout().size)
    except (AttributeError, NotImplementedError, TypeError):
        return ""  # It has no single layout, or sizes that are not numbers.
    made = value[found.buffer]
    steps = zip(sizes, planned, made.stride(), strict=False)
    if made.shape != sizes or all(one == two for size, one, two in steps if size > 1):
        return ""
    return f"its allocation has strides {made.stride()}, its layout says {planned}"


def _loop_body_value(found: KernelDivergence, widened: bool) -> torch.Tensor | None:
    """What the loop body stores into the buffer; None if it cannot be evaluated."""
    from torch._inductor.scheduler import SchedulerNode

    values = {**found.graph.inputs, **found.graph.checked}
    values.pop(found.buffer, None)
    values.update(found.graph.lowered.constants)
    sizes = _sizes(found.graph)
    with contextlib.suppress(CannotEvaluate):
        for node in found.graph.lowered.scheduler.nodes:
            if not _writes(node, found):
                continue
            for part in node.get_nodes():
                if isinstance(part, SchedulerNode):
                    values.update(evaluate(part, values, sizes, widened=widened))
        return values.get(found.buffer)
    return None


def _writes(node: Any, found: KernelDivergence) -> bool:
    """Whether a node makes the buffer, or adds to what another one has put there."""
    is_complete = found.buffer in found.graph.rewritten
    added_to = {name for output in node.get_outputs() for name in output.get_mutations()}
    return found.buffer in node.get_buffer_names() or (is_complete and found.buffer in added_to)


def _sizes(graph: WatchedGraph) -> dict[sympy.Symbol, int]:
    """The values of the symbols of dynamic shapes in this call."""
    found: dict[sympy.Symbol, int] = {}
    for name, planned in graph.lowered.graph_inputs.items():
        given = graph.inputs.get(name)
        if isinstance(given, torch.Tensor) and hasattr(planned, "get_size"):
            sizes = zip(planned.get_size(), given.shape, strict=False)
            found.update({key: size for key, size in sizes if isinstance(key, sympy.Symbol)})
        elif isinstance(given, int) and isinstance(planned, sympy.Symbol):
            found[planned] = given
    return found


def _agree(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.numel() != two.numel():
        return False
    one = one.reshape(two.shape)
    if one.dtype.is_floating_point:
        return torch.allclose(one.double(), two.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
    return one.dtype == two.dtype and is_close(one, two)
