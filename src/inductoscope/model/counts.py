"""What is counted, and how: the same numbers in the summary, on the page and in JSON.

A kernel is generated code that a wrapper defines, however often it is called. A library call is a
call of anything else: `extern_kernels.mm`, `torch.ops.aten.sort.stable`. Pairs are counted by
the fusion ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inductoscope.model.entities import InductorGraph, Kernel

LIBRARY = "extern"

# Inductor schedules these like calls of a library. It writes an expression for them (`buf1[0]`), a
# check, or the call of another graph, which has kernels and calls itself.
NO_CALLS = frozenset(
    (
        *("MultiOutput", "OpaqueMultiOutput", "AllocatingMultiOutput", "TMADescriptor"),
        *("AssertScalar", "DynamicScalar"),
        *("DynamicSelectStorageOffset", "DynamicSliceSize"),
        *("Conditional", "Switch", "WhileLoop", "InvokeSubgraph"),
    )
)


@dataclass(frozen=True)
class KernelCounts:
    """How many kernels were generated, and what the wrappers call."""

    # By language.
    defined: Mapping[str, int]
    calls: int
    library_calls: int


def count_kernels(graphs: Iterable[InductorGraph]) -> KernelCounts:
    """The counts over all these graphs. A name stands for one kernel within its graph only."""
    defined: Counter[str] = Counter()
    calls: Counter[bool] = Counter()
    for graph in graphs:
        defined.update(kernel.language for kernel in generated(graph))
        calls.update(kernel.language == LIBRARY for kernel in graph.kernels)
    return KernelCounts(dict(defined), calls[False], calls[True])


def generated(graph: InductorGraph) -> tuple[Kernel, ...]:
    """The kernels that the wrapper of a graph defines, each by its first call."""
    found = {kernel.name: kernel for kernel in reversed(graph.kernels)}
    return tuple(found[name] for name in calls_by_name(graph) if found[name].language != LIBRARY)


def library_calls(graph: InductorGraph) -> tuple[Kernel, ...]:
    """The calls of libraries in the wrapper of a graph."""
    return tuple(kernel for kernel in graph.kernels if kernel.language == LIBRARY)


def calls_by_name(graph: InductorGraph) -> dict[str, int]:
    """What the wrapper of a graph calls, and how often, in the order of the first calls."""
    return dict(Counter(kernel.name for kernel in graph.kernels))
