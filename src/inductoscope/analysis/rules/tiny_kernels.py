"""GPU graphs whose kernels are too small for their launch.

What it finds: a graph with at least 8 kernels on a GPU, most of which read and write less than
1 MiB, compiled without CUDA graphs.

Why it matters: a kernel over 1 MiB takes less time than its launch from Python (about 5
microseconds), so the GPU waits for the CPU.

Example: the decoding of one token with a small model.

What to do: `torch.compile(mode="reduce-overhead")` launches all kernels at once, with CUDA graphs.
A larger batch also helps.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages

FEWEST_KERNELS = 8
SMALL = 1 << 20
_SHARE = 0.8
_MODES = ("reduce-overhead", "max-autotune'")


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per graph."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            if len(graph.kernels) >= FEWEST_KERNELS and not _has_cuda_graphs(compile_):
                yield from _check_graph(recording, compile_, graph)


def _has_cuda_graphs(compile_: Compile) -> bool:
    text = " ".join(compile_.settings.lines) if compile_.settings else ""
    return any(mode in text for mode in _MODES) or "cudagraphs" in text


def _check_graph(
    recording: Recording, compile_: Compile, graph: InductorGraph
) -> Iterator[Finding]:
    nodes = [
        node
        for node in read_schedule(recording, graph.scheduled_after)
        if (node.device or node.leaves[0].device).startswith("cuda")
    ]
    sizes = [_bytes(node) for node in nodes]
    known = [size for size in sizes if size is not None]
    small = [size for size in known if size < SMALL]
    if len(known) < FEWEST_KERNELS or len(small) < _SHARE * len(sizes):
        return
    yield Finding(
        rule="tiny_kernels",
        title=f"{len(small)} of {len(nodes)} kernels read and write less than 1 MiB each: the GPU "
        "waits for their launches",
        is_problem=False,
        confidence="likely",
        evidence=(
            f"graph {graph.key}: the median kernel reads and writes {_median(known):,} bytes",
        ),
        advice='torch.compile(mode="reduce-overhead") launches them together, with CUDA graphs.',
        stage=stages.RUNTIME,
        source=compile_.place,
        compile=compile_.id,
    )


def _bytes(node: ScheduledNode) -> int | None:
    """What a kernel reads and writes, as Inductor counts it; None where that is not known."""
    return sum(node.bytes.values()) if node.bytes else None


def _median(sizes: list[int]) -> int:
    return sorted(sizes)[len(sizes) // 2]
