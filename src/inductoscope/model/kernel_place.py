"""The line of the user's program that a kernel, or a part of it, comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial

from inductoscope.model.entities import Compile, InductorGraph, Kernel, Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.model.join import final_graph


@dataclass(frozen=True)
class KernelPlace:
    """A kernel with its graph and the operations that it computes."""

    compile: Compile
    graph: InductorGraph
    kernel: Kernel
    # Reads the graph that was lowered.
    lowered: Callable[[], FxGraph | None]

    @cached_property
    def operations(self) -> tuple[FxNode, ...]:
        """What the kernel computes, in the order of its origins; the graph is read for it."""
        final = self.lowered()
        found = (final.node(name) for name in self.kernel.origins) if final else ()
        return tuple(node for node in found if node is not None)

    def line(self, operation: str = "") -> tuple[str, str]:
        """The user's line of an operation, or else of the kernel's last one, and its text."""
        named = [node for node in self.operations if operation and operation in node.operation]
        for node in (*named, *reversed(self.operations)):
            if node.place is not None:
                return str(node.place), node.place.code
        return self.compile.place, ""


def kernel_places(recording: Recording, language: str) -> Iterator[KernelPlace]:
    """All kernels in a language; those of a graph that was compiled again with other sizes once."""
    seen: set[str] = set()
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            wanted = [k for k in graph.kernels if k.language == language and k.digest not in seen]
            # Once for all kernels, however large the graph is.
            lowered = cache(partial(read_graph, recording, final_graph(compile_, graph)))
            for kernel in wanted:
                seen.add(kernel.digest)
                yield KernelPlace(compile_, graph, kernel, lowered)


def place_of(
    recording: Recording, compile_: Compile, graph: InductorGraph, operations: Iterable[str]
) -> tuple[str, str]:
    """The user's line of the last of these operations that has one, and its text."""
    final = read_graph(recording, final_graph(compile_, graph))
    nodes = {node.name: node for node in (final.nodes if final else ())}
    for name in reversed(list(operations)):
        if name in nodes and (place := nodes[name].place) is not None:
            return str(place), place.code
    return compile_.place, ""
