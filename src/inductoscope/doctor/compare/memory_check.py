"""Whether compiled code reads memory that is not its own, or that was never written.

Such code may be right by chance, without any error. So it is called several times on the same
inputs, and what lies inside of new buffers and around all of them differs from call to call. What
then changes was computed from it. The first buffer that changes names the kernel. Then one buffer
after the other is surrounded by other bytes, and then a part of what surrounds it: that names the
buffer that is read, and the element.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from inductoscope.doctor.compare.guarded_memory import ZONE, GuardedBlock, GuardedMemory, OddZone
from inductoscope.doctor.compare.kernels import KernelWatch
from inductoscope.doctor.compare.values import run

_ZEROS, _ONES = 0x00, 0xFF
# Buffers are kept for the comparison until there are this many bytes of them.
_KEPT_BYTES = 1 << 30
# The element that is read is looked for beside the first blocks, for so long.
_MOST_BLOCKS = 64
_MOST_SECONDS = 30.0


@dataclass(frozen=True)
class MemoryFault:
    """A result that depends on what happens to be in memory."""

    # The kernel whose buffer changes first; "" if only the results are known to change.
    kernel: str
    buffer: str
    is_outside: bool
    # The buffer or input that is read outside of its bounds, how many elements it has, and the
    # element that is read, counted from its first; "" and None if that is not known.
    read: str = ""
    elements: int = 0
    index: int | None = None

    @property
    def text(self) -> str:
        """One sentence for a report."""
        who = f"kernel {self.kernel}" if self.kernel else "the compiled code"
        changed = f"{self.buffer} changes" if self.buffer else "the results change"
        if self.index is not None:
            last = f"{self.elements} elements (0 to {self.elements - 1})"
            return (
                f"{who} reads element {self.index} of {self.read}, which has {last}: {changed} "
                "with what lies there"
            )
        what = "memory outside of its buffers" if self.is_outside else "memory that nobody wrote"
        where = "around all buffers" if self.is_outside else "in new buffers"
        return f"{who} reads {what}: {changed} with what lies {where}"


@dataclass
class _Call:
    """What one call computed: buffers in the order of the kernels, then results."""

    reports: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)
    results: list[torch.Tensor] = field(default_factory=list)
    # What the buffers are called that begin at an address.
    names: dict[int, str] = field(default_factory=dict)
    error: str = ""
    last_kernel: str = ""
    size: int = 0

    def keep(self, kernel: str, buffers: dict[str, Any]) -> None:
        self.last_kernel = kernel
        for name, value in buffers.items():
            if isinstance(value, torch.Tensor) and self.size < _KEPT_BYTES:
                self.size += value.numel() * value.element_size()
                self.reports.append((kernel, name, _bits(value)))
                self.names.setdefault(value.data_ptr(), name)


def first_memory_fault(
    prepare: Callable[[], Callable[..., Any]], inputs: Sequence[Any], *, backward: bool = False
) -> MemoryFault | None:
    """Call what `prepare` makes several times on these inputs, with other bytes in memory.

    None if nothing changes, or if equal calls differ already. Weights inside of an AOTInductor
    model stay where they are. In a fork: a call may end the process.
    """
    calls = _CallsInMemory(inputs, backward)
    with calls.memory.active(), calls.watch.watching():
        return calls.first_fault(prepare())


class _CallsInMemory:
    """Calls of one function on the same inputs, each with other bytes in memory."""

    def __init__(self, inputs: Sequence[Any], backward: bool) -> None:
        self.memory = GuardedMemory(keeps_blocks=True)
        self.watch = KernelWatch(compare=False, on_buffers=lambda *what: self._call.keep(*what))
        self._inputs = inputs
        self._backward = backward
        self._call = _Call()

    def first_fault(self, function: Callable[..., Any]) -> MemoryFault | None:
        def call(*, inside: int = _ZEROS, around: int = _ZEROS, odd: Any = None) -> _Call:
            return self._made(function, GuardedMemory(inside=inside, around=around, odd=odd))

        def change(is_inside: bool) -> tuple[str, str] | None:
            """What changes with memory, and only with it: equal calls may differ now and then."""
            bytes_ = {"inside": _ONES} if is_inside else {"around": _ONES}
            found = _first_change(same, call(**bytes_), is_inside=is_inside)
            if found is None or _first_change(same, call()) is not None:
                return None
            return found if _first_change(same, call(**bytes_), is_inside=is_inside) else None

        same, again = call(), call()
        if _first_change(same, again) is not None:
            return None
        outside = change(is_inside=False)
        if outside is None:
            unwritten = change(is_inside=True)
            return None if unwritten is None else MemoryFault(*unwritten, is_outside=False)
        blocks, names = list(self.memory.blocks), self._call.names
        fault = MemoryFault(*outside, is_outside=True)
        odd = _odd_zone(blocks, lambda zone: _first_change(same, call(odd=zone)) is not None)
        return fault if odd is None else _with_element(fault, odd, blocks[odd.block], names)

    def _made(self, function: Callable[..., Any], like: GuardedMemory) -> _Call:
        self.memory.inside, self.memory.around = like.inside, like.around
        self.memory.odd = like.odd
        self.memory.blocks.clear()
        self._call = made = _Call()
        try:
            outcome = run(function, self._inputs, backward=self._backward, copy=self.memory.copies)
        except Exception as error:
            made.error = f"{type(error).__name__}: {error}"
            return made
        values = [value for _, value in outcome.named_values()]
        made.results = [_bits(value) for value in values if isinstance(value, torch.Tensor)]
        return made


def _odd_zone(blocks: Sequence[GuardedBlock], changes: Callable[[OddZone], bool]) -> OddZone | None:
    """The block beside which other bytes change something, and the nearest element that does."""
    end = time.monotonic() + _MOST_SECONDS
    for number, block in enumerate(blocks[:_MOST_BLOCKS]):
        for is_after in (True, False):
            whole = OddZone(number, is_after, ZONE // block.itemsize)
            if time.monotonic() > end:
                return None
            if not changes(whole):
                continue
            least, most = 0, whole.elements
            while (
                most - least > 1 and time.monotonic() < end
            ):  # With `least` elements nothing changes, with `most` it does.
                middle = (least + most) // 2
                if changes(replace(whole, elements=middle)):
                    most = middle
                else:
                    least = middle
            return replace(whole, elements=most)
    return None


def _with_element(
    fault: MemoryFault, odd: OddZone, block: GuardedBlock, names: dict[int, str]
) -> MemoryFault:
    name = names.get(block.address, "")
    read = f"buffer {name} of shape {block.shape}" if name else block.name
    if block.name.startswith("input"):
        read = f"{block.name} of shape {block.shape}"
    index = block.elements + odd.elements - 1 if odd.is_after else -odd.elements
    return replace(fault, read=read, elements=block.elements, index=index)


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
    if not is_changed:
        return None  # A part of a buffer that nobody uses may hold anything.
    for (kernel, name, mine), (_, _, other) in zip(one.reports, two.reports, strict=False):
        if mine.shape != other.shape or _differ(mine, other, is_inside=is_inside):
            return kernel, name
    return ("", "") if is_changed else None


def _differ(mine: torch.Tensor, other: torch.Tensor, *, is_inside: bool) -> bool:
    differ = mine != other
    if is_inside and mine.dtype == torch.uint8:
        differ &= ~((mine == _ZEROS) & (other == _ONES))  # Not written yet.
    return bool(differ.any())
