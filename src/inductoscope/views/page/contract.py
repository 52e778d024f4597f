"""The page's data: every key of its index and of its chunks, with its type.

`python -m inductoscope.views.page.typescript` writes `web/src/contract.ts` from these classes: the
types that the page's code uses, and functions that read them even from a damaged page. A test
fails if the two differ, or if nothing in `web/src` reads a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inductoscope.analysis.fusion.row import LedgerRow
from inductoscope.model.entities import CacheLookup, GraphBreak, Recompile
from inductoscope.views.page.chunk_contract import (
    BufferRow,
    FormText,
    Guards,
    LinkedPanes,
    NamedThing,
    PackageContents,
    PageTimeline,
    Passes,
    Schedule,
    Search,
)
from inductoscope.views.page.measured_contract import (
    MeasuredHead,
    PageAdvice,
    PageCosts,
    PageMemory,
)
from inductoscope.views.page.profile_contract import (
    ModulesHead,
    ModuleTree,
    PageProfile,
    PageTable,
    ProfileHead,
    SharedTable,
)
from inductoscope.views.page.source_contract import GraphSources
from inductoscope.vocabulary.verdicts import Confidence

# The last one means unknown.
Severity = Literal["error", "warning", "note"]

# --- the index: what loads at once ----------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageProgram:
    """What ran."""

    command: str
    torch: str
    python: str
    started: str
    seconds: float | None
    ending: str


@dataclass(frozen=True, eq=False, repr=False)
class PageTarget:
    """The device that graphs were compiled for without running there."""

    name: str
    note: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageFinding:
    """What a rule found."""

    rule: str
    title: str
    severity: Severity
    confidence: Confidence
    text: str
    place: str
    what_to_do: str


@dataclass(frozen=True, eq=False, repr=False)
class PageEvidence:
    """A piece of evidence, and where it comes from."""

    what: str
    where: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Reproducer:
    """The script that reproduces the failure."""

    path: str
    verified: bool
    failed: int | None
    of: int | None
    nodes: int | None
    text: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageWorkaround:
    """A workaround for the failure."""

    text: str
    code: str
    verified: bool
    slowdown: float | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageTrailBuffer:
    """A buffer, and the operation and line of the program that it comes from."""

    name: str
    node: str
    operation: str
    source: str
    made_by: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageTrailStep:
    """A kernel, what it reads, and the buffers that pass the value on, the last first."""

    kernel: str
    call: int
    buffers: tuple[PageTrailBuffer, ...]
    reads: tuple[PageTrailBuffer, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageTrail:
    """From the fault back to the kernel that is to blame. `graph` is a position in the index."""

    graph: int | None
    calls: int
    steps: tuple[PageTrailStep, ...]
    reaches_fault: bool
    fault: str
    wrong: str
    how: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageWrongValue:
    """An element of a result, as it is and as it should be."""

    where: str
    index: tuple[int, ...]
    actual: str
    expected: str
    float64: str
    wrong: int
    elements: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageVerdict:
    """What the doctor concluded."""

    verdict: str
    stage: str
    summary: str
    confidence: Confidence
    culprit: Mapping[str, str]
    # An element of each output that is wrong.
    values: tuple[PageWrongValue, ...]
    evidence: tuple[PageEvidence, ...]
    # Differences from eager that are not failures.
    notes: tuple[PageEvidence, ...]
    not_checked: tuple[str, ...]
    # Whether the examination was interrupted.
    partial: bool
    repro: Reproducer | None
    workaround: PageWorkaround | None
    issue: str
    trail: PageTrail | None


@dataclass(frozen=True, eq=False, repr=False)
class StageTime:
    """How long a stage took, over all compiles."""

    name: str
    seconds: float
    explanation: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageFailure:
    """An exception that left the compiler."""

    stage: str
    type: str
    message: str
    source: str
    detail: str
    traceback: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageCompile:
    """One compile. `graphs` are positions in the index; `guards` and `package` name chunks."""

    id: str
    process: str
    # What compiled it: empty for torch.compile.
    flow: str
    function: str
    place: str
    outcome: str
    reason: str
    seconds: float | None
    stages: Mapping[str, float]
    graphs: tuple[int, ...]
    breaks: tuple[GraphBreak, ...]
    recompile: Recompile | None
    guard_count: int
    guards: str
    package: str
    caches: tuple[CacheLookup, ...]
    errors: tuple[PageFailure, ...]
    # Operations that were decomposed into others, and how often.
    decompositions: Mapping[str, int]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageGraph:
    """One graph that Inductor compiled. `chunk`, `passes`, `schedule`, `buffers` name chunks."""

    key: str
    compile: int | None
    phase: str
    cached: bool
    finished: bool = True
    seconds: Mapping[str, float]
    operations: int
    kernels: int
    fusions: int
    chunk: str
    passes: str
    schedule: str
    buffers: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KernelRow:
    """One kernel, or one library call. `graph` is a position in the index."""

    id: str
    name: str
    language: str
    # compiled, reused (compiled for another graph), from a cache, library call; empty if unknown
    made: str
    calls: int
    graph: int | None
    operations: str
    lines: int
    # That all calls have to move at least: a model, not a measurement.
    bytes: int | None
    seconds: float | None
    registers: int | None
    spills: int | None
    shared: int | None


@dataclass(frozen=True, eq=False, repr=False)
class LedgerHead:
    """How many pairs had each outcome; `chunk` has the rows."""

    chunk: str
    fused: int
    refused: int
    never: int


@dataclass(frozen=True, eq=False, repr=False)
class AutotuneHead:
    """How many searches autotuning made; `chunk` has them."""

    chunk: str
    searches: int
    choices: int


@dataclass(frozen=True, eq=False, repr=False)
class TimelineHead:
    """How many spans there are; `chunk` has them."""

    chunk: str
    spans: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Index:
    """The page's first view, and the list of chunks."""

    schema: int
    inductoscope: str
    title: str
    recording: str
    live: bool
    finished: bool = True
    target: PageTarget | None
    program: PageProgram
    findings: tuple[PageFinding, ...]
    verdict: PageVerdict | None
    notes: tuple[str, ...]
    stages: tuple[StageTime, ...]
    compiles: tuple[PageCompile, ...]
    graphs: tuple[PageGraph, ...]
    kernels: PageTable[KernelRow]
    ledger: LedgerHead
    autotune: AutotuneHead
    timeline: TimelineHead
    # The chunk of all that the search finds besides what is here.
    names: str
    modules: ModulesHead
    profile: ProfileHead | None
    memory: MeasuredHead | None
    advice: MeasuredHead | None
    costs: MeasuredHead | None


# What a chunk holds, by how its name begins.
CHUNKS: dict[str, Any] = {
    "graph": LinkedPanes,
    "sources": GraphSources,
    "form": FormText,
    "passes": Passes,
    "schedule": Schedule,
    "buffers": PageTable[BufferRow],
    "names": PageTable[NamedThing],
    "guards": Guards,
    "package": PackageContents,
    "ledger": SharedTable[LedgerRow],
    "autotune": tuple[Search, ...],
    "timeline": PageTimeline,
    "modules": ModuleTree,
    "profile": PageProfile,
    "memory": PageMemory,
    "advice": PageAdvice,
    "costs": PageCosts,
}

# Keys that nothing on the page reads, and why they exist.
UNREAD: dict[tuple[type, str], str] = {
    (GraphBreak, "stack"): "the finding on the break has it",
    (Recompile, "callers"): "the finding on recompiles has the stack",
    (Index, "schema"): "the version of the format, for programs that read `report --json`",
    (PageCompile, "stages"): "for programs that read `report --json`",
    (PageGraph, "seconds"): "for programs that read `report --json`",
    (PageGraph, "fusions"): "for programs that read `report --json`",
}
