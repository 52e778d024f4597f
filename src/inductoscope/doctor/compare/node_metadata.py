"""The first pass after which a node's metadata is not true of its value.

Inductor trusts the metadata of nodes when it allocates memory and chooses kernels. Each kept graph
is run node by node, and every value is compared with what its node says of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from inductoscope.doctor.compare.graphs import inputs_for, values_in_eager
from inductoscope.doctor.compare.passes import PassDivergence, PassWatch, divergence_at
from inductoscope.vocabulary import stages


def first_false_metadata(watch: PassWatch, known: Mapping[str, Any]) -> PassDivergence | None:
    """The first pass that makes metadata false which is still false when its group ends.

    AOTAutograd traces the graph anew after the passes before it, so theirs do not matter.
    """
    for steps in watch.groups:
        if not steps or steps[0].stage == stages.PRE_GRAD_PASS:
            continue
        at_last = false_nodes(steps[-1].module, known)
        for before, after in itertools.pairwise(steps):
            if not at_last:
                break
            old, new = false_nodes(before.module, known), false_nodes(after.module, known)
            texts = [text for name, text in new.items() if name in at_last and name not in old]
            if texts:
                return divergence_at(before.module, after, texts[0])
    return None


def false_nodes(module: GraphModule, known: Mapping[str, Any]) -> dict[str, str]:
    """What is false about nodes, by name; nothing if the graph cannot run."""
    try:
        values = values_in_eager(module, inputs_for(module, known))
    except Exception:
        return {}
    said = {
        node.name: _falsehood(node, values.get(node.name))
        for node in module.graph.nodes
        if node.op == "call_function"
    }
    return {name: text for name, text in said.items() if text}


def _falsehood(node: Node, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return ""
    declared: Any = node.meta.get("val")
    who = f"node {node.name} ({node.target})"
    if declared is None:
        return f"{who} has no metadata"
    if not isinstance(declared, torch.Tensor):
        return f"{who} is said to be a {type(declared).__name__} and is a tensor"
    if declared.dtype != value.dtype:
        return f"{who} is said to be {declared.dtype} and is {value.dtype}"
    if declared.device.type != value.device.type:
        return f"{who} is said to be on {declared.device} and is on {value.device}"
    if not _is_shape(declared.shape, value.shape):
        return f"{who} is said to be of shape {list(declared.shape)} and is {list(value.shape)}"
    return ""


def _is_shape(declared: torch.Size, actual: torch.Size) -> bool:
    """Whether a shape is the declared one; a size that is a symbol may be any."""
    return len(declared) == len(actual) and all(
        not isinstance(size, int) or size == other
        for size, other in zip(declared, actual, strict=True)
    )
