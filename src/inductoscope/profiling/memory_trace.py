"""What a process of the program writes about memory, and the tool reads."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.recording.codec import decode, encode

SUFFIX = ".memory.json"

# What holds a block of memory that is there before a step begins.
WEIGHT, GRADIENT, STATE, CONSTANT, INPUT, HELD = (
    "weight", "gradient", "optimizer state", "buffer of a module", "input", "held",
)  # fmt: skip


@dataclass(frozen=True)
class AllocationEvent:
    """Memory was allocated (bytes above 0) or freed, at a time of the system's clock."""

    at: int
    address: int
    bytes: int
    # What the allocator has handed out on this device after it.
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
    # The wrapper whose variable it is; empty for an operation in eager.
    graph: str = ""
    # For an operation in eager: the user's line.
    place: str = ""


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
class TensorSummary:
    """A tensor in a few numbers, to compare it with another run's."""

    shape: tuple[int, ...]
    dtype: str
    total: float
    norm: float
    some: tuple[float, ...] = ()


@dataclass(frozen=True)
class CallResult:
    """What one call of a compiled function, or of a backward graph, returned."""

    thing: str
    number: int
    tensors: tuple[TensorSummary, ...]


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


@dataclass(frozen=True)
class StepPeak:
    """The most memory of a step that is not kept: only its peak is."""

    function: str
    number: int
    peaks: Mapping[str, int]


@dataclass(frozen=True)
class ProcessMemory:
    """What one process of the program saw of memory."""

    pid: int
    steps: tuple[TracedStep, ...] = ()
    peaks: tuple[StepPeak, ...] = ()
    results: tuple[CallResult, ...] = ()
    notes: tuple[str, ...] = ()


def write_memory(found: ProcessMemory, folder: Path) -> None:
    """Write it so that a reader sees the old file or the new one, never a part."""
    path = folder / f"{found.pid}{SUFFIX}"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(encode(found)), "utf-8")
    unfinished.replace(path)


def read_observed(folder: Path) -> tuple[ProcessMemory, ...]:
    """What all processes of a run saw; what is damaged is left out."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with contextlib.suppress(OSError, ValueError):
            found.append(decode(ProcessMemory, json.loads(path.read_text("utf-8"))))
    return tuple(found)
