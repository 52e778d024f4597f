"""Why torch never considered a pair.

torch pairs nodes that use the same buffer, each with the next 64, and skips nodes that cannot be
fused with anything.
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
    """Why torch never tried a pair, and how sure that is."""

    explanation: Explanation
    confidence: Confidence


def why_never(
    pair: Pair,
    nodes: Mapping[str, ScheduledNode],
    users: Mapping[str, Mapping[str, int]],
    settings: Mapping[str, Any],
) -> Never:
    """`users` numbers the fusable nodes that use each buffer, in schedule order."""
    for name in (pair.first, pair.second):
        found = unfusable(nodes[name])
        if found is not None:
            return Never(found, "proven")
    limit = settings.get(_SETTING, _DEFAULT_ATTEMPTS)
    distance = _distance(pair, users)
    if isinstance(limit, int) and distance is not None and distance > limit:
        words = (
            f"{distance - 1} other nodes that use the same buffer lie between them; torch pairs a "
            f"node only with the next {limit} ({_SETTING})."
        )
        tries = ({_SETTING: 4 * distance},)
        return Never(Explanation(words, f"Raise {_SETTING}.", tries, "too many users"), "likely")
    words = "torch did not consider this pair; the recording does not show why."
    return Never(Explanation(words, label="not known"), "unknown")


def unfusable(node: ScheduledNode) -> Explanation | None:
    """Why a node cannot be fused with anything; None if it can."""
    if "Template" in node.ir:
        return None
    if node.kind == "NopKernelSchedulerNode":
        return Explanation(
            f"{node.name} is not a kernel: it only names memory that others write ({node.ir}).",
            "Nothing to change: it takes no time.",
            label="no kernel",
        )
    if node.kind != "ExternKernelSchedulerNode":
        return None
    if node.ir == "UserDefinedTritonKernel":
        return Explanation(
            f"{node.name} is a user-defined Triton kernel, which torch does not fuse into.",
            "Do it inside your kernel, or set epilogue_fusion_user_defined_triton_kernel.",
            ({"epilogue_fusion_user_defined_triton_kernel": True},),
            "user-defined Triton kernel",
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
            "Set max_autotune: torch then also tries templates, which it can fuse into.",
            _AUTOTUNE,
            "library call",
        )
    return Explanation(
        f"{node.name} calls a library ({node.kernel or node.ir}), whose loops torch cannot extend.",
        "torch can only fuse operations that it generates code for.",
        label="library call without template",
    )


def is_matrix_product(node: ScheduledNode) -> bool:
    """Whether torch has templates for the library function that a node calls."""
    last = node.kernel.rpartition(".")[2]
    return last in ("mm", "addmm", "bmm", "baddbmm", "convolution", "_int_mm", "bias_addmm") or (
        "_mm_plus_mm" in last
    )


def _distance(pair: Pair, users: Mapping[str, Mapping[str, int]]) -> int | None:
    """How far apart the two are among a buffer's users, for the buffer where they are closest."""
    found = [
        abs(places[pair.first] - places[pair.second])
        for moved in pair.moved
        if pair.first in (places := users.get(moved.buffer, {})) and pair.second in places
    ]
    return min(found) if found else None
