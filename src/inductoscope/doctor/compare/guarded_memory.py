"""Buffers of compiled code in guarded memory: a pattern inside and around each of them.

Memory that was never written then holds no value that looks right by chance, a kernel that reads
past the end of a buffer gets NaN, and one that writes past it leaves a trace, which names it.
On the CPU a buffer can also end where unreadable memory begins: an access past its end then ends
the process, in the kernel that does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from inductoscope.doctor.compare import cpp_reports, cpp_wrappers
from inductoscope.doctor.compare.values import copy_values, is_plain

TORCH_NAMES = {
    "torch._C._dynamo.guards": ("_empty_strided_cpu", "_empty_strided_cuda"),
    "torch._inductor.graph": ("GraphLowering.codegen",),
}

# Bytes on either side. A multiple of what kernels align their accesses to.
ZONE = 4096
# Every float type reads it as NaN, every signed integer type as -1.
_PATTERN = 0xFF
# What generated wrappers call their allocators.
_ALLOCATORS = {"empty_strided_cpu": "cpu", "empty_strided_cuda": "cuda"}


@dataclass(frozen=True)
class GuardedBlock:
    """One allocation: bytes before the buffer, the buffer, bytes after it."""

    name: str
    before: torch.Tensor
    after: torch.Tensor
    # What both hold.
    around: int
    shape: tuple[int, ...]
    itemsize: int
    address: int
    # Elements from the first to the last, with those that its strides leave out.
    elements: int

    @property
    def is_intact(self) -> bool:
        """Whether both zones hold what they held at first."""
        return all(bool((zone == self.around).all()) for zone in (self.before, self.after))


@dataclass(frozen=True)
class OddZone:
    """One block with another byte beside it: in so many elements after its end, or before it."""

    block: int
    is_after: bool
    elements: int
    byte: int = _PATTERN


@dataclass
class GuardedMemory:
    """Allocates guarded buffers while it is active, and finds the first that was overrun."""

    # Whether to keep every block, in order to find out who writes outside of it.
    keeps_blocks: bool = False
    # The byte that new buffers hold, and the one before and after them.
    inside: int = _PATTERN
    around: int = _PATTERN
    # Whether buffers on the CPU end where unreadable memory begins. For a process that may die.
    ends_unreadable: bool = False
    # Where the bytes around a block are others. Needs `keeps_blocks`.
    odd: OddZone | None = None
    # Kernel and buffer of the first write out of bounds.
    overrun: str = ""
    blocks: list[GuardedBlock] = field(default_factory=list)

    @contextlib.contextmanager
    def active(self) -> Iterator[GuardedMemory]:
        """While this is active, code that is loaded gets its buffers here."""
        from torch._inductor.graph import GraphLowering

        guards: Any = torch._C._dynamo.guards
        codegen = GraphLowering.codegen

        def codegen_guarded(lowered: Any, *args: Any, **kwargs: Any) -> Any:
            result = codegen(lowered, *args, **kwargs)
            is_const_graph = getattr(lowered, "is_const_graph", False)
            if getattr(lowered, "cpp_wrapper", False) and not is_const_graph:
                self._guard_cpp(result[0])
            return result

        before = guards._empty_strided_cpu, guards._empty_strided_cuda
        try:
            guards._empty_strided_cpu = self._allocator("cpu")
            guards._empty_strided_cuda = self._allocator("cuda")
            GraphLowering.codegen = codegen_guarded
            yield self
        finally:
            GraphLowering.codegen = codegen
            guards._empty_strided_cpu, guards._empty_strided_cuda = before

    @contextlib.contextmanager
    def active_in(self, modules: Iterable[Any]) -> Iterator[GuardedMemory]:
        """While this is active, wrappers in Python that were loaded before get buffers here."""
        with contextlib.ExitStack() as stack:
            for names in (module.__dict__ for module in modules):
                for name in _ALLOCATORS.keys() & names.keys():
                    stack.callback(names.__setitem__, name, names[name])
                    names[name] = self._allocator(_ALLOCATORS[name])
            yield self

    def guarded(self, value: torch.Tensor, name: str) -> torch.Tensor:
        """A copy of a dense tensor in guarded memory."""
        made = self._allocate(value.shape, value.stride(), value.dtype, str(value.device), name)
        return made.copy_(value.detach()).requires_grad_(value.requires_grad)

    def copies(self, values: Sequence[Any]) -> list[Any]:
        """Copies as `copy_values` makes them; those that fill memory of their own are guarded."""
        owners = Counter(v.untyped_storage()._cdata for v in values if is_plain(v))
        return [
            self.guarded(value, f"input {number}") if _is_alone(value, owners) else copy
            for number, (value, copy) in enumerate(zip(values, copy_values(values), strict=True))
        ]

    def note(self, kernel: str) -> None:
        """Look at all zones after a kernel; the first one that is not intact names it."""
        broken = None if self.overrun else next((b for b in self.blocks if not b.is_intact), None)
        if broken is not None:
            self.overrun = f"kernel {kernel} writes outside {broken.name}"

    def _guard_cpp(self, code: Any) -> None:
        """The code of a wrapper in C++ is changed before it is compiled."""
        wrapper = cpp_wrappers.with_allocator(code.value)
        if wrapper is not None:
            code.value = wrapper.text
            cpp_reports.allocate_with(self._for_cpp, wrapper.name)

    def _for_cpp(self, wanted: cpp_reports.WantedBuffer) -> torch.Tensor:
        like = wanted.like
        name = f"buffer {wanted.name} of shape {tuple(wanted.sizes)}"
        # Torch wants a pool, of which it makes several buffers, to be where its memory begins.
        zone = 0 if wanted.name.startswith("pool") else ZONE
        form = (wanted.sizes, wanted.strides, like.dtype, str(like.device))
        return self._allocate(*form, name, zone)

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
        """A buffer with `zone` bytes before it, and always as many as usual after it."""
        count = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        count = max(count, 0) if 0 not in size else 0
        inner = count * dtype.itemsize
        whole = torch.empty(0, dtype=dtype, device=device)
        if self.ends_unreadable and device == "cpu" and inner:
            memory = _before_unreadable(inner, self.inside)
            return whole.set_(memory.untyped_storage(), 0, size, stride)
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
                block.after[:length] = odd.byte
            elif length:
                block.before[-length:] = odd.byte


def is_dense(value: Any) -> bool:
    """Whether a tensor can lie in guarded memory as it is."""
    # Torch keeps the strides of tensors alone that are dense and do not overlap.
    return is_plain(value) and torch.empty_like(value).stride() == value.stride()


def _is_alone(value: Any, owners: Counter[int]) -> bool:
    """Whether a tensor fills its memory and shares it with no other."""
    if not is_dense(value) or owners[value.untyped_storage()._cdata] > 1:
        return False
    return bool(value.untyped_storage().nbytes() == value.numel() * value.element_size())


def _part_of(memory: torch.Tensor, start: int, length: int) -> torch.UntypedStorage:
    """A part of memory as a storage of its own, which keeps the whole alive."""
    part = (ctypes.c_char * length).from_address(memory.data_ptr() + start)
    part.whole = memory  # type: ignore[attr-defined]
    return torch.frombuffer(part, dtype=torch.uint8).untyped_storage()


def _before_unreadable(length: int, filling: int) -> torch.Tensor:
    """Bytes on the CPU that end at a page which nobody may read or write."""
    page = mmap.PAGESIZE
    whole = mmap.mmap(-1, -(-length // page) * page + page)
    end = len(whole) - page
    address = ctypes.addressof(ctypes.c_char.from_buffer(whole)) + end
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), page, 0) != 0:
        raise OSError("mprotect failed")
    made = torch.frombuffer(whole, dtype=torch.uint8, count=length, offset=end - length)
    return made.fill_(filling)
