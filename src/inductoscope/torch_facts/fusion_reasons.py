"""torch's reasons for not fusing, in plain words, with what to change.

One line of `REASONS` per reason (`why("...")` in torch's scheduler, its choices and its backends,
2.11 to 2.15). A reason that is not listed is shown in torch's words, without comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.recording.values import texts

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Reason:
    """torch's text (a pattern for all of it), its meaning, and what to change."""

    pattern: str
    words: str
    change: str = ""
    # Settings of torch._inductor.config that may lift the condition, each worth trying.
    tries: tuple[Settings, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """An explained refusal. Empty `words`: the reason is unknown."""

    words: str
    change: str = ""
    tries: tuple[Settings, ...] = ()
    # The condition in two or three words, the same for every pair that it decided.
    label: str = ""


NOT_EXPLAINED = Explanation("")

_TEMPLATE = ({"max_autotune": True, "max_autotune_gemm_backends": "CPP,TRITON"},)
_REORDER = (
    {"loop_ordering_after_fusion": True, "loop_index_inversion_in_fusion": True},
    {"loop_reindexing_after_fusion": True},
    {"pick_loop_orders": False},
)
_CLOSER = "Compute both with the same loops: the same shape and the same memory order."
_PAIRWISE = "Nothing to change: no setting affects this."

REASONS: tuple[Reason, ...] = (
    # --- do they share anything? ------------------------------------------------------------------
    Reason(
        r"no shared data( due to indexing mismatch)?",
        "They share no data in the same order. If they use the same buffer, each walks through it "
        "differently: another part, another order, or another shape.",
        "Make both walk through the buffer in the same order (layout, transposed copy, reduced "
        "dimension), or let torch change the loop order.",
        ({"aggressive_fusion": True}, *_REORDER),
    ),
    Reason(
        r"score_fusion_memory_threshold",
        "Fusing would save fewer bytes than score_fusion_memory_threshold requires.",
        "Lower score_fusion_memory_threshold.",
        ({"score_fusion_memory_threshold": 0}, *_REORDER),
    ),
    Reason(
        r"memory deps did not match",
        "The second reads other places of the buffer than the first writes, or in another order: "
        "a shared loop would need values that are not computed yet.",
        "Read the result in the order it is written, without a shift, transpose, flip or gather in "
        "between; or let torch change the loop order.",
        _REORDER,
    ),
    # --- the order of things ----------------------------------------------------------------------
    Reason(
        r"intermediate nodes between node1 & node2",
        "Something outside this kernel must run after the first and before the second.",
        "Fuse what lies between with the first; then the second can join.",
    ),
    Reason(
        r"will create cycle",
        "Fused, they would depend on another kernel that depends on them.",
        "Fuse what lies between with them, or move it before or after both.",
    ),
    Reason(r"node1 must go before node2", "The first needs the second's result; torch also "
           "tries the pair in the other order."),
    Reason(
        r"Nodes are too far away\. Fusing them may increase peak memory\.",
        "They are more than 64 steps apart; fused, buffers between them would live longer.",
        "Compute both next to each other in the program.",
    ),
    # --- limits -----------------------------------------------------------------------------------
    Reason(
        r"exceeds max fusion",
        "Together they have more operations than max_fusion_size allows in one kernel.",
        "Raise max_fusion_size.",
        ({"max_fusion_size": 1024},),
    ),
    Reason(
        r"fusion_prevent_too_many_reads_and_writes",
        "The fused kernel would use more buffers than max_fusion_unique_io_buffers allows.",
        "Raise max_fusion_unique_io_buffers.",
        ({"max_fusion_unique_io_buffers": 1_000_000},),
    ),
    Reason(
        r"Fusion will increase peak memory",
        "Fused, buffers that could reuse the same memory would have to exist at the same time, and "
        "the traffic saved is less than 1/32 of that memory.",
        "Nothing to set; it goes away if the two share more data.",
    ),
    # --- shapes (Triton and other block kernels) --------------------------------------------------
    Reason(
        r"numel/rnumel mismatch \(reduce\) \((?P<a>.*), (?P<b>.*)\), \((?P<c>.*), (?P<d>.*)\)",
        "Two reductions of different shape: {a} results of {c} elements each, and {b} results of "
        "{d} elements each.",
        "Reduce over the same dimensions of the same shape; reductions along different dimensions "
        "can share a kernel with triton.mix_order_reduction.",
        ({"triton.mix_order_reduction": True},),
    ),
    Reason(
        r"numel/rnumel mismatch \(non-reduce\) \((?P<a>.*), (?P<b>.*)\), \((?P<c>.*), (?P<d>.*)\)",
        "The first computes {a} elements, the second {b}; in one kernel the numbers must match.",
        _CLOSER,
        ({"expand_dimension_for_pointwise_nodes": True},),
    ),
    Reason(
        r"numel/rnumel mismatch prologue mismatch "
        r"\((?P<a>.*), (?P<b>.*)\), \((?P<c>.*), (?P<d>.*)\)",
        "The first computes {a} elements, the prologue fused so far {b}.",
        _CLOSER,
    ),
    Reason(
        r"nodes numel/rnumel incompatibility",
        "The pointwise part has as many elements as the reduction reads, but its dimensions "
        "cannot be split into the reduction's.",
        "Give both the same shape: no reshape across the reduced dimension.",
        _REORDER,
    ),
    Reason(
        r"nodes numel incompatibility",
        "The number of elements in the pointwise part matches neither what the reduction reads nor "
        "its results.",
        _CLOSER,
    ),
    Reason(
        r"tiling mismatch \((?P<rest>.*)\)",
        "They need different tilings, and one of them would run slower: {rest}.",
        "Give both the same memory order, or let torch fuse them anyway.",
        ({"triton.tiling_prevents_pointwise_fusion": False},),
    ),
    Reason(
        r"invalid tiling for reduction",
        "The pointwise part runs best in two-dimensional blocks, since it reads in two memory "
        "orders. A reduction's loop does not allow that.",
        "Give its inputs the same memory order, or let torch fuse them anyway.",
        ({"triton.tiling_prevents_reduction_fusion": False},),
    ),
    Reason(
        r"invalid loop order and tiling for native matmul",
        "The second's loop order differs from that of the matrix product.",
        _CLOSER,
    ),
    Reason(
        r"Split scan cannot fuse with reductions",
        "One is a scan (cumsum, ...) that is split over several blocks, the other a reduction.",
        _PAIRWISE,
    ),
    Reason(
        r"(reduction|template) fusion does not preserve strict (sum|reduction) ordering"
        r"|incompatible reduction contracts",
        "Fused, sums would be added in a different order than required.",
        "A setting requires the strict order; without it they may fuse.",
    ),
    Reason(
        r"(nested reduction append|staged|sub-parent epilogue|invalid sub-parent).*"
        r"|consumer is not wholly in the sub-parent epilogue"
        r"|a consumer depends on another producer sub-node",
        "A kernel with nested reductions, or with several parts, could not absorb it.",
        _PAIRWISE,
    ),
    # --- what kind of kernel ----------------------------------------------------------------------
    Reason(
        r"device mismatch \((?P<a>.*) vs (?P<b>.*)\)",
        "The first runs on {a}, the second on {b}.",
        "Move the data to one device.",
    ),
    Reason(
        r"fusion for buffer explicit disabled",
        "A lowering turned fusion off for this buffer.",
        _PAIRWISE,
    ),
    Reason(
        r"node1 is nop|node2 is extern or nop|node1 is extern or nop"
        r"|node1 is extern but not a triton kernel",
        "One of them is a library call, or not a kernel; there is no loop to fuse into.",
        "For matrix products and convolutions, set max_autotune: torch then also tries templates, "
        "which it can fuse into.",
        _TEMPLATE,
    ),
    Reason(
        r"node1's triton kernel doesn't support epilogue fusion"
        r"|node1 is extern but node2(\.node(\.data)?)? is not (SchedulerNode|Pointwise)"
        r"|epilogue reads from buffers other than the mutated output"
        r"|node1 and node2 uses different buf layouts"
        r"|epilogue's read and write indices differ"
        r"|epilogue is not a unary read of the output buffer",
        "The first is a user-defined Triton kernel. torch fuses into it only a pointwise operation "
        "that reads the kernel's one output, in the same layout, and nothing else.",
        "Do it inside your kernel, or set epilogue_fusion_user_defined_triton_kernel.",
        ({"epilogue_fusion_user_defined_triton_kernel": True},),
    ),
    Reason(
        r"grouped node must not be fused with other nodes",
        "It belongs to a group whose order is fixed (collective communication).",
        _PAIRWISE,
    ),
    Reason(
        r"foreach do not have same length",
        "Both are torch._foreach kernels, over lists of different length.",
        "Use lists of the same length.",
    ),
    Reason(
        r"candidate (producer|consumer) is a reduction, foreach ops cannot be fused with "
        r"reductions currently",
        "torch does not fuse reductions with torch._foreach kernels.",
        _PAIRWISE,
    ),
    Reason(
        r"candidate producer is not dep of any foreach consumer"
        r"|candidate consumer has no dep in any foreach producer",
        "They share an input, but no part of the torch._foreach kernel uses the other's result. "
        "torch fuses only such parts.",
        _PAIRWISE,
    ),
    # --- templates --------------------------------------------------------------------------------
    Reason(
        r"prologue fusion turned off",
        "Fusion of what comes before a template (prologue_fusion) is turned off.",
        "Set prologue_fusion.",
        ({"prologue_fusion": True},),
    ),
    Reason(
        r"prologue fusion only supported for (pointwise nodes|TritonTemplates)"
        r"|template has no allowed prologue inputs"
        r"|prologue fusion not implemented for kernel for these inputs"
        r"|template prologue can only fuse functional pointwise nodes",
        "torch fuses only pointwise operations without mutation into a template's input, and only "
        "if the template allows it.",
        _PAIRWISE,
    ),
    Reason(
        r"template prologue can only fuse nodes with a single use( into template)?",
        "The first's result has other users. torch fuses it into the template's input only if the "
        "template is its only user.",
        "Use the result once, or compute it twice.",
    ),
    Reason(
        r"prologue fusion will not increase amount of bytes read in kernel",
        "The template would read more bytes than the buffer between them has (a conversion to a "
        "smaller type, or several inputs). It reads its input many times, so it would be slower.",
        "Nothing to change: fusing would cost more than it saves.",
    ),
    Reason(
        r"prologue fusion will not increase attempt to fuse in padding .*",
        "The first pads the template's input; fused, its reads would no longer be aligned.",
        "Pad the data once, outside the compiled function.",
    ),
    Reason(
        r"prologue fusion that must be upcast to fp32 not profitable .*",
        "The first computes in float32 what the template takes in half precision.",
        "Nothing to change: torch expects it to be slower.",
    ),
    Reason(
        r"template epilogue not satisfied",
        "After a template, torch fuses only operations that neither reduce nor mutate, and only "
        "with epilogue_fusion.",
        "Set epilogue_fusion; avoid in-place operations on the template's result.",
        ({"epilogue_fusion": True},),
    ),
    Reason(
        r"multi-output template epilogue requires ComputedBuffer",
        "The template has several results; torch fuses only pointwise operations into it.",
        _PAIRWISE,
    ),
    Reason(
        r"register spilling of the (?P<which>first|second|fused) kernel",
        "Measured: the {which} kernel spills registers, so torch did not fuse.",
        "Without benchmark_fusion, torch fuses them without measuring.",
        ({"benchmark_fusion": False},),
    ),
    # --- CUTLASS ----------------------------------------------------------------------------------
    Reason(
        r"cutlass epilogue fusion is not enabled",
        "Fusing into CUTLASS kernels is turned off.",
        "Set cutlass.cutlass_epilogue_fusion_enabled and epilogue_fusion.",
        ({"cutlass.cutlass_epilogue_fusion_enabled": True, "epilogue_fusion": True},),
    ),
    Reason(
        r"epilogue fusion is only supported for TMA-enabled gemm ops"
        r"|.* is (not a ComputedBuffer|not a Pointwise op)|.* does not have a computed buffer name"
        r"|.*'s size: .* differs from .*'s size: .*|.* has aliasing or mutation"
        r"|.* is a reduction which is not yet supported by EVT"
        r"|Cannot fuse epilogue node .* into .*(unsupported operation|Reason): .*"
        r"|external read .* which CUTLASS EVT cannot align to the accumulator shape",
        "The CUTLASS kernel cannot absorb it as an epilogue; torch's reason says why.",
        _PAIRWISE,
    ),
)  # fmt: skip

# Longer texts quote whole nodes; matching patterns against them could take forever.
_LONGEST = 400

_COMPILED = tuple((re.compile(reason.pattern, re.DOTALL), reason) for reason in REASONS)


def explain_reason(text: str) -> Explanation:
    """Rephrase torch's reason in plain words; `words` is empty if the reason is unknown."""
    for pattern, reason in _COMPILED if len(text) <= _LONGEST else ():
        match = pattern.fullmatch(text.strip())
        if match is not None:
            words = reason.words.format(**match.groupdict()) if match.groupdict() else reason.words
            label = text.partition("(")[0].strip()
            return Explanation(words, reason.change, reason.tries, label)
    return NOT_EXPLAINED


# --- Refusals without a reason: derived from what torch's C++ backend looked at -------------------
#
# `CppScheduling.can_fuse_vertical` and `can_fuse_horizontal` refuse without a reason. The
# recording holds their inputs (loops, number of operations, kind of each side). The conditions
# here are theirs, in their order.

HORIZONTAL = "CppScheduling.can_fuse_horizontal"
VERTICAL = "CppScheduling.can_fuse_vertical"

_DEFAULT_LIMIT = 16


@dataclass(frozen=True)
class Loops:
    """The iteration and reduction ranges of a kernel."""

    kept: tuple[str, ...]
    reduced: tuple[str, ...]

    def __str__(self) -> str:
        kept = " x ".join(self.kept)
        if not self.reduced:
            return kept or "a single element"
        reduced = " x ".join(self.reduced)
        return f"{kept} x {reduced}, reducing {reduced}" if kept else f"{reduced}, reducing all"


def read_loops(text: str) -> Loops | None:
    """Parse the loops from the group of a scheduler node: '((64,), (128,))'."""
    inner = text.strip()
    if not (inner.startswith("((") and inner.endswith("))")):
        return None
    kept, found, reduced = inner[2:-2].partition("), (")
    return Loops(_ranges(kept), _ranges(reduced)) if found else None


def _ranges(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def explain_silence(decided: Mapping[str, Any], settings: Mapping[str, Any]) -> Explanation:
    """Find the condition that decided without a message; `words` is empty if unknown."""
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
        _PAIRWISE,
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
            _PAIRWISE,
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
            _PAIRWISE,
            label="no outer loop",
        )
    return Explanation(
        f"Their loops differ. The first runs over {first}; the second over {second}.",
        "Give both the same shape. torch may have merged the first's dimensions into one loop; "
        "keep a dimension that the other needs separate (another layout, no reshape in between).",
        _REORDER[:2],
        "different loops",
    )


# --- Settings of Inductor that decide what is fused -----------------------------------------------

# Recorded once per graph; all of them are numbers and switches.
FUSION_SETTINGS = (
    "max_fusion_size",
    "max_fusion_buffer_group_pairwise_attempts",
    "max_fusion_unique_io_buffers",
    "score_fusion_memory_threshold",
    "min_overlap_ratio",
    "aggressive_fusion",
    "benchmark_fusion",
    "epilogue_fusion",
    "prologue_fusion",
    "loop_ordering_after_fusion",
    "loop_reindexing_after_fusion",
    "loop_index_inversion_in_fusion",
    "max_autotune",
    "max_autotune_gemm",
    "cpp.max_horizontal_fusion_size",
    "triton.tiling_prevents_pointwise_fusion",
    "triton.tiling_prevents_reduction_fusion",
    "triton.mix_order_reduction",
)
