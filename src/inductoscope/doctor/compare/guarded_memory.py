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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from inductoscope.doctor.compare import cpp_reports, cpp_wrappers
from inductoscope.doctor.compare.values import is_plain

TORCH_NAMES = {
    "torch._C._dynamo.guards": ("_empty_strided_cpu", "_empty_strided_cuda"),
    "torch._inductor.graph": ("GraphLowering.codegen",),
}

# Bytes on either side. A multiple of what kernels align their accesses to.
_ZONE = 4096
# Every float type reads it as NaN, every signed integer type as -1.
_PATTERN = 0xFF


@dataclass
class _Block:
    """One allocation: bytes before the buffer, the buffer, bytes after it."""

    name: str
    before: torch.Tensor
    after: torch.Tensor
    # What both hold.
    around: int

    @property
    def is_intact(self) -> bool:
        """Whether both zones hold what they held at first."""
        return all(bool((zone == self.around).all()) for zone in (self.before, self.after))


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
    # Kernel and buffer of the first write out of bounds.
    overrun: str = ""
    _blocks: list[_Block] = field(default_factory=list)

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

    def guarded(self, value: torch.Tensor, name: str) -> torch.Tensor:
        """A copy of a dense tensor in guarded memory."""
        made = self._allocate(value.shape, value.stride(), value.dtype, str(value.device), name)
        return made.copy_(value.detach()).requires_grad_(value.requires_grad)

    def note(self, kernel: str) -> None:
        """Look at all zones after a kernel; the first one that is not intact names it."""
        broken = None if self.overrun else next((b for b in self._blocks if not b.is_intact), None)
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
        zone = 0 if wanted.name.startswith("pool") else _ZONE
        form = (wanted.sizes, wanted.strides, like.dtype, str(like.device))
        return self._allocate(*form, name, zone)

    def _allocator(self, device: str) -> Any:
        def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Any:
            name = f"buffer {len(self._blocks)} of shape {tuple(size)}"
            return self._allocate(size, stride, dtype, device, name)

        return empty_strided

    def _allocate(
        self,
        size: Sequence[int],
        stride: Sequence[int],
        dtype: torch.dtype,
        device: str,
        name: str,
        zone: int = _ZONE,
    ) -> torch.Tensor:
        """A buffer with `zone` bytes before it, and always as many as usual after it."""
        count = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        inner = max(count, 0) * dtype.itemsize if 0 not in size else 0
        if self.ends_unreadable and device == "cpu" and inner:
            memory, start = _before_unreadable(inner, self.inside), 0
        else:
            end = zone + inner
            memory = torch.full((end + _ZONE,), self.around, dtype=torch.uint8, device=device)
            memory[zone:end] = self.inside
            start = zone
            if self.keeps_blocks:
                self._blocks.append(_Block(name, memory[:zone], memory[end:], self.around))
        whole = torch.empty(0, dtype=dtype, device=device)
        return whole.set_(memory.untyped_storage(), start // dtype.itemsize, size, stride)


def is_dense(value: Any) -> bool:
    """Whether a tensor can lie in guarded memory as it is."""
    # Torch keeps the strides of tensors alone that are dense and do not overlap.
    return is_plain(value) and torch.empty_like(value).stride() == value.stride()


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
