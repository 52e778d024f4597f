"""Buffers of compiled code in guarded memory: with a byte pattern inside and around each.

Uninitialised memory then holds no value that looks right by chance, a kernel that reads past the
end of a buffer gets NaN, and a kernel that writes past the end is named by the changed guard bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from inductoscope.doctor.delta_debugging import last_needed
from inductoscope.inside.compare import cpp_reports
from inductoscope.inside.compare.kernels import KernelWatch, told_of_code
from inductoscope.inside.compare.values import copy_values, is_plain, run
from inductoscope.torch_facts import cpp_wrappers

# The guard bytes on either side: a multiple of the alignment that kernels assume.
ZONE = 4096
# The pattern is NaN in every float type, and -1 in every signed integer type.
_PATTERN = 0xFF
# The names of the allocation functions in torch and in generated wrappers.
_ALLOCATORS = {
    "_empty_strided_cpu": "cpu",
    "_empty_strided_cuda": "cuda",
    "empty_strided_cpu": "cpu",
    "empty_strided_cuda": "cuda",
}


@dataclass(frozen=True)
class GuardedBlock:
    """An allocation: guard bytes, the buffer, guard bytes."""

    name: str
    before: torch.Tensor
    after: torch.Tensor
    # The byte in both guard zones.
    around: int
    shape: tuple[int, ...]
    itemsize: int
    address: int
    # Elements from the first to the last, with those that its strides leave out.
    elements: int

    @property
    def is_intact(self) -> bool:
        return all(bool((zone == self.around).all()) for zone in (self.before, self.after))


@dataclass(frozen=True)
class OddZone:
    """A block with the pattern in a number of elements after its end, or before its start."""

    block: int
    is_after: bool
    elements: int


@dataclass
class GuardedMemory:
    """An allocator of guarded buffers, which finds the first buffer overrun."""

    # Whether to keep every block, in order to find out who writes outside of it.
    keeps_blocks: bool = False
    # The byte that new buffers hold, and the one before and after them.
    inside: int = _PATTERN
    around: int = _PATTERN
    # The zone with a different pattern. Requires `keeps_blocks`.
    odd: OddZone | None = None
    # Kernel and buffer of the first write out of bounds.
    overrun: str = ""
    blocks: list[GuardedBlock] = field(default_factory=list)

    @contextlib.contextmanager
    def active(self) -> Iterator[GuardedMemory]:
        """Allocate buffers of code that is loaded inside the block here."""
        with told_of_code(self._guard_cpp), self.active_in([torch._C._dynamo.guards]):
            yield self

    @contextlib.contextmanager
    def active_in(self, modules: Iterable[Any]) -> Iterator[GuardedMemory]:
        """Allocate buffers of these loaded Python wrappers here, inside the block."""
        with contextlib.ExitStack() as stack:
            for module in modules:
                names: dict[str, Any] = vars(module)
                before = {name: names[name] for name in _ALLOCATORS if name in names}
                names.update((name, self._allocator(_ALLOCATORS[name])) for name in before)
                stack.callback(names.update, before)
            yield self

    def guarded(self, value: torch.Tensor, name: str) -> torch.Tensor:
        """Copy a dense tensor to guarded memory."""
        made = self._allocate(value.shape, value.stride(), value.dtype, str(value.device), name)
        return made.copy_(value.detach()).requires_grad_(value.requires_grad)

    def copies(self, values: Sequence[Any]) -> list[Any]:
        """Copy like `copy_values`, with tensors that own all of their memory in guarded memory."""
        owners = Counter(v.untyped_storage()._cdata for v in values if is_plain(v))
        return [
            self.guarded(value, f"input {number}") if _is_alone(value, owners) else copy
            for number, (value, copy) in enumerate(zip(values, copy_values(values), strict=True))
        ]

    def note(self, kernel: str) -> None:
        """Check all zones after a kernel, and record the first overrun."""
        broken = None if self.overrun else next((b for b in self.blocks if not b.is_intact), None)
        if broken is not None:
            self.overrun = f"kernel {kernel} writes outside {broken.name}"

    def _guard_cpp(self, lowered: Any, code: Any) -> None:
        """Rewrite a C++ wrapper before it is compiled, so that it allocates here."""
        is_cpp = getattr(lowered, "cpp_wrapper", False)
        wrapper = cpp_wrappers.with_allocator(code[0].value) if is_cpp else None
        if wrapper is not None:
            code[0].value = wrapper.text
            cpp_reports.allocate_with(self._for_cpp, wrapper.name)

    def _for_cpp(
        self, name: str, size: Sequence[int], stride: Sequence[int], like: torch.Tensor
    ) -> torch.Tensor:
        text = f"buffer {name} of shape {tuple(size)}"
        # torch requires a pool, from which it carves several buffers, to start at its storage.
        zone = 0 if name.startswith("pool") else ZONE
        return self._allocate(size, stride, like.dtype, str(like.device), text, zone)

    def _allocator(self, device: str) -> Any:
        def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Any:
            name = f"buffer {len(self.blocks)} of shape {tuple(size)}"
            return self._allocate(size, stride, dtype, device, name)

        return empty_strided

    def _allocate(
        self,
        size: Sequence[int],
        stride: Sequence[int],
        dtype: torch.dtype,
        device: str,
        name: str,
        zone: int = ZONE,
    ) -> torch.Tensor:
        """Allocate a buffer with `zone` guard bytes before it, and ZONE guard bytes after it."""
        count = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        count = max(count, 0) if 0 not in size else 0
        inner = count * dtype.itemsize
        whole = torch.empty(0, dtype=dtype, device=device)
        end = zone + inner
        memory = torch.full((end + ZONE,), self.around, dtype=torch.uint8, device=device)
        memory[zone:end] = self.inside
        if self.keeps_blocks:
            form = (tuple(size), dtype.itemsize, memory.data_ptr() + zone, count)
            self.blocks.append(GuardedBlock(name, memory[:zone], memory[end:], self.around, *form))
            self._make_odd(self.blocks[-1])
        if device == "cpu" and inner:
            # A view of an output is made at a distance from where its memory begins.
            return whole.set_(_part_of(memory, zone, inner), 0, size, stride)
        return whole.set_(memory.untyped_storage(), zone // dtype.itemsize, size, stride)

    def _make_odd(self, block: GuardedBlock) -> None:
        odd = self.odd
        if odd is not None and odd.block == len(self.blocks) - 1:
            length = odd.elements * block.itemsize
            if odd.is_after:
                block.after[:length] = _PATTERN
            elif length:
                block.before[-length:] = _PATTERN


def is_dense(value: Any) -> bool:
    """Check whether a tensor keeps its strides when it is copied to guarded memory."""
    # empty_like keeps strides only if the tensor is dense and does not overlap itself.
    return is_plain(value) and torch.empty_like(value).stride() == value.stride()


def _is_alone(value: Any, owners: Counter[int]) -> bool:
    """Check whether a tensor fills its storage and shares it with no other."""
    if not is_dense(value) or owners[value.untyped_storage()._cdata] > 1:
        return False
    return bool(value.untyped_storage().nbytes() == value.numel() * value.element_size())


def _part_of(memory: torch.Tensor, start: int, length: int) -> torch.UntypedStorage:
    """Return a part of memory as a storage, which keeps the whole alive."""
    part = (ctypes.c_char * length).from_address(memory.data_ptr() + start)
    part.whole = memory  # type: ignore[attr-defined]
    return torch.frombuffer(part, dtype=torch.uint8).untyped_storage()


# --- Whether compiled code reads memory that is not its own, or that was never written ------------
#
# Such code may be right by chance, without any error. So it is called several times on the same
# inputs, with different bytes inside new buffers and around all buffers. A value that then changes
# was computed from those bytes. The first buffer that changes names the kernel. Then one buffer
# after the other is surrounded by other bytes, and then a part of what surrounds it: that names the
# buffer that is read, and the element.

_ZEROS, _ONES = 0x00, 0xFF
# The most bytes of buffers that are kept for the comparison.
_KEPT_BYTES = 1 << 30
# The element that is read is looked for beside the first blocks, for so long.
_MOST_BLOCKS = 64
_MOST_SECONDS = 30.0


@dataclass(frozen=True)
class MemoryFault:
    """A result that depends on arbitrary contents of memory."""

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
    """The values of one call: buffers in kernel order, then results."""

    reports: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)
    results: list[torch.Tensor] = field(default_factory=list)
    # The name of the buffer at each start address.
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
    """Call the result of `prepare` several times on these inputs, with different bytes in memory.

    Returns None if nothing changes, or if equal calls differ already. Weights inside an AOTInductor
    model are not moved. Runs in a fork, because a call may kill the process.
    """
    calls = _CallsInMemory(inputs, backward)
    with calls.memory.active(), calls.watch.watching():
        return calls.first_fault(prepare())


class _CallsInMemory:
    """Calls of one function on the same inputs, with different bytes in memory."""

    def __init__(self, inputs: Sequence[Any], backward: bool) -> None:
        self.memory = GuardedMemory(keeps_blocks=True)
        self.watch = KernelWatch(compare=False, on_buffers=lambda *what: self._call.keep(*what))
        self._inputs = inputs
        self._backward = backward
        self._call = _Call()

    def first_fault(self, function: Callable[..., Any]) -> MemoryFault | None:
        def call(**bytes_: Any) -> _Call:
            return self._made(function, **bytes_)

        def change(where: str) -> tuple[str, str] | None:
            """Return the first change due to memory alone; equal calls may differ by chance."""
            is_inside = where == "inside"
            found = _first_change(same, call(**{where: _ONES}), is_inside=is_inside)
            if found is None or _first_change(same, call()) is not None:
                return None
            again = _first_change(same, call(**{where: _ONES}), is_inside=is_inside)
            return found if again else None

        same, again = call(), call()
        if _first_change(same, again) is not None:
            return None
        outside = change("around")
        if outside is None:
            unwritten = change("inside")
            return None if unwritten is None else MemoryFault(*unwritten, is_outside=False)
        blocks, names = list(self.memory.blocks), self._call.names
        fault = MemoryFault(*outside, is_outside=True)
        odd = _odd_zone(blocks, lambda zone: _first_change(same, call(odd=zone)) is not None)
        return fault if odd is None else _with_element(fault, odd, blocks[odd.block], names)

    def _made(
        self,
        function: Callable[..., Any],
        inside: int = _ZEROS,
        around: int = _ZEROS,
        odd: OddZone | None = None,
    ) -> _Call:
        memory = self.memory
        memory.inside, memory.around, memory.odd = inside, around, odd
        memory.blocks.clear()
        self._call = made = _Call()
        try:
            outcome = run(function, self._inputs, backward=self._backward, copy=memory.copies)
        except Exception as error:
            made.error = f"{type(error).__name__}: {error}"
            return made
        values = [value for _, value in outcome.named_values()]
        made.results = [_bits(value) for value in values if isinstance(value, torch.Tensor)]
        return made


def _odd_zone(blocks: Sequence[GuardedBlock], changes: Callable[[OddZone], bool]) -> OddZone | None:
    """Find the block whose surrounding bytes matter, and the nearest element that does."""
    end = time.monotonic() + _MOST_SECONDS

    def matters(zone: OddZone) -> bool:
        return time.monotonic() < end and changes(zone)

    wholes = [
        OddZone(number, is_after, ZONE // block.itemsize)
        for number, block in enumerate(blocks[:_MOST_BLOCKS])
        for is_after in (True, False)
    ]
    whole = next(filter(matters, wholes), None)
    if whole is None:
        return None

    def hold(counts: Sequence[int]) -> list[bool]:
        return [matters(replace(whole, elements=count)) for count in counts]

    return replace(whole, elements=last_needed(whole.elements, hold))


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
        dense = value.detach().clone(memory_format=torch.contiguous_format)
        return dense.reshape(-1).view(torch.uint8)
    return value.detach().clone()


def _first_change(one: _Call, two: _Call, *, is_inside: bool = False) -> tuple[str, str] | None:
    """Return kernel and buffer of the first difference between two calls."""
    if one.error != two.error:
        return two.last_kernel, ""
    if all(map(torch.equal, one.results, two.results)):
        return None  # Unused parts of a buffer may hold anything.
    for (kernel, name, mine), (_, _, other) in zip(one.reports, two.reports, strict=False):
        if mine.shape != other.shape or _differ(mine, other, is_inside=is_inside):
            return kernel, name
    return "", ""


def _differ(mine: torch.Tensor, other: torch.Tensor, *, is_inside: bool) -> bool:
    differ = mine != other
    if is_inside and mine.dtype == torch.uint8:
        differ &= ~((mine == _ZEROS) & (other == _ONES))  # These bytes are not written yet.
    return bool(differ.any())
