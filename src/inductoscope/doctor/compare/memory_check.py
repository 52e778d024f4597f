"""Whether compiled code reads memory that is not its own, or that was never written.

Such code may be right by chance, without any error. So it is called several times on the same
inputs, and what lies inside of new buffers and around all of them differs from call to call. What
then changes was computed from it. The first buffer that changes names the kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from inductoscope.doctor.compare.guarded_memory import GuardedMemory, is_dense
from inductoscope.doctor.compare.kernels import KernelWatch
from inductoscope.doctor.compare.values import same_generators, same_transforms

TORCH_NAMES = {
    "torch.utils._pytree": ("tree_leaves",),
}

_ZEROS, _ONES = 0x00, 0xFF
# Buffers are kept for the comparison until there are this many bytes of them.
_KEPT_BYTES = 1 << 30


@dataclass(frozen=True)
class MemoryFault:
    """A result that depends on what happens to be in memory."""

    # The kernel whose buffer changes first; "" if only the results are known to change.
    kernel: str
    buffer: str
    is_outside: bool

    @property
    def text(self) -> str:
        """One sentence for a report."""
        who = f"kernel {self.kernel}" if self.kernel else "the compiled code"
        what = "memory outside of its buffers" if self.is_outside else "memory that nobody wrote"
        changed = f"{self.buffer} changes" if self.buffer else "the results change"
        where = "around all buffers" if self.is_outside else "in new buffers"
        return f"{who} reads {what}: {changed} with what lies {where}"


@dataclass
class _Call:
    """What one call computed: buffers in the order of the kernels, then results."""

    reports: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)
    results: list[torch.Tensor] = field(default_factory=list)
    error: str = ""
    last_kernel: str = ""
    size: int = 0

    def keep(self, kernel: str, buffers: dict[str, Any]) -> None:
        self.last_kernel = kernel
        for name, value in buffers.items():
            if isinstance(value, torch.Tensor) and self.size < _KEPT_BYTES:
                self.size += value.numel() * value.element_size()
                self.reports.append((kernel, name, _bits(value)))


def first_memory_fault(
    prepare: Callable[[], Callable[..., Any]], inputs: Sequence[Any]
) -> MemoryFault | None:
    """Call what `prepare` makes several times on these inputs, with other bytes in memory.

    None if nothing changes, or if equal calls differ already. Weights inside of an AOTInductor
    model stay where they are. In a fork: a call may end the process.
    """
    memory = GuardedMemory(inside=_ZEROS, around=_ZEROS)
    calls: list[_Call] = []
    watch = KernelWatch(compare=False, on_buffers=lambda *what: calls[-1].keep(*what))
    with memory.active(), watch.watching():
        function = prepare()

        def call(*, inside: int, around: int) -> _Call:
            memory.inside, memory.around = inside, around
            calls.append(_Call())
            _run(calls[-1], function, [_guarded(memory, value) for value in inputs])
            return calls[-1]

        same, again = (call(inside=_ZEROS, around=_ZEROS) for _ in range(2))
        if _first_change(same, again) is not None:
            return None
        outside = _first_change(same, call(inside=_ZEROS, around=_ONES))
        if outside is not None:
            return MemoryFault(*outside, is_outside=True)
        unwritten = _first_change(same, call(inside=_ONES, around=_ZEROS), is_inside=True)
        return None if unwritten is None else MemoryFault(*unwritten, is_outside=False)


def _run(call: _Call, function: Callable[..., Any], inputs: Sequence[Any]) -> None:
    # Copies of the inputs would not be in guarded memory.
    try:
        with same_generators(), same_transforms():
            outputs = tree_leaves(function(*inputs))
    except Exception as error:
        call.error = f"{type(error).__name__}: {error}"
        return
    values = [*outputs, *inputs]
    call.results = [_bits(value) for value in values if isinstance(value, torch.Tensor)]


def _guarded(memory: GuardedMemory, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return memory.guarded(value, "input") if is_dense(value) else value.detach().clone()
    return value


def _bits(value: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(RuntimeError):
        return (
            value.detach()
            .clone(memory_format=torch.contiguous_format)
            .reshape(-1)
            .view(torch.uint8)
        )
    return value.detach().clone()


def _first_change(one: _Call, two: _Call, *, is_inside: bool = False) -> tuple[str, str] | None:
    """Kernel and buffer of the first change from one call to another."""
    if one.error != two.error:
        return two.last_kernel, ""
    results = zip(one.results, two.results, strict=False)
    is_changed = not all(torch.equal(mine, other) for mine, other in results)
    if is_inside and not is_changed:
        return None  # A part of a buffer that nobody reads may stay unwritten.
    for (kernel, name, mine), (_, _, other) in zip(one.reports, two.reports, strict=False):
        if mine.shape != other.shape or _differ(mine, other, is_inside=is_inside):
            return kernel, name
    return ("", "") if is_changed else None


def _differ(mine: torch.Tensor, other: torch.Tensor, *, is_inside: bool) -> bool:
    differ = mine != other
    if is_inside and mine.dtype == torch.uint8:
        differ &= ~((mine == _ZEROS) & (other == _ONES))  # Not written yet.
    return bool(differ.any())
