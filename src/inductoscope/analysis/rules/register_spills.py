"""GPU kernels that keep values in memory because they have too few registers.

What it finds: a generated Triton kernel whose chosen configuration spills registers, as the Triton
compiler reported.

Why it matters: a value that is spilled is written to memory and read back, in every thread.

Example: a fused kernel with many inputs and 2 warps.

What to do: Let torch try more launch configurations (`coordinate_descent_tuning`), or fuse less
(`max_fusion_size`).
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import NativeCompile, Recording
from inductoscope.model.join import KernelPlace, kernel_places
from inductoscope.torch_facts import stages

# A handful of spills hides behind the kernel's other reads and writes.
FEWEST_SPILLS = 16


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel all of whose configurations spill, about the one that spills least."""
    compiled: dict[str, list[NativeCompile]] = {}
    for native in recording.natives:
        if native.tool == "triton" and native.spills is not None:
            compiled.setdefault(native.kernel, []).append(native)
    for place in kernel_places(recording, "Triton"):
        tried = compiled.get(place.kernel.name, [])
        # Which one was chosen is not always recorded; the best bound is what it spills at least.
        least = min(tried, key=lambda native: native.spills or 0, default=None)
        if least is not None and (least.spills or 0) >= FEWEST_SPILLS:
            yield _finding(place, least, len(tried))


def _finding(place: KernelPlace, native: NativeCompile, tried: int) -> Finding:
    where, code = place.line()
    of_all = f"the best of {tried} configurations" if tried > 1 else "its only configuration"
    return Finding(
        rule="register_spills",
        title=f"{place.kernel.name} spills {native.spills} registers to memory",
        is_problem=False,
        confidence="proven",
        evidence=(f"Triton's report for {of_all}: {native.config}",),
        advice="Try torch._inductor.config.coordinate_descent_tuning = True, or a smaller "
        "torch._inductor.config.max_fusion_size.",
        stage=stages.TRITON_COMPILE,
        source=where,
        compile=place.compile.id,
        code=code,
    )
