"""The table of kernels: each once, however often it is called, and every library call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from inductoscope.model.counts import LIBRARY, generated
from inductoscope.model.entities import InductorGraph, Kernel, NativeCompile
from inductoscope.model.join import GraphJoin
from inductoscope.model.native import NativeIndex
from inductoscope.profiling.kernels.work import GraphWork
from inductoscope.views.page.contract import KernelRow
from inductoscope.views.page.graph_summary import CallSummary, GraphSummary
from inductoscope.views.page.stage_panes import kernel_id


def kernel_rows(
    graphs: Sequence[InductorGraph], summaries: Sequence[GraphSummary], natives: NativeIndex
) -> Iterator[KernelRow]:
    """The kernels of all graphs. A compile is counted where it was first asked for."""
    counted: set[int] = set()
    for number, (graph, summary) in enumerate(zip(graphs, summaries, strict=True)):
        calls: dict[str, list[CallSummary]] = {}
        for kernel, call in zip(graph.kernels, summary.calls, strict=True):
            calls.setdefault(kernel.name, []).append(call)
        for kernel in generated(graph):
            known = natives.of(kernel)
            fresh = tuple(native for native in known if id(native) not in counted)
            counted.update(map(id, fresh))
            yield _kernel(number, kernel, _made(known, fresh), calls[kernel.name], fresh)
        for kernel, call in zip(graph.kernels, summary.calls, strict=True):
            if kernel.language == LIBRARY:
                yield _kernel(number, kernel, "library call", [call], ())


def costliest(joins: Iterable[GraphJoin], count: int) -> list[Kernel]:
    """The C++ kernels that move the most bytes; those of which that is not known come last."""
    found: dict[str, tuple[int, Kernel]] = {}
    for join in joins:
        kernels = [kernel for kernel in join.graph.kernels if kernel.language == "C++"]
        if not kernels:
            continue  # Finding out what is moved means reading the graph.
        work = GraphWork(join)
        for kernel in kernels:
            before, first = found.get(kernel.digest, (0, kernel))
            found[kernel.digest] = before + (work.moved(kernel) or 0), first
    ordered = sorted(found.values(), key=lambda pair: -pair[0])
    return [kernel for _, kernel in ordered[:count]]


def _made(natives: tuple[NativeCompile, ...], fresh: tuple[NativeCompile, ...]) -> str:
    if any(not native.cache_hit for native in fresh):
        return "compiled"
    if natives and not fresh:
        return "reused"
    return "from a cache" if natives else ""


def _kernel(
    number: int,
    kernel: Kernel,
    made: str,
    calls: list[CallSummary],
    natives: tuple[NativeCompile, ...],
) -> KernelRow:
    seconds = [native.seconds for native in natives if native.seconds is not None]
    moved = [call.moved for call in calls]
    return KernelRow(
        id=kernel_id(kernel),
        name=kernel.name,
        made=made,
        calls=len(calls),
        language=kernel.language,
        graph=number,
        operations=calls[0].operations,
        lines=calls[0].lines,
        bytes=sum(each for each in moved if each is not None) if any(moved) else None,
        seconds=round(sum(seconds), 3) if seconds else None,
        registers=_most(native.registers for native in natives),
        spills=_most(native.spills for native in natives),
        shared=_most(native.shared for native in natives),
    )


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)
