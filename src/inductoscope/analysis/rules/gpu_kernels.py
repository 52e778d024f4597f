"""Rules about kernels and reductions on a GPU."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Autotune, NativeCompile, Recording
from inductoscope.model.fx import FxNode, read_graph
from inductoscope.model.join import compiled_graphs, final_graph, kernel_places, place_of
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.recording.values import members
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in
from inductoscope.wording import count_of

# A kernel that moves fewer bytes takes less time than its launch.
SMALL = 1 << 20

# --- launches -------------------------------------------------------------------------------------

_BEGINNINGS = ("skipping cudagraphs due to ", "disabling cudagraphs due to ")
# Words in torch's reason, and the remedy; the first match counts.
_REMEDIES = (
    ("cpu device", "Create that tensor on the GPU (device=...), or move it there before the call."),
    ("mutat", "Write the result to a new tensor, or clone the input before the compiled function."),
    ("multiple devices", "Keep one compiled function on one GPU."),
    ("incompatible op", "Move that operation out of the compiled function."),
    ("dynamic shape", "Pad to a few sizes, or compile with dynamic=False."),
    ("cpp-wrapper", "Leave torch._inductor.config.cpp_wrapper as it is: False."),
    ("override_cudagraphs", "The program itself asks for that."),
    ("bisector", "torch's own bisector switched them off; its leftover state may be removed."),
    ("pending", "Call backward before the next forward, or mark the step: "
     "torch.compiler.cudagraph_mark_step_begin()."),
)  # fmt: skip
_FEWEST_KERNELS = 8
_SHARE = 0.8
_MODES = ("reduce-overhead", "max-autotune'", "cudagraphs")


def cudagraphs_off(recording: Recording) -> Iterator[Finding]:
    """Graphs that run without the CUDA graphs that were asked for.

    What it finds: a graph that was compiled with CUDA graphs (`mode="reduce-overhead"`), and for
    which torch then did without them, with the reason that torch logs.

    Why it matters: without them every kernel is launched from Python, and the GPU waits for small
    ones.

    Example: a tensor on the CPU in a compiled function, or an input that is changed in place.

    What to do: The finding says what stands in the way. If it cannot be removed, compile that part
    on its own, so that the rest keeps its CUDA graphs.
    """
    seen: set[tuple[str, str]] = set()
    for compile_ in recording.compiles:
        for text in compile_.cudagraph_skips:
            reason = cudagraphs_reason(text)
            if not reason or (compile_.place, reason) in seen:
                continue
            seen.add((compile_.place, reason))
            last = next(iter(frames_in(text)[::-1]), None)
            remedies = (remedy for words, remedy in _REMEDIES if words in reason.lower())
            yield Finding(
                title=f"{compile_.function or 'A graph'} runs without CUDA graphs: {reason}",
                evidence=(
                    f"torch's log in compile {compile_.id}: {text.strip().splitlines()[0][:300]}",
                ),
                advice=next(remedies, "Compile what stands in the way on its own."),
                stage=stages.RUNTIME,
            ).at(compile_.id, str(last or compile_.place), last.code if last else "")


def cudagraphs_reason(text: str) -> str:
    """Return torch's reason against CUDA graphs, without the stack and fixed words."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for beginning in _BEGINNINGS:
        first = first.removeprefix(beginning)
    return first.partition(". Found from")[0].rstrip(" :.")


def tiny_kernels(recording: Recording) -> Iterator[Finding]:
    """GPU graphs whose kernels are too small for their launch.

    What it finds: a graph with at least 8 kernels on a GPU, most of which read and write less than
    1 MiB, compiled without CUDA graphs.

    Why it matters: a kernel over 1 MiB takes less time than its launch from Python (about 5
    microseconds), so the GPU waits for the CPU.

    Example: the decoding of one token with a small model.

    What to do: `torch.compile(mode="reduce-overhead")` launches all kernels at once, with CUDA
    graphs. A larger batch also helps.
    """
    for compile_, graph in compiled_graphs(recording):
        settings = " ".join(compile_.settings.lines) if compile_.settings else ""
        if len(graph.kernels) < _FEWEST_KERNELS or any(mode in settings for mode in _MODES):
            continue
        nodes = [
            node
            for node in read_schedule(recording, graph.scheduled_after)
            if (node.device or node.leaves[0].device).startswith("cuda")
        ]
        known = [sum(node.bytes.values()) for node in nodes if node.bytes]
        small = [size for size in known if size < SMALL]
        if len(known) >= _FEWEST_KERNELS and len(small) >= _SHARE * len(nodes):
            median = statistics.median_high(known)
            yield Finding(
                title=f"{len(small)} of {len(nodes)} kernels read and write less than 1 MiB each: "
                "the GPU waits for their launches",
                confidence="likely",
                evidence=(
                    f"graph {graph.key}: the median kernel reads and writes {median:,} bytes",
                ),
                advice='torch.compile(mode="reduce-overhead") launches them together, with CUDA '
                "graphs.",
                stage=stages.RUNTIME,
            ).at(compile_.id, compile_.place)


# --- registers and tensor cores -------------------------------------------------------------------

# A handful of spills hides behind the kernel's other reads and writes.
_FEWEST_SPILLS = 16
_ASKED, _REFUSED = "ALLOW_TF32", "ALLOW_TF32=False"


def register_spills(recording: Recording) -> Iterator[Finding]:
    """GPU kernels that keep values in memory because they have too few registers.

    What it finds: a generated Triton kernel whose chosen configuration spills registers, as the
    Triton compiler reported.

    Why it matters: a value that is spilled is written to memory and read back, in every thread.

    Example: a fused kernel with many inputs and 2 warps.

    What to do: Let torch try more launch configurations (`coordinate_descent_tuning`), or fuse less
    (`max_fusion_size`).
    """
    compiled: dict[str, list[NativeCompile]] = defaultdict(list)
    for native in recording.natives:
        if native.tool == "triton" and native.spills is not None:
            compiled[native.kernel].append(native)
    for place in kernel_places(recording, "Triton"):
        tried = compiled.get(place.kernel.name, [])
        # The choice is not always recorded; the least number of spills is a lower bound.
        least = min(tried, key=lambda native: native.spills or 0, default=None)
        if least is None or (least.spills or 0) < _FEWEST_SPILLS:
            continue
        several = f"the best of {len(tried)} configurations"
        of_all = several if len(tried) > 1 else "its only configuration"
        yield Finding(
            title=f"{place.kernel.name} spills {least.spills} registers to memory",
            evidence=(f"Triton's report for {of_all}: {least.config}",),
            advice="Try torch._inductor.config.coordinate_descent_tuning = True, or a smaller "
            "torch._inductor.config.max_fusion_size.",
            stage=stages.TRITON_COMPILE,
        ).at(place.compile.id, *place.line())


def tensor_cores_unused(recording: Recording) -> Iterator[Finding]:
    """Matrix products in float32 on a GPU without its tensor cores.

    What it finds: a matrix product of float32 matrices whose autotuned choices were all compiled
    with ALLOW_TF32=False.

    Why it matters: NVIDIA GPUs since A100 compute float32 products several times faster with TF32,
    which keeps 10 of the 23 bits of the fraction.

    Example: a model in float32 that does not call `torch.set_float32_matmul_precision`.

    What to do: `torch.set_float32_matmul_precision("high")` if your model tolerates it, or
    bfloat16. 'inductoscope profile --advise SCRIPT' tries it, also where nothing was autotuned.
    """
    for compile_, graph in compiled_graphs(recording):
        products = {tuned.operation for tuned in graph.autotunes if _is_without(tuned)}
        final = read_graph(recording, final_graph(compile_, graph)) if products else None
        single = [
            node.name
            for node in (final.calls if final else ())
            if node.operation in products and _is_single_precision(node)
        ]
        if single:
            yield Finding(
                title=f"{count_of(len(single), 'matrix product')} in float32 without the tensor "
                "cores",
                evidence=(f"{', '.join(single[:4])}: every choice was compiled with {_REFUSED}",),
                advice='torch.set_float32_matmul_precision("high") uses TF32, with about 3 decimal '
                "digits; bfloat16 is faster still.",
                stage=stages.AUTOTUNE,
            ).at(compile_.id, *place_of(recording, compile_, graph, single))


def _is_without(tuned: Autotune) -> bool:
    told = [choice.description for choice in tuned.choices if _ASKED in choice.description]
    return bool(told) and all(_REFUSED in description for description in told)


def _is_single_precision(node: FxNode) -> bool:
    value = members(node.value)
    on_gpu = str(value.get("device", "")).startswith("cuda")
    return on_gpu and value.get("dtype") == "torch.float32"


# --- reductions -----------------------------------------------------------------------------------

LARGE = 1 << 20
# Fewer than a small GPU has multiprocessors.
_FEW_RESULTS = 16


def split_reductions(recording: Recording) -> Iterator[Finding]:
    """Small reductions on a GPU that are split into two kernels.

    What it finds: a reduction that reads less than 1 MiB and that Inductor computes in two kernels,
    the second of which only adds up what the first left.

    Why it matters: Inductor splits a reduction with few results so that more of the GPU works on
    it. For so little data the launch of the second kernel takes longer than that saves.

    Example: the sum over a tensor of 100,000 elements.

    What to do: `torch._inductor.config.split_reductions = False` computes it in one kernel.
    'inductoscope profile --advise SCRIPT' tries it.
    """
    for compile_, graph in compiled_graphs(recording):
        for first, second in split_in_two(read_schedule(recording, graph.scheduled_after)):
            moved = sum(first.bytes.values())
            if 0 < moved < SMALL:
                yield Finding(
                    title=f"A reduction of {moved:,} bytes is computed in two kernels",
                    evidence=(
                        f"{first.name} computes parts of it, and {second.name} only puts them "
                        "together",
                    ),
                    advice="torch._inductor.config.split_reductions = False computes it in one.",
                    stage=stages.LOWERING,
                ).at(
                    compile_.id,
                    *place_of(recording, compile_, graph, second.leaves[-1].origins),
                )


def split_in_two(
    nodes: tuple[ScheduledNode, ...],
) -> Iterator[tuple[ScheduledNode, ScheduledNode]]:
    """Yield pairs of GPU kernels of which the second finishes the first one's reduction."""
    on_gpu = [n for n in nodes if all(leaf.device.startswith("cuda") for leaf in n.leaves)]
    makers: dict[str, dict[int, ScheduledNode]] = defaultdict(dict)
    for node in on_gpu:
        for part in _reductions(node):
            for name in part.writes:
                makers[name][id(node)] = node
    order = {id(node): number for number, node in enumerate(nodes)}
    found = {
        (order[id(first)], order[id(second)])
        for second in on_gpu
        for last in _reductions(second)
        # The first kernel must have written everything that the second reads.
        for first in makers.get(last.reads[0] if last.reads else "", {}).values()
        if first is not second and any(_finishes(part, last) for part in _reductions(first))
    }
    for first_place, second_place in sorted(found):
        yield nodes[first_place], nodes[second_place]


def _reductions(node: ScheduledNode) -> list[ScheduledNode]:
    return [leaf for leaf in node.leaves if leaf.loops == "Reduction"]


def _finishes(part: ScheduledNode, last: ScheduledNode) -> bool:
    return set(last.reads) <= set(part.writes) and bool(set(last.origins) & set(part.origins))


def unsplit_reductions(recording: Recording) -> Iterator[Finding]:
    """Large reductions on a GPU that are not split, so that hardly any of the GPU works on them.

    What it finds: a reduction of at least a million elements each to fewer results than a small GPU
    has multiprocessors, in one kernel.

    Why it matters: each result is computed by one block of threads, on one multiprocessor. The
    others have nothing to do. Inductor usually splits such a reduction into two kernels.

    Example: the sum over a tensor of 67 million elements with split_reductions switched off takes
    17 times as long as in eager on an H200.

    What to do: leave `torch._inductor.config.split_reductions` on. 'inductoscope profile --advise
    SCRIPT' tries it.
    """
    for compile_, graph in compiled_graphs(recording):
        for node in read_schedule(recording, graph.scheduled_after):
            for leaf in filter(is_unsplit, node.leaves):
                results, reduced = (math.prod(map(int, sizes)) for sizes in leaf.sizes[:2])
                blocks = "one block" if results == 1 else f"{results} blocks"
                yield Finding(
                    title=f"A reduction of {reduced:,} elements is computed by {blocks} of the GPU",
                    evidence=(
                        f"{leaf.name} reduces {reduced:,} elements for each of its {results} "
                        "results",
                    ),
                    advice="torch._inductor.config.split_reductions = True computes it in two "
                    "kernels.",
                    stage=stages.LOWERING,
                ).at(compile_.id, *place_of(recording, compile_, graph, leaf.origins))


def is_unsplit(leaf: ScheduledNode) -> bool:
    """Check whether few blocks compute a large reduction; False if sizes are symbolic."""
    if leaf.loops != "Reduction" or not leaf.device.startswith("cuda") or len(leaf.sizes) < 2:
        return False
    if not all(size.isdigit() for sizes in leaf.sizes for size in sizes):
        return False
    results, reduced = (math.prod(map(int, sizes)) for sizes in leaf.sizes[:2])
    return results < _FEW_RESULTS and reduced >= LARGE
