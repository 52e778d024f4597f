"""Buffers of compiled code in guarded memory: a pattern inside and around each of them.

Memory that was never written then holds no value that looks right by chance, a kernel that reads
past the end of a buffer gets NaN, and one that writes past it leaves a trace, which names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

TORCH_NAMES = {
    "torch._C._dynamo.guards": ("_empty_strided_cpu", "_empty_strided_cuda"),
}

# Bytes on either side. A multiple of what kernels align their accesses to.
_ZONE = 4096
# Every float type reads it as NaN, every signed integer type as -1.
_PATTERN = 0xFF


@dataclass
class _Block:
    """One allocation: bytes before the buffer, the buffer, bytes after it."""

    name: str
    memory: torch.Tensor

    @property
    def is_intact(self) -> bool:
        """Whether both zones hold what they held at first."""
        ends = self.memory[:_ZONE], self.memory[-_ZONE:]
        return all(bool((end == _PATTERN).all()) for end in ends)


@dataclass
class GuardedMemory:
    """Allocates guarded buffers while it is active, and finds the first that was overrun."""

    # Whether to keep every block, in order to find out who writes outside of it.
    keeps_blocks: bool = False
    # Kernel and buffer of the first write out of bounds.
    overrun: str = ""
    _blocks: list[_Block] = field(default_factory=list)

    @contextlib.contextmanager
    def active(self) -> Iterator[GuardedMemory]:
        """While this is active, code that is loaded gets its buffers here."""
        guards: Any = torch._C._dynamo.guards
        before = guards._empty_strided_cpu, guards._empty_strided_cuda
        try:
            guards._empty_strided_cpu = self._allocator("cpu")
            guards._empty_strided_cuda = self._allocator("cuda")
            yield self
        finally:
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

    def _allocator(self, device: str) -> Any:
        def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Any:
            name = f"buffer {len(self._blocks)} of shape {tuple(size)}"
            return self._allocate(size, stride, dtype, device, name)

        return empty_strided

    def _allocate(
        self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: str, name: str
    ) -> torch.Tensor:
        count = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        inner = max(count, 0) * dtype.itemsize if 0 not in size else 0
        memory = torch.full((inner + 2 * _ZONE,), _PATTERN, dtype=torch.uint8, device=device)
        if self.keeps_blocks:
            self._blocks.append(_Block(name, memory))
        whole = torch.empty(0, dtype=dtype, device=device)
        return whole.set_(memory.untyped_storage(), _ZONE // dtype.itemsize, size, stride)
