"""What the page knows of other profiles: memory over time, advice, and the cost of compiling."""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.views.page.profile_contract import PageTable


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MeasuredHead:
    """That something was measured; `chunk` has it, and `count` says how many rows."""

    chunk: str
    count: int


# --- memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AliveBlock:
    """Memory that is in use at the peak. Times are seconds of the step."""

    bytes: int
    kind: str
    name: str
    graph: str
    operation: str
    source: str
    # None: it was there before the step, or is there after it.
    begin: float | None
    end: float | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MemoryPoint:
    """Bytes in use after an allocation or a free."""

    seconds: float
    total: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MemoryCourse:
    """The memory of a device over one step."""

    device: str
    seconds: float
    base: int
    peak: int
    peak_seconds: float
    # Bytes at the peak of which no block is known.
    unknown: int
    # Blocks of the step, the smallest, that were not kept, and their bytes at the peak.
    left_out: int
    left_out_bytes: int
    points: PageTable[MemoryPoint]
    alive: PageTable[AliveBlock]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MemoryStep:
    """From one call of a compiled function to the next."""

    function: str
    place: str
    call: int
    compiled: MemoryCourse
    eager: MemoryCourse | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MemoryChange:
    """A setting that was tried for less memory."""

    change: str
    why: str
    peak: int | None
    ratio: float | None
    time_ratio: float | None
    verdict: str
    helps: bool
    note: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageMemory:
    """What `inductoscope profile --memory` measured."""

    headline: str
    steps: tuple[MemoryStep, ...]
    tried: tuple[MemoryChange, ...]
    notes: tuple[str, ...]


# --- advice ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AdvisedChange:
    """A change, what it was predicted to save, and what it saves."""

    change: str
    code: str
    why: str
    source: str
    # Seconds of a run; None if it was not measured, or not predicted.
    saved: float | None
    predicted: float | None
    prediction: str
    ratio: float | None
    helps: bool
    # Why it was not tried; empty if it was.
    warning: str
    # How it was measured, with the spread.
    how: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AdvisedCost:
    """What costs time beside the work of kernels, in seconds of a run."""

    what: str
    seconds: float
    source: str
    how: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageAdvice:
    """What `inductoscope profile --advise` tried."""

    # Compiled calls against eager; None if that could not be measured, and why.
    ratio: float | None
    how: str
    error: str
    changes: tuple[AdvisedChange, ...]
    costs: tuple[AdvisedCost, ...]


# --- compile time ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StageCost:
    """Seconds in a stage and in no inner one, with an empty cache and with a full one."""

    stage: str
    own: float
    total: float
    entered: int
    warm: float | None
    # How it grows with the number of nodes, where that was measured and is known.
    exponent: float | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageCosts:
    """What `inductoscope profile --compile` measured."""

    headline: str
    cold: float
    warm: float | None
    stages: tuple[StageCost, ...]
    noise: str
