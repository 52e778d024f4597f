"""The memory of a step as a process of the program writes it and the tool reads it.

A step lies between one call of a compiled function and its next one. Times are nanoseconds of the
monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Holders of a block of memory that is there before a step begins.
WEIGHT, GRADIENT, STATE, CONSTANT, INPUT, HELD = (
    "weight", "gradient", "optimizer state", "buffer of a module", "input", "held",
)  # fmt: skip


@dataclass(frozen=True)
class AllocationEvent:
    """Memory was allocated (bytes above 0) or freed."""

    at: int
    address: int
    bytes: int
    # Bytes that the allocator has handed out on this device after it.
    total: int
    device: str
    # The innermost operation of torch in which it happened.
    operation: str = ""


@dataclass(frozen=True)
class NamedMemory:
    """At this time, this memory had this name."""

    at: int
    address: int
    bytes: int
    name: str
    # The wrapper whose variable it is.
    graph: str


@dataclass(frozen=True)
class WrapperCall:
    """One call of a wrapper: when, and the memory that it returned."""

    graph: str
    begin: int
    end: int = 0
    returned: tuple[int, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class HeldMemory:
    """Memory that something in the program holds when a step begins or ends."""

    address: int
    bytes: int
    device: str
    kind: str
    name: str = ""


@dataclass(frozen=True)
class TracedStep:
    """From one call of a compiled function to its next one."""

    function: str
    kind: str
    place: str
    # Which call of the function it begins with, counted from 1.
    number: int
    begin: int
    end: int
    # Whether something was compiled in it: then it may not be like others.
    compiled: bool = False
    # How it ended: "next call", "end of the program" or "time limit".
    ended_by: str = ""
    events: tuple[AllocationEvent, ...] = ()
    names: tuple[NamedMemory, ...] = ()
    calls: tuple[WrapperCall, ...] = ()
    before: tuple[HeldMemory, ...] = ()
    after: tuple[HeldMemory, ...] = ()
    # Whether the allocator's totals say what was there before.
    has_totals: bool = True

    def bytes_before(self, first: AllocationEvent) -> int:
        """Bytes that were in use on a device before its first event."""
        if self.has_totals or first.device != "cpu":
            return first.total - first.bytes
        return sum(block.bytes for block in self.before if block.device == first.device)

    @property
    def peaks(self) -> dict[str, int]:
        """The most bytes on each device while it ran."""
        found: dict[str, int] = {}
        now: dict[str, int] = {}
        for event in self.events:
            before = now.setdefault(event.device, self.bytes_before(event))
            now[event.device] = before + event.bytes
            found[event.device] = max(found.get(event.device, before), now[event.device])
        return found


@dataclass(frozen=True)
class StepPeak:
    """The peak of a step on each device, also of a step that is not kept."""

    function: str
    number: int
    peaks: Mapping[str, int]


@dataclass(frozen=True)
class TensorSummary:
    """A tensor in a few numbers, to compare it with another run's."""

    shape: tuple[int, ...]
    dtype: str
    total: float
    norm: float
    some: tuple[float, ...] = ()


@dataclass(frozen=True)
class CallResult:
    """The tensors that one call of a compiled function, or of a backward graph, returned."""

    thing: str
    number: int
    tensors: tuple[TensorSummary, ...]


@dataclass(frozen=True)
class ProcessMemory:
    """The steps that one process of the program was traced for."""

    pid: int
    steps: tuple[TracedStep, ...] = ()
    peaks: tuple[StepPeak, ...] = ()
    results: tuple[CallResult, ...] = ()
    notes: tuple[str, ...] = ()
