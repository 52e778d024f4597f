"""Makes dimensions smaller: one size at a time, wherever it occurs in inputs and graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_map

from inductoscope.inside.compare.values import is_plain
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.shrink.shrink_pass import (
    Proposals,
    ShrinkPass,
    Subject,
    is_divisible,
)
from inductoscope.inside.search.user_kernels import calls_user_kernels

# Sizes to try, the smallest first; a vector register holds up to 16 elements.
_SIZES = (2, 4, 8, 17, 33)


def _measure(candidate: Candidate) -> int:
    return sum(sum(v.shape) for v in _tensors(candidate))


def _propose(subject: Subject) -> Proposals:
    candidate = subject.candidate
    if (yield [all_resized(candidate, smaller) for smaller in _SIZES[:3]]) is not None:
        return None
    for size in sorted(_sizes(candidate), reverse=True):
        attempts = [_resized(candidate, size, smaller) for smaller in _SIZES if smaller < size]
        found = yield attempts
        if found is not None:
            candidate = attempts[found] or candidate
    return None


def all_resized(candidate: Candidate, smaller: int) -> Candidate | None:
    """The candidate with every larger size made `smaller`; None where eager cannot run that."""
    attempt: Candidate | None = candidate
    sizes = [size for size in _sizes(candidate) if size > smaller]
    for size in sizes:
        attempt = None if attempt is None else _resized(attempt, size, smaller)
    return attempt if sizes else None


def _sizes(candidate: Candidate) -> set[int]:
    return {size for value in _tensors(candidate) for size in value.shape if size > 1}


def _tensors(candidate: Candidate) -> list[torch.Tensor]:
    return [v for inputs in candidate.calls for v in inputs if isinstance(v, torch.Tensor)]


def _resized(candidate: Candidate, size: int, smaller: int) -> Candidate | None:
    """The candidate with `smaller` in place of `size`; None if eager cannot run it."""
    try:
        module = _with_number(candidate.module, size, smaller)
        attempt = replace(candidate, module=module).with_calls_changed(
            lambda inputs: [_cut(value, size, smaller) for value in inputs]
        )
        if candidate.device:
            return attempt  # This process must not use the GPU; the oracle asks eager in a fork.
        with torch.no_grad():
            for inputs in attempt.calls:
                module(*[v.clone() if isinstance(v, torch.Tensor) else v for v in inputs])
    except Exception:
        return None
    return attempt


def _cut(value: Any, size: int, smaller: int) -> Any:
    if not isinstance(value, torch.Tensor):
        return smaller if type(value) is int and value == size else value
    if not is_plain(value) or size not in value.shape:
        return value
    part = value.detach()
    for dimension, own in enumerate(value.shape):
        if own == size:
            part = part.narrow(dimension, 0, smaller)
    return _same_order(part, value).requires_grad_(value.requires_grad)


def _same_order(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A dense copy whose dimensions have the same order in memory."""
    order = sorted(range(like.dim()), key=lambda d: (like.stride(d), -d), reverse=True)
    compact = part.permute(order).contiguous()
    back = [order.index(dimension) for dimension in range(like.dim())]
    return compact.permute(back)


def _with_number(module: GraphModule, size: int, smaller: int) -> GraphModule:
    """The graph with one number replaced wherever it is written as a size."""

    def change(item: Any) -> Any:
        return smaller if type(item) is int and item == size else item

    graph = Graph()
    output = graph.graph_copy(module.graph, {})
    graph.output(output)
    for node in graph.nodes:
        if node.op in ("call_function", "call_method"):
            node.args = tree_map(change, node.args)
            node.kwargs = tree_map(change, node.kwargs)
    return GraphModule(module, graph)


def _applies(candidate: Candidate) -> bool:
    # A kernel that the user wrote gets sizes as numbers, and would run past the end of less.
    return is_divisible(candidate) and not calls_user_kernels(candidate.module.graph)


PASS = ShrinkPass("shapes", "trying smaller shapes", _measure, _propose, _applies)
