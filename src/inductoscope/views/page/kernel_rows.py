"""The table of kernels: each once, however often it is called, and every library call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inductoscope.model.counts import calls_by_name, generated, library_calls
from inductoscope.model.entities import Kernel, NativeCompile, Recording
from inductoscope.model.native import NativeIndex
from inductoscope.views.page.contract import KernelRow
from inductoscope.views.page.panes import kernel_id


def kernel_rows(recording: Recording, natives: NativeIndex) -> Iterator[KernelRow]:
    """The kernels of all graphs. A compile is counted where it was first asked for."""
    counted: set[int] = set()
    for number, graph in enumerate(recording.graphs):
        calls = calls_by_name(graph)
        for kernel in generated(graph):
            known = natives.of(kernel)
            fresh = tuple(native for native in known if id(native) not in counted)
            counted.update(map(id, fresh))
            made = _made(known, fresh)
            yield _kernel(number, recording, kernel, made, calls[kernel.name], fresh)
        for kernel in library_calls(graph):
            yield _kernel(number, recording, kernel, "library call", 1, ())


def _made(natives: tuple[NativeCompile, ...], fresh: tuple[NativeCompile, ...]) -> str:
    if any(not native.cache_hit for native in fresh):
        return "compiled"
    if natives and not fresh:
        return "reused"
    return "from a cache" if natives else ""


def _kernel(
    number: int,
    recording: Recording,
    kernel: Kernel,
    made: str,
    calls: int,
    natives: tuple[NativeCompile, ...],
) -> KernelRow:
    seconds = [native.seconds for native in natives if native.seconds is not None]
    return KernelRow(
        id=kernel_id(kernel),
        name=kernel.name,
        made=made,
        calls=calls,
        language=kernel.language,
        graph=number,
        operations=", ".join(kernel.origins),
        lines=recording.payload(kernel.digest).count("\n"),
        seconds=round(sum(seconds), 3) if seconds else None,
        registers=_most(native.registers for native in natives),
        spills=_most(native.spills for native in natives),
        shared=_most(native.shared for native in natives),
    )


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)
