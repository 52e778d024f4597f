"""Scheduler nodes decoded from a recording."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from inductoscope.model.entities import Recording
from inductoscope.recording.decoding import decode_list


class Buffer(msgspec.Struct, frozen=True):
    name: str = ""
    users: tuple[str, ...] = ()
    recorded_origin: str | None = msgspec.field(default=None, name="origin")
    dtype: str = ""
    size: tuple[str, ...] = ()
    stride: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The operation whose result the buffer holds; empty if there is none."""
        return self.recorded_origin or ""


class IndirectIndex(msgspec.Struct, frozen=True):
    variable: str = ""
    # The number of elements in the indexed dimension.
    size: str = ""
    # Whether the kernel asserts the bounds, and whether -1 wraps to the last element.
    is_checked: bool = msgspec.field(default=False, name="checked")
    wraps: bool = False


class ScheduledNode(msgspec.Struct, frozen=True, dict=True):
    """A scheduler node; a fused node holds the nodes it consists of."""

    name: str = ""
    kind: str = msgspec.field(default="", name="class")
    ir: str = ""
    loops: str = ""
    device: str = ""
    group: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    sizes: tuple[tuple[str, ...], ...] = ()
    kernel: str = ""
    body: str = ""
    buffers: tuple[Buffer, ...] = ()
    parts: tuple[ScheduledNode, ...] = msgspec.field(default=(), name="nodes")
    # Bytes read or written, by buffer; empty if not recorded.
    bytes: Mapping[str, int] = {}
    # Indirect indices by the name of their loop body line; empty if not recorded.
    indirect: Mapping[str, IndirectIndex] = {}
    # Names of the loop body lines that compute an operation, by operation; empty if not recorded.
    computes: Mapping[str, tuple[str, ...]] = {}

    @cached_property
    def leaves(self) -> tuple[ScheduledNode, ...]:
        """The unfused nodes inside a fused node; the node itself if it is not fused."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) or (self,)


def read_schedule(recording: Recording, digest: str) -> tuple[ScheduledNode, ...]:
    def decode(data: bytes) -> tuple[ScheduledNode, ...]:
        return decode_list(ScheduledNode, data)

    return recording.once("schedule", (digest,), lambda: recording.decoded(digest, decode) or ())
