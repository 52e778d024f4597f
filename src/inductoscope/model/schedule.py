"""Scheduler nodes read back from a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.recording.values import (
    lazily,
    members,
    text,
    texts,
)


@dataclass(frozen=True)
class Buffer:
    """A buffer that a scheduler node writes."""

    name: str
    users: tuple[str, ...]
    origin: str
    dtype: str
    size: tuple[str, ...]
    stride: tuple[str, ...]
    mutates: tuple[str, ...]
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class IndirectIndex:
    """A value of the loop body that becomes part of an index."""

    variable: str
    # It addresses so many places.
    size: str
    # Whether the kernel asserts that it is inside them, and whether -1 is the last place.
    is_checked: bool
    wraps: bool


@dataclass(frozen=True)
class ScheduledNode:
    """A scheduler node; a fused one holds the nodes that it was made of."""

    name: str
    kind: str
    ir: str
    loops: str
    device: str
    group: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    unmet: tuple[str, ...]
    origins: tuple[str, ...]
    sizes: tuple[tuple[str, ...], ...]
    kernel: str
    body: str
    buffers: tuple[Buffer, ...]
    parts: tuple[ScheduledNode, ...]
    # Bytes that it reads or writes of each buffer; empty where that was not recorded.
    bytes: Mapping[str, int] = field(default_factory=dict)
    # By the name of the line that makes the index; empty where that was not recorded.
    indirect: Mapping[str, IndirectIndex] = field(default_factory=dict)
    # By operation: the names of the lines of the loop body that compute it. Empty where that was
    # not recorded.
    computes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def leaves(self) -> tuple[ScheduledNode, ...]:
        """The single nodes inside a fused one; itself where it is single."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) or (self,)


def read_schedule(recording: Recording, digest: str) -> tuple[ScheduledNode, ...]:
    """The scheduler nodes under a digest, in order."""
    return recording.once("schedule", (digest,), lambda: _nodes(recording.data(digest)))


def _nodes(data: Any) -> tuple[ScheduledNode, ...]:
    found = data if isinstance(data, list) else ()
    return tuple(_node(item) for item in found if isinstance(item, dict))


def _buffers(data: Any) -> tuple[Buffer, ...]:
    return tuple(_buffer(members(item)) for item in (data if isinstance(data, list) else ()))


def _indirect_indices(data: Any) -> dict[str, IndirectIndex]:
    return {name: _indirect(members(found)) for name, found in members(data).items()}


def _indirect(found: Mapping[str, Any]) -> IndirectIndex:
    return IndirectIndex(
        variable=str(found.get("variable", "")),
        size=str(found.get("size", "")),
        is_checked=found.get("checked") is True,
        wraps=found.get("wraps") is True,
    )


_node = lazily(
    ScheduledNode,
    name=("name", text),
    kind=("class", text),
    ir=("ir", text),
    loops=("loops", text),
    device=("device", text),
    group=("group", text),
    reads=("reads", texts),
    writes=("writes", texts),
    unmet=("unmet", texts),
    origins=("origins", texts),
    sizes=("sizes", lambda sizes: tuple(map(texts, sizes)) if isinstance(sizes, list) else ()),
    kernel=("kernel", text),
    body=("body", text),
    buffers=("buffers", _buffers),
    parts=("nodes", _nodes),
    bytes=("bytes", lambda data: {k: v for k, v in members(data).items() if isinstance(v, int)}),
    indirect=("indirect", _indirect_indices),
    computes=("computes", lambda data: {k: texts(v) for k, v in members(data).items()}),
)
_buffer = lazily(
    Buffer,
    name=("name", text),
    users=("users", texts),
    origin=("origin", text),
    dtype=("dtype", text),
    size=("size", texts),
    stride=("stride", texts),
    mutates=("mutates", texts),
    aliases=("aliases", texts),
)
