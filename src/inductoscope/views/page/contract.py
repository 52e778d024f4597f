"""The schema of the page's data: every key of its index and chunks, with its type.

`python web/typescript.py` writes `web/src/contract.ts` from these classes: the
types that the page's code uses, and functions that read them even from a damaged page. A test
fails if the two differ, or if nothing in `web/src` reads a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, NewType, TypeVar

from inductoscope.analysis.fusion.ledger import LedgerRow
from inductoscope.doctor.failure import WrongValue
from inductoscope.model.entities import Recompile
from inductoscope.model.fault_trail import TrailStep
from inductoscope.recording.codec import json_keys
from inductoscope.recording.events import CacheLookup, GraphBreak, dataclass_transform
from inductoscope.verdicts import Confidence

Row = TypeVar("Row")
Data = TypeVar("Data", bound="PageData")


def _keys(kind: type[Any]) -> tuple[str, ...]:
    return json_keys(kind)  # type: ignore[arg-type]  # A class is hashable.


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class PageData:
    """Base of what the page is given. A subclass is a frozen dataclass; its fields are the keys."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, repr=False)(cls)

    @classmethod
    def showing(cls: type[Data], source: object, **more: Any) -> Data:
        """Take the fields that `source` has under the same name; `more` are all others."""
        same = {name: getattr(source, name) for name in _keys(cls) if name not in more}
        return cls(**same, **more)


@dataclass(frozen=True, eq=False, repr=False)
class PageTable(Generic[Row]):
    """A table of rows of one class that stores the keys once."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, kind: type[Row], rows: Iterable[Row]) -> PageTable[Row]:
        keys = _keys(kind)
        return cls(keys, tuple(tuple(vars(row).values()) for row in rows))


@dataclass(frozen=True, eq=False, repr=False)
class SharedTable(Generic[Row]):
    """A table of columns that stores and parses each distinct value once."""

    columns: tuple[str, ...]
    # The distinct values of each column.
    values: tuple[tuple[Any, ...], ...]
    # For each column, the index of each row's value among the distinct values.
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, kind: type[Row], rows: Sequence[Row]) -> SharedTable[Row]:
        keys = _keys(kind)
        columns = [_shared(map(attrgetter(key), rows)) for key in keys]
        return cls(keys, tuple(values for values, _ in columns), tuple(p for _, p in columns))

    @classmethod
    def joined(cls, kind: type[Row], tables: Sequence[SharedTable[Row]]) -> SharedTable[Row]:
        keys = _keys(kind)
        columns = [
            _joined([(table.values[at], table.places[at]) for table in tables])
            for at in range(len(keys))
        ]
        return cls(keys, tuple(values for values, _ in columns), tuple(p for _, p in columns))


Column = tuple[tuple[Any, ...], tuple[int, ...]]


def _joined(columns: Sequence[Column]) -> Column:
    known: dict[Any, int] = {}
    places: list[int] = []
    for values, own in columns:
        now = [known.setdefault(_distinct(value), len(known)) for value in values]
        places += map(now.__getitem__, own)
    return tuple(value for _, value in known), tuple(places)


def _shared(column: Iterable[Any]) -> Column:
    """Return the distinct values of a column, and each row's index into them."""
    found = list(column)
    kinds = set(map(type, found))
    # Equal values of one type are written alike in JSON; values of mixed types may not be.
    keys = found if len(kinds) == 1 else list(map(_distinct, found))
    known = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    values = tuple(known) if keys is found else tuple(value for _, value in known)
    return values, tuple(map(known.__getitem__, keys))


def _distinct(value: Any) -> tuple[type, Any]:
    """Return a key that distinguishes 1, True and 1.0, which JSON writes differently."""
    return type(value), value


# --- modules --------------------------------------------------------------------------------------


class PageModule(PageData):
    """A module, or a compiled function above all its modules. `parent` is an earlier row."""

    path: str
    # The module's attribute name in its parent.
    label: str
    kind: str
    parent: int | None
    # Operations of the module and its submodules in all graphs, and the graphs with them.
    operations: int
    graphs: tuple[int, ...]
    # The first sibling module of the same class and structure.
    alike: int | None


class ModuleKernel(PageData):
    """A kernel, and the innermost module that contains all its operations."""

    module: int
    graph: int
    id: str
    name: str
    # Number of calls and minimum bytes moved, in one call of the graph.
    calls: int
    bytes: int | None
    # Seconds of all measured calls of the graph but the first.
    seconds: float | None


class ModuleTree(PageData):
    modules: PageTable[PageModule]
    kernels: PageTable[ModuleKernel]


# --- the profile ----------------------------------------------------------------------------------


class ProfiledKernel(PageData):
    """One call of a kernel in a wrapper. `graph` is a position in the index."""

    graph: int | None
    id: str
    name: str
    device: str
    sizes: str
    calls: int
    # Seconds of a call: median and quartiles.
    median: float
    low: float
    high: float
    # Seconds of all calls, and those lost to the machine's limit.
    total: float
    lost: float
    bytes: int | None
    flops: int | None
    floor: float | None
    limit: str
    operations: str
    places: tuple[str, ...]


class UsualKernel(PageData):
    id: str
    name: str
    start: float
    seconds: float


class ProfiledGraph(PageData):
    """The calls of a graph, and one of median duration."""

    graph: int | None
    key: str
    function: str
    sizes: str
    device: str
    measured_by: str
    calls: int
    median: float
    low: float
    high: float
    eager: float | None
    slower_than_eager: bool
    usual: float | None
    kernels: PageTable[UsualKernel]


class ProfiledMachine(PageData):
    """The peak bandwidth and matrix throughput of a device, in bytes and operations per second."""

    device: str
    name: str
    threads: int
    measured: str
    # Copies beyond the caches, and the fastest ones in them.
    bandwidth: float
    cached_bandwidth: float
    matrix: Mapping[str, float]


class PageProfile(PageData):
    """The results of `inductoscope profile`."""

    headline: str
    kernels: PageTable[ProfiledKernel]
    graphs: tuple[ProfiledGraph, ...]
    machines: tuple[ProfiledMachine, ...]
    notes: tuple[str, ...]


class ProfileHead(PageData):
    chunk: str
    kernels: int
    seconds: float
    headline: str


class ModulesHead(PageData):
    chunk: str


# --- The chunks of a page, which are unpacked when they are shown ---------------------------------

# A line of a text, counted from 1.
LineNumber = NewType("LineNumber", int)


# --- chunks of one graph --------------------------------------------------------------------------


class PagePane(PageData):
    """One level of a graph as text. `numbers` are shown beside the lines, if there are any."""

    id: str
    title: str
    language: str
    text: str
    numbers: tuple[int | None, ...] | None
    missing: str


class Operation(PageData):
    """An operation, its lines in each pane, and the lines of nodes that only list it as origin."""

    name: str
    label: str
    # The path of the module that contains the operation.
    module: str
    # The reason why the operation has no code of its own; empty if it has, or if unknown.
    no_code: str
    lines: Mapping[str, tuple[LineNumber, ...]]
    leads: Mapping[str, tuple[LineNumber, ...]]


class FormHead(PageData):
    """A native form of a kernel; `chunk` has its text. `ran`: the configuration that won."""

    name: str
    config: str
    chunk: str
    milliseconds: float | None
    ran: bool


class PaneKernel(PageData):
    """A kernel and its position in the kernel pane. The id of a library call names its output."""

    id: str
    name: str
    first_line: int
    last_line: int
    forms: tuple[FormHead, ...]
    forms_missing: str
    facts: Mapping[str, float]


class LinkedPanes(PageData):
    panes: tuple[PagePane, ...]
    operations: tuple[Operation, ...]
    kernels: tuple[PaneKernel, ...]


class FormText(PageData):
    """A native form. `links`: for a line of the kernel, the lines of this text."""

    text: str
    language: str
    links: Mapping[str, tuple[LineNumber, ...]]


class Pass(PageData):
    """A pass that changed the graph. `before` and `after` are places among the texts."""

    stage: str
    name: str
    seconds: float | None
    before: int
    after: int


class Passes(PageData):
    """The passes of one graph. Consecutive passes share a graph, so each text is stored once.

    Instead of texts, there may be chunks of FX graphs.
    """

    texts: tuple[str, ...]
    graphs: tuple[str, ...]
    passes: tuple[Pass, ...]


class ScheduleNode(PageData):
    id: str
    kind: str
    label: str
    operations: tuple[str, ...]
    group: str
    kernel: str
    bytes: int | None


class ScheduleEdge(PageData):
    """A buffer that one node writes and another reads; `inside`: in one fused node."""

    writer: str
    reader: str
    buffer: str
    bytes: int | None
    inside: bool


class ScheduleGroup(PageData):
    id: str
    kind: str
    members: tuple[str, ...]
    kernel: str


class Schedule(PageData):
    nodes: tuple[ScheduleNode, ...]
    edges: tuple[ScheduleEdge, ...]
    groups: tuple[ScheduleGroup, ...]


class BufferRow(PageData):
    name: str
    kind: str
    dtype: str
    size: str
    stride: str
    bytes: int | None
    # The operation whose result the buffer holds, and its further origins.
    operation: str
    led_here: tuple[str, ...]
    # The scheduler node and the kernel that write it, and the nodes that read it.
    node: str
    kernel: str
    read_by: tuple[str, ...]
    # The buffers that share the memory before and after this one, and the kind of reuse.
    takes_over: str
    given_to: str
    part_of: str


# --- chunks of the whole run ----------------------------------------------------------------------


class NamedThing(PageData):
    """A searchable name: an operation, a source line, a scheduler node or a buffer."""

    kind: str
    name: str
    note: str
    graph: int | None
    # Operations that a source line led to.
    operations: tuple[str, ...]


class PageChoice(PageData):
    name: str
    description: str
    milliseconds: float | None
    state: str
    error: str


class Search(PageData):
    graph: str
    operation: str
    # Shapes and types of the tuned inputs; empty in older recordings.
    inputs: tuple[str, ...]
    # The choice that torch took; empty if it took none, or, for the winner, if it was not timed.
    taken: str
    winner: str
    choices: tuple[PageChoice, ...]


class PageLane(PageData):
    name: str
    kind: str


class PageSpan(PageData):
    """A span of work. `lane` is an index into the timeline's lanes, `graph` into the index."""

    lane: int
    start: float
    seconds: float
    depth: int
    stage: str
    label: str
    graph: int | None


class PageTimeline(PageData):
    lanes: tuple[PageLane, ...]
    spans: tuple[PageSpan, ...]


class Guards(PageData):
    text: str


# --- chunks of one package ------------------------------------------------------------------------


class PackageInput(PageData):
    """The guards of a package on one input, with a text for each size and stride."""

    name: str
    dtype: str
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    device: str
    # The required alignment in bytes; 0 if there is none.
    aligned_to: int


class PackageSize(PageData):
    """A symbol in the sizes of package inputs, and the input that defines it."""

    name: str
    expression: str


class PackageConstant(PageData):
    name: str
    kind: str
    dtype: str
    shape: str
    device: str
    bytes: int
    # The kernels that mutate the constant in place.
    written_by: str


class PackageContents(PageData):
    inputs: tuple[PackageInput, ...]
    sizes: tuple[PackageSize, ...]
    constants: tuple[PackageConstant, ...]


# --------------------------------------------------------------------------------------------------
# What the browser makes the linked panes of a graph from: texts, and the names that join them.
#
# Lines are counted in the browser, when someone looks at the graph: a large recording has
# millions of them, and few are ever looked at.

# The key of lines that belong to no item: no torch name is equal to it.
OF_NOTHING = "-"


class SourceText(PageData):
    """A pane as blocks of lines that belong to one item, or to none."""

    language: str
    text: str
    keys: tuple[str, ...]
    # The number of lines of each block.
    counts: tuple[int, ...]


class SourceKernel(PageData):
    # The scheduler nodes in the kernel.
    nodes: tuple[str, ...]
    library: bool
    # Where its text is, and where the text of this very call: places in the list of kernels.
    texts: tuple[int, ...]
    own: tuple[int, ...]
    # The kernel's line numbers, from 1, by scheduler node and loop body line.
    numbered: Mapping[str, Mapping[str, tuple[int, ...]]]


class SourceCall(PageData):
    """A line of the wrapper that calls a kernel, by its index in the list of calls."""

    line: LineNumber
    kernel: int


class GraphSources(PageData):
    """The sources of one graph. Its FX graphs are separate chunks, stored as recorded."""

    # The titles of the panes, in order.
    titles: Mapping[str, str]
    # The chunk of each pane's FX graph, by pane.
    graphs: Mapping[str, str]
    # The blocks of lines, by pane.
    texts: Mapping[str, SourceText]
    # The reason why a pane is empty, by pane.
    missing: Mapping[str, str]
    # The number of the wrapper's first line.
    wrapper_line: int
    kernels: tuple[PaneKernel, ...]
    called: tuple[SourceKernel, ...]
    calls: tuple[SourceCall, ...]
    # The computed operations and all origins, by scheduler node.
    computed: Mapping[str, tuple[str, ...]]
    origins: Mapping[str, tuple[str, ...]]
    # The names of loop body lines, by scheduler node and operation.
    steps: Mapping[str, Mapping[str, tuple[str, ...]]]
    # Scheduler nodes without a loop body.
    bodyless: tuple[str, ...]
    # The reason why an operation has no code, by operation.
    no_code: Mapping[str, str]
    # Path prefixes of Python and of this tool, which are not the user's program.
    library_files: tuple[str, ...]


class RecordedPayload(PageData):
    """Recorded JSON that is passed through to the page; the browser validates it."""

    text: str


# --------------------------------------------------------------------------------------------------
# What the page knows of other profiles: memory over time, advice, and the cost of compiling.


class MeasuredHead(PageData):
    """The head of a measurement; `chunk` has the `count` rows."""

    chunk: str
    count: int


# --- memory ---------------------------------------------------------------------------------------


class AliveBlock(PageData):
    """A block of memory that is in use at the peak. Times are seconds of the step."""

    bytes: int
    kind: str
    name: str
    graph: str
    operation: str
    source: str
    # None: the block was allocated before the step, or freed after it.
    begin: float | None
    end: float | None


class MemoryPoint(PageData):
    seconds: float
    total: int


class MemoryCourse(PageData):
    device: str
    seconds: float
    base: int
    peak: int
    peak_seconds: float
    # Bytes at the peak that belong to no known block.
    unknown: int
    # The number of the smallest blocks, which were not kept, and their bytes at the peak.
    left_out: int
    left_out_bytes: int
    points: PageTable[MemoryPoint]
    alive: PageTable[AliveBlock]


class MemoryStep(PageData):
    """A step: from one call of a compiled function to the next."""

    function: str
    place: str
    call: int
    compiled: MemoryCourse
    eager: MemoryCourse | None


class MemoryChange(PageData):
    change: str
    why: str
    peak: int | None
    ratio: float | None
    time_ratio: float | None
    verdict: str
    helps: bool
    note: str


class PageMemory(PageData):
    """The results of `inductoscope profile --memory`."""

    headline: str
    steps: tuple[MemoryStep, ...]
    tried: tuple[MemoryChange, ...]
    notes: tuple[str, ...]


# --- advice ---------------------------------------------------------------------------------------


class AdvisedChange(PageData):
    """A change with its predicted and its measured savings."""

    change: str
    code: str
    why: str
    source: str
    # Seconds of a run; None if not measured or predicted.
    saved: float | None
    predicted: float | None
    prediction: str
    ratio: float | None
    helps: bool
    # The reason why the change was not tried; empty if it was.
    warning: str
    # The method of measurement, with the spread.
    how: str


class AdvisedCost(PageData):
    """An overhead of a run outside of its kernels, in seconds."""

    what: str
    seconds: float
    source: str
    how: str


class PageAdvice(PageData):
    """The results of `inductoscope profile --advise`."""

    # The ratio of compiled calls to eager; None if unmeasurable, with the reason.
    ratio: float | None
    how: str
    error: str
    changes: tuple[AdvisedChange, ...]
    costs: tuple[AdvisedCost, ...]


# --- compile time ---------------------------------------------------------------------------------


class StageCost(PageData):
    """Seconds in a stage without its inner stages, with an empty cache and with a full one."""

    stage: str
    own: float
    total: float
    entered: int
    warm: float | None
    # The growth with the number of nodes, if measured and known.
    exponent: float | None


class PageCosts(PageData):
    """The results of `inductoscope profile --compile`."""

    headline: str
    cold: float
    warm: float | None
    stages: tuple[StageCost, ...]
    noise: str


# The last one means unknown.
Severity = Literal["error", "warning", "note"]

# --- the index, which loads at once ---------------------------------------------------------------


class PageProgram(PageData):
    command: str
    torch: str
    python: str
    started: str
    seconds: float | None
    ending: str


class PageTarget(PageData):
    """The device that graphs were compiled for without running there."""

    name: str
    note: str


class PageFinding(PageData):
    rule: str
    title: str
    severity: Severity
    confidence: Confidence
    text: str
    place: str
    what_to_do: str


class PageEvidence(PageData):
    what: str
    where: str


class Reproducer(PageData):
    path: str
    verified: bool
    failed: int | None
    of: int | None
    nodes: int | None
    text: str


class PageWorkaround(PageData):
    text: str
    code: str
    verified: bool
    slowdown: float | None


class PageTrail(PageData):
    """The trail from the fault back to the culprit kernel. `graph` is an index into the graphs."""

    graph: int | None
    calls: int
    steps: tuple[TrailStep, ...]
    reaches_fault: bool
    fault: str
    wrong: str
    how: str


class PageVerdict(PageData):
    verdict: str
    stage: str
    summary: str
    confidence: Confidence
    culprit: Mapping[str, str]
    # A wrong element of each wrong output.
    values: tuple[WrongValue, ...]
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


class StageTime(PageData):
    name: str
    seconds: float
    explanation: str


class PageFailure(PageData):
    stage: str
    type: str
    message: str
    source: str
    detail: str
    traceback: str


class PageCompile(PageData):
    """One compile. `graphs` are positions in the index; `guards` and `package` name chunks."""

    id: str
    process: str
    # The flow that compiled the frame: empty for torch.compile.
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
    # The number of decompositions by operation.
    decompositions: Mapping[str, int]


class PageGraph(PageData):
    """One graph that Inductor compiled. `chunk`, `passes`, `schedule`, `buffers` name chunks."""

    key: str
    compile: int | None
    phase: str
    cached: bool
    finished: bool = field(default=True, kw_only=True)
    seconds: Mapping[str, float]
    operations: int
    kernels: int
    fusions: int
    chunk: str
    passes: str
    schedule: str
    buffers: str


class KernelRow(PageData):
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
    # Minimum bytes moved by all calls: modelled, not measured.
    bytes: int | None
    seconds: float | None
    registers: int | None
    spills: int | None
    shared: int | None


class LedgerCause(PageData):
    """The pairs that one condition kept apart, with the texts of the costliest."""

    outcome: str
    condition: str
    pairs: int
    bytes: int | None
    at_most: bool
    reason: str
    what_to_change: str


class LedgerHead(PageData):
    chunk: str
    # The costliest first.
    causes: tuple[LedgerCause, ...]
    fused: int
    refused: int
    never: int


class AutotuneHead(PageData):
    chunk: str
    searches: int
    choices: int


class TimelineHead(PageData):
    chunk: str
    spans: int


class Index(PageData):
    """The index: the page's first view, and the list of chunks."""

    schema: int
    inductoscope: str
    title: str
    recording: str
    live: bool
    finished: bool = field(default=True, kw_only=True)
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
    # The chunk of all further searchable names.
    names: str
    modules: ModulesHead
    profile: ProfileHead | None
    memory: MeasuredHead | None
    advice: MeasuredHead | None
    costs: MeasuredHead | None


# The type of a chunk, by the prefix of its name.
CHUNKS: dict[str, Any] = {
    # What the browser makes of the sources of a graph; a page may have it linked already.
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
