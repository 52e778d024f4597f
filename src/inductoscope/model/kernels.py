"""Kernel counts and native compiles: the same numbers in the summary, on the page and in JSON.

A kernel is generated code that a wrapper defines, however often it is called. A library call is a
call of anything else: `extern_kernels.mm`, `torch.ops.aten.sort.stable`. Pairs are counted by
the fusion ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from inductoscope.model.entities import Compile, InductorGraph, NativeCompile, Recording
from inductoscope.recording.events import Kernel

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
    # The number of generated kernels by language.
    defined: Mapping[str, int]
    calls: int
    library_calls: int


def count_kernels(graphs: Iterable[InductorGraph]) -> KernelCounts:
    """Count kernels over several graphs. A kernel name is unique only within its graph."""
    defined: Counter[str] = Counter()
    calls: Counter[bool] = Counter()
    for graph in graphs:
        defined.update(kernel.language for kernel in generated(graph))
        calls.update(kernel.language == LIBRARY for kernel in graph.kernels)
    return KernelCounts(dict(defined), calls[False], calls[True])


def generated(graph: InductorGraph) -> tuple[Kernel, ...]:
    found = {kernel.name: kernel for kernel in reversed(graph.kernels)}
    return tuple(found[name] for name in calls_by_name(graph) if found[name].language != LIBRARY)


def library_calls(graph: InductorGraph) -> tuple[Kernel, ...]:
    return tuple(kernel for kernel in graph.kernels if kernel.language == LIBRARY)


def calls_by_name(graph: InductorGraph) -> dict[str, int]:
    """Count calls by kernel name in a graph's wrapper, in order of first call."""
    return dict(Counter(kernel.name for kernel in graph.kernels))


# --- Native compiles: a start and an end are joined; a start without an end is still running ------

Item = TypeVar("Item")

# Characters of a C++ kernel that tell it from nearly all others.
_BEGINNING = 400


def compile_of_kernel(recording: Recording, kernel: Kernel) -> tuple[NativeCompile, ...]:
    return NativeIndex(recording).of(kernel)


class NativeIndex:
    """An index of native compiles: by kernel name for Triton, by source text for C++.

    The C++ compiler is given the kernel's text inside a larger file whose name is a hash, so the
    text itself is what joins the two.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @cached_property
    def _by_name(self) -> dict[str, list[NativeCompile]]:
        return _grouped((native.kernel, native) for native in self._recording.natives)

    @cached_property
    def _texts(self) -> list[tuple[str, NativeCompile]]:
        natives = [native for native in self._recording.natives if native.payload]
        return [(_core(self._recording.payload(native.payload)), native) for native in natives]

    @cached_property
    def _by_beginning(self) -> dict[str, list[tuple[str, NativeCompile]]]:
        return _grouped((pair[0][:_BEGINNING], pair) for pair in self._texts)

    def of(self, kernel: Kernel) -> tuple[NativeCompile, ...]:
        if kernel.language == "Triton":
            return tuple(self._by_name.get(kernel.name, ()))
        text = _core(self._recording.payload(kernel.payload))
        if not text:
            return ()
        likely = self._by_beginning.get(text[:_BEGINNING], self._texts)
        return tuple(native for found, native in likely if text in found)


def _grouped(pairs: Iterable[tuple[str, Item]]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


def _core(source: str) -> str:
    """Return a C++ kernel from its signature on: the part that wrappers leave unchanged."""
    start = source.find("void ")
    return source[start:].strip() if start >= 0 else ""


def libraries_from_cache(recording: Recording, compile_: Compile) -> int:
    """Count C++ libraries that were cache hits: requested, and not compiled in this run."""
    compiled = {native.payload for native in recording.natives if native.tool == "c++"}
    return sum(1 for digest in compile_.libraries if digest not in compiled)
