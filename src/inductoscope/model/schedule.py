"""Scheduler nodes read back from a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.recording.values import filled, members, texts


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
    return recording.once("schedule", (digest,), lambda: tuple(_nodes(recording.data(digest))))


def _nodes(data: Any) -> Iterator[ScheduledNode]:
    for item in data if isinstance(data, list) else ():
        if isinstance(item, dict):
            yield _node(item)


def _node(item: dict[str, Any]) -> ScheduledNode:
    sizes = item.get("sizes")
    buffers = item.get("buffers")
    return filled(
        ScheduledNode,
        name=str(item.get("name", "")),
        kind=str(item.get("class", "")),
        ir=str(item.get("ir", "")),
        loops=str(item.get("loops", "")),
        device=str(item.get("device", "")),
        group=str(item.get("group", "")),
        reads=texts(item.get("reads")),
        writes=texts(item.get("writes")),
        unmet=texts(item.get("unmet")),
        origins=texts(item.get("origins")),
        sizes=tuple(texts(size) for size in sizes) if isinstance(sizes, list) else (),
        kernel=str(item.get("kernel", "")),
        body=str(item.get("body", "")),
        buffers=tuple(_buffer(b) for b in (buffers if isinstance(buffers, list) else [])),
        parts=tuple(_nodes(item.get("nodes"))),
        bytes={k: v for k, v in members(item.get("bytes")).items() if isinstance(v, int)},
        indirect={
            name: _indirect(members(found)) for name, found in members(item.get("indirect")).items()
        },
        computes={name: texts(lines) for name, lines in members(item.get("computes")).items()},
    )


def _indirect(found: Mapping[str, Any]) -> IndirectIndex:
    return IndirectIndex(
        variable=str(found.get("variable", "")),
        size=str(found.get("size", "")),
        is_checked=found.get("checked") is True,
        wraps=found.get("wraps") is True,
    )


def _buffer(item: Any) -> Buffer:
    found = item if isinstance(item, dict) else {}
    return filled(
        Buffer,
        name=str(found.get("name", "")),
        users=texts(found.get("users")),
        origin=str(found.get("origin") or ""),
        dtype=str(found.get("dtype", "")),
        size=texts(found.get("size")),
        stride=texts(found.get("stride")),
        mutates=texts(found.get("mutates")),
        aliases=texts(found.get("aliases")),
    )
