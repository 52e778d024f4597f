"""Buffers that change although nothing may write to them any more.

Memory that is used again too early, or a kernel that writes past the end of its own buffer, spoils
a value that was right. The kernel that reads it next is not to blame, and the one that made it is
not either: the one after which it has changed is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from inductoscope.doctor.compare.values import is_plain
from inductoscope.doctor.compare.watched_graphs import KernelDivergence, WatchedGraph

_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class _Kept:
    """A buffer, and what it has to hold until it is read for the last time."""

    kernel: str
    value: torch.Tensor
    copy: torch.Tensor


@dataclass
class LiveBuffers:
    """The buffers of one call from which others have still to be computed."""

    graph: WatchedGraph
    # The buffers that are reported in a call; others exist only inside of a kernel.
    reported: Collection[str]
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def clear(self) -> None:
        """Another call begins."""
        self._kept.clear()
        self._seen.clear()

    def after(self, kernel: str, reported: Mapping[str, Any]) -> KernelDivergence | None:
        """What a kernel has changed that others have still to read."""
        # An operator may give several tensors at once: then it has read what it reads, too.
        self._seen.update(reported)
        buffers = {name: value for name, value in reported.items() if is_plain(value)}
        self._kept = {name: kept for name, kept in self._kept.items() if self._is_needed(name)}
        for name, kept in self._kept.items():
            if not _holds(kept.value, kept.copy):
                self._kept = {}  # What comes next reads a wrong value.
                return self._divergence(kernel, name, kept, buffers)
        for name, value in buffers.items():
            if name not in self._kept and self._is_needed(name) and self._has_room_for(value):
                copy = self.graph.checked.get(name)
                self._kept[name] = _Kept(kernel, value, value.clone() if copy is None else copy)
        return None

    def _has_room_for(self, value: torch.Tensor) -> bool:
        """All that is kept is read after every kernel, so it must not be much."""
        kept = sum(item.value.nbytes for item in self._kept.values())
        return kept + value.nbytes <= _MOST_BYTES

    def _is_needed(self, name: str) -> bool:
        """Whether a kernel that reads it, and that only reads it, has yet to run."""
        made_from_it = self.graph.readers.get(name, set()) & {*self.reported}
        return name not in self.graph.rewritten and not made_from_it <= self._seen

    def _divergence(
        self, kernel: str, name: str, kept: _Kept, buffers: Mapping[str, torch.Tensor]
    ) -> KernelDivergence:
        others = {other: value for other, value in buffers.items() if other != name}
        shared = [other for other, value in others.items() if _overlap(value, kept.value)]
        text = f"{name}, which {kept.kernel} has made and which is read later, is overwritten"
        why = f"{shared[-1]} has the same memory" if shared else "it has memory of its own"
        made = shared or [*others] or [name]
        origin, origins = self.graph.origins.get(made[-1], (None, ()))
        return KernelDivergence(
            kernel,
            name,
            origin or "",
            f"{text}: {why}",
            origins,
            self.graph,
            is_overwritten=True,
            shares_memory_with=shared[-1] if shared else "",
        )


def _holds(value: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether not a single bit has changed; NaN may be among the values."""
    now, then = (item.detach().reshape(-1).contiguous() for item in (value, copy))
    return torch.equal(now.view(torch.uint8), then.view(torch.uint8))


def _overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors have memory in common."""
    if one.device != two.device or not one.numel() or not two.numel():
        return False
    (start, end), (other_start, other_end) = _extent(one), _extent(two)
    return start < other_end and other_start < end


def _extent(value: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the byte after its last."""
    steps = zip(value.shape, value.stride(), strict=True)
    last = sum((size - 1) * step for size, step in steps)
    return value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size()
