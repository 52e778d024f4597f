"""Why torch never considered a pair.

It makes candidates from buffers: nodes that use the same buffer are paired, each with the next 64
of them, except for nodes that can be fused with nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.analysis.fusion.pairs import Pair
from inductoscope.analysis.fusion.reasons import Explanation
from inductoscope.model.schedule import ScheduledNode
from inductoscope.vocabulary.verdicts import Confidence

_DEFAULT_ATTEMPTS = 64
_SETTING = "max_fusion_buffer_group_pairwise_attempts"

_AUTOTUNE = ({"max_autotune": True, "max_autotune_gemm_backends": "CPP,TRITON"},)


@dataclass(frozen=True)
class Never:
    """Why a pair was never tried, and how that is known."""

    explanation: Explanation
    confidence: Confidence


def why_never(
    pair: Pair,
    nodes: Mapping[str, ScheduledNode],
    users: Mapping[str, Mapping[str, int]],
    settings: Mapping[str, Any],
) -> Never:
    """`users` numbers the nodes that use each buffer and can be fused, in schedule order."""
    for name in (pair.first, pair.second):
        found = unfusable(nodes[name])
        if found is not None:
            return Never(found, "proven")
    limit = settings.get(_SETTING, _DEFAULT_ATTEMPTS)
    distance = _distance(pair, users)
    if isinstance(limit, int) and distance is not None and distance > limit:
        words = (
            f"{distance - 1} other nodes that use the same buffer lie between them; torch pairs a "
            f"node with the next {limit} only ({_SETTING})."
        )
        tries = ({_SETTING: 4 * distance},)
        return Never(Explanation(words, f"Raise {_SETTING}.", tries, "too many users"), "likely")
    words = "torch did not consider this pair; why is not known from the recording."
    return Never(Explanation(words, label="not known"), "unknown")


def unfusable(node: ScheduledNode) -> Explanation | None:
    """Why a node can be fused with nothing; None where it can."""
    if "Template" in node.ir:
        return None
    if node.kind == "NopKernelSchedulerNode":
        return Explanation(
            f"{node.name} is no kernel: it only names memory that others write ({node.ir}).",
            "Nothing to change: it costs no time of its own.",
            label="no kernel",
        )
    if node.kind != "ExternKernelSchedulerNode":
        return None
    if node.ir == "UserDefinedTritonKernel":
        return Explanation(
            f"{node.name} is a Triton kernel of your own, into which torch does not fuse.",
            "Do it inside of your kernel, or set epilogue_fusion_user_defined_triton_kernel.",
            ({"epilogue_fusion_user_defined_triton_kernel": True},),
            "Triton kernel of the user's",
        )
    if node.ir == "DeviceCopy":
        return Explanation(
            f"{node.name} copies data from one device to another.",
            "Keep the data on one device.",
            label="copy between devices",
        )
    if is_matrix_product(node):
        return Explanation(
            f"{node.name} calls a library ({node.kernel}), whose loops torch cannot extend.",
            "max_autotune: templates, into which torch can fuse, then take part in the choice.",
            _AUTOTUNE,
            "library call",
        )
    return Explanation(
        f"{node.name} calls a library ({node.kernel or node.ir}), whose loops torch cannot extend.",
        "Only an operation that torch generates code for itself can be fused.",
        label="library call without template",
    )


def is_matrix_product(node: ScheduledNode) -> bool:
    """Whether torch has templates for what a node calls."""
    last = node.kernel.rpartition(".")[2]
    return last in ("mm", "addmm", "bmm", "baddbmm", "convolution", "_int_mm", "bias_addmm") or (
        "_mm_plus_mm" in last
    )


def _distance(pair: Pair, users: Mapping[str, Mapping[str, int]]) -> int | None:
    """How far apart the two are among the users of the buffer where they are nearest."""
    found = [
        abs(places[pair.first] - places[pair.second])
        for moved in pair.moved
        if pair.first in (places := users.get(moved.buffer, {})) and pair.second in places
    ]
    return min(found) if found else None
