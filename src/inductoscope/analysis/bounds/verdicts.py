"""Verdicts on memory accesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Proven:
    """A verdict: inside the buffer for all sizes that the guards admit. `how` names the proof."""

    kind: ClassVar[str] = "proven"
    how: str


@dataclass(frozen=True)
class Broken:
    """A verdict: outside the buffer, at these sizes and at this point of the loops.

    All values were computed exactly, in integers, and satisfy the guards and the masks.
    """

    kind: ClassVar[str] = "broken"
    sizes: Mapping[str, int]
    point: Mapping[str, int]
    position: int
    # The buffer has the positions from `first` up to, not including, `end`.
    first: int
    end: int
    # The values of inputs on which the index depends.
    values: Mapping[str, int]


@dataclass(frozen=True)
class DataDependent:
    """A verdict: the index is data. `is_asserted`: the kernel checks it; None if unknown."""

    kind: ClassVar[str] = "data-dependent"
    buffers: tuple[str, ...]
    is_asserted: bool | None
    # Whether it is inside the buffer for every value that passes the check.
    is_inside: bool


@dataclass(frozen=True)
class OutOfReach:
    """A verdict: neither proven nor refuted, and the reason."""

    kind: ClassVar[str] = "out-of-reach"
    why: str
    # The number of sizes at which every point was computed and is inside.
    sizes_tried: int = 0


Verdict = Proven | Broken | DataDependent | OutOfReach

# In the order in which verdicts are listed.
KINDS = tuple(one.kind for one in (Broken, OutOfReach, DataDependent, Proven))


@dataclass(frozen=True)
class JudgedAccess:
    """A load or store of a kernel, and the verdict on it."""

    kernel: str
    # Scheduler node, and the line of its loop body.
    node: str
    line: str
    operation: str
    buffer: str
    index: str
    verdict: Verdict
    # FX nodes that the loop body was made from.
    origins: tuple[str, ...] = ()
