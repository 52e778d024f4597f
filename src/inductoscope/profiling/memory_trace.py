"""The format in which the program's processes hand the memory of steps to the tool.

A step lies between one call of a compiled function and its next one. Times are nanoseconds of the
monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Kinds of holders of a block that exists before a step begins.
WEIGHT, GRADIENT, STATE, CONSTANT, INPUT, HELD = (
    "weight", "gradient", "optimizer state", "buffer of a module", "input", "held",
)  # fmt: skip


@dataclass(frozen=True)
class AllocationEvent:
    """An allocation (bytes above 0) or a free."""

    at: int
    address: int
    bytes: int
    # Bytes allocated on this device after the event.
    total: int
    device: str
    # The innermost torch operation around the event.
    operation: str = ""


@dataclass(frozen=True)
class NamedMemory:
    at: int
    address: int
    bytes: int
    name: str
    # The wrapper that has the variable; empty for an operation in eager.
    graph: str
    # The line of the program that called an operation in eager.
    place: str = ""


@dataclass(frozen=True)
class WrapperCall:
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
    function: str
    kind: str
    place: str
    # The number of the function's call that begins the step, from 1.
    number: int
    begin: int
    end: int
    # Whether something was compiled in the step, which makes it atypical.
    compiled: bool = False
    # The reason for its end: "next call", "end of the program" or "time limit".
    ended_by: str = ""
    events: tuple[AllocationEvent, ...] = ()
    names: tuple[NamedMemory, ...] = ()
    calls: tuple[WrapperCall, ...] = ()
    before: tuple[HeldMemory, ...] = ()
    after: tuple[HeldMemory, ...] = ()
    # Whether the allocator's totals include memory from before the step.
    has_totals: bool = True

    def bytes_before(self, first: AllocationEvent) -> int:
        if self.has_totals or first.device != "cpu":
            return first.total - first.bytes
        return sum(block.bytes for block in self.before if block.device == first.device)

    @property
    def peaks(self) -> dict[str, int]:
        found: dict[str, int] = {}
        now: dict[str, int] = {}
        for event in self.events:
            before = now.setdefault(event.device, self.bytes_before(event))
            now[event.device] = before + event.bytes
            found[event.device] = max(found.get(event.device, before), now[event.device])
        return found


@dataclass(frozen=True)
class StepPeak:
    """The peak of a step on each device, also for steps that are not kept."""

    function: str
    number: int
    peaks: Mapping[str, int]


@dataclass(frozen=True)
class TensorSummary:
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
    pid: int
    steps: tuple[TracedStep, ...] = ()
    peaks: tuple[StepPeak, ...] = ()
    results: tuple[CallResult, ...] = ()
    notes: tuple[str, ...] = ()
