"""Refusals without a reason: derived from what torch's C++ backend looked at.

`CppScheduling.can_fuse_vertical` and `can_fuse_horizontal` refuse without a reason. The recording
holds their inputs (loops, number of operations, kind of each side). The conditions here are theirs,
in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.analysis.fusion.reasons import NOT_EXPLAINED, Explanation
from inductoscope.recording.values import texts

HORIZONTAL = "CppScheduling.can_fuse_horizontal"
VERTICAL = "CppScheduling.can_fuse_vertical"

_DEFAULT_LIMIT = 16
_LOOPS = (
    {"loop_ordering_after_fusion": True, "loop_index_inversion_in_fusion": True},
    {"loop_reindexing_after_fusion": True},
)


@dataclass(frozen=True)
class Loops:
    """The ranges that a kernel loops over, and those that it reduces."""

    kept: tuple[str, ...]
    reduced: tuple[str, ...]

    def __str__(self) -> str:
        kept = " x ".join(self.kept)
        if not self.reduced:
            return kept or "a single element"
        reduced = " x ".join(self.reduced)
        return f"{kept} x {reduced}, reducing {reduced}" if kept else f"{reduced}, reducing all"


def read_loops(text: str) -> Loops | None:
    """Loops from the group of a scheduler node: '((64,), (128,))'."""
    inner = text.strip()
    if not (inner.startswith("((") and inner.endswith("))")):
        return None
    kept, found, reduced = inner[2:-2].partition("), (")
    return Loops(_ranges(kept), _ranges(reduced)) if found else None


def _ranges(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def explain_silence(decided: Mapping[str, Any], settings: Mapping[str, Any]) -> Explanation:
    """Which condition decided; empty words if that is unknown."""
    gate = decided.get("gate")
    if gate == "speedup_by_fusion":
        return Explanation(
            "It would need an atomic addition in a template's epilogue.",
            "Set epilogue_fusion_with_atomic_add.",
            ({"epilogue_fusion_with_atomic_add": True},),
            label="atomic addition",
        )
    if gate == "benchmark":
        return Explanation(
            "torch compiled and timed the fused kernel, and kept the separate ones.",
            "Without benchmark_fusion, torch fuses all but templates without measuring.",
            ({"benchmark_fusion": False},),
            label="measured",
        )
    if gate not in (HORIZONTAL, VERTICAL):
        return NOT_EXPLAINED
    template = decided.get("template")
    if isinstance(template, list) and any(template):
        return _template(gate, bool(template[0]))
    return (_limit(decided, settings) if gate == HORIZONTAL else None) or _loops(gate, decided)


def _template(gate: str, first: bool) -> Explanation:
    if gate == VERTICAL and first:
        return Explanation(
            "The C++ template cannot absorb this as an epilogue: only pointwise operations of the "
            "same shape, in the same memory order.",
            "Keep shape and memory order after the matrix product.",
            label="C++ template",
        )
    return Explanation(
        "A C++ template absorbs only what uses its result, not what comes before or beside it.",
        "Nothing to change: no setting affects this.",
        label="C++ template",
    )


def _limit(decided: Mapping[str, Any], settings: Mapping[str, Any]) -> Explanation | None:
    members = decided.get("members")
    limit = settings.get("cpp.max_horizontal_fusion_size", _DEFAULT_LIMIT)
    counts = [n for n in members if isinstance(n, int)] if isinstance(members, list) else []
    if len(counts) != 2 or not isinstance(limit, int) or sum(counts) <= limit:
        return None
    return Explanation(
        f"Together they have {counts[0]} + {counts[1]} operations; the C++ backend fuses at most "
        f"{limit} horizontally (cpp.max_horizontal_fusion_size).",
        "Raise cpp.max_horizontal_fusion_size.",
        ({"cpp.max_horizontal_fusion_size": 1024},),
        "cpp.max_horizontal_fusion_size",
    )


def _loops(gate: str, decided: Mapping[str, Any]) -> Explanation:
    loops = [read_loops(text) for text in texts(decided.get("sizes"))]
    if len(loops) != 2 or loops[0] is None or loops[1] is None:
        return NOT_EXPLAINED
    return _differing(gate, loops[0], loops[1], texts(decided.get("class")))


def _differing(gate: str, first: Loops, second: Loops, classes: tuple[str, ...]) -> Explanation:
    if "OuterLoopFusedSchedulerNode" in classes:
        return Explanation(
            "One of them already has several loops inside one outer loop. The C++ backend adds "
            f"only what uses its result and shares that outer loop (here {first}; {second}).",
            "Nothing to change: no setting affects this.",
            label="outer loop taken",
        )
    if first.reduced and not second.reduced and second.kept == first.kept + first.reduced:
        return Explanation(
            f"The first reduces ({first}), the second does not ({second}): the C++ backend can put "
            "a pointwise operation into a reduction's loop only before the reduction.",
            "Compute the pointwise one first in the program, if it does not need the other.",
            label="reduction comes first",
        )
    if gate == VERTICAL and not first.kept and not second.kept:
        return Explanation(
            f"Both reduce everything to one element (over {first}; over {second}): they have no "
            "outer loop to share.",
            "Nothing to change: no setting affects this.",
            label="no outer loop",
        )
    return Explanation(
        f"Their loops differ. The first runs over {first}; the second over {second}.",
        "Give both the same shape. torch may have merged the first's dimensions into one loop; "
        "keep a dimension that the other needs separate (another layout, no reshape in between).",
        _LOOPS,
        "different loops",
    )
