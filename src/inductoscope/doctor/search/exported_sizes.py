"""Sizes that an exported program leaves open, as marks on its inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from inductoscope.capture.program_settings import MarkedSize

# The largest bound that is one: torch writes "no bound" as a number close to the largest integer.
_LARGEST = 2**62


def exported_sizes(module: GraphModule) -> tuple[MarkedSize, ...]:
    """A mark for every size that may vary.

    The first input that has a size says within which bounds; others with the same one follow it.
    """
    known: set[str] = set()
    return tuple(
        mark for node in module.graph.find_nodes(op="placeholder") for mark in _marks(node, known)
    )


def _marks(node: Node, known: set[str]) -> list[MarkedSize]:
    form: Any = node.meta.get("val")
    found = []
    for dimension, size in enumerate(form.shape if isinstance(form, torch.Tensor) else ()):
        if not isinstance(size, torch.SymInt):
            continue
        name = str(size.node.expr)
        if name in known or not name.isidentifier():
            found.append(MarkedSize(node.name, dimension, "maybe_mark_dynamic"))
            continue
        known.add(name)
        found.append(MarkedSize(node.name, dimension, "mark_dynamic", *_bounds(size)))
    return found


def _bounds(size: torch.SymInt) -> tuple[int | None, int | None]:
    bounds = size.node.shape_env.var_to_range.get(size.node.expr)
    if bounds is None:
        return None, None
    least, most = _number(bounds.lower), _number(bounds.upper)
    return least, None if most is None or most > _LARGEST else most


def _number(bound: Any) -> int | None:
    """A bound of torch's, which may be infinite."""
    text = str(bound)
    return int(text) if text.lstrip("-").isdecimal() else None
