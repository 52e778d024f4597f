"""What the chunks of a page hold: the parts that are unpacked when they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

# A line of a text, counted from 1.
LineNumber = NewType("LineNumber", int)


# --- chunks of one graph --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PagePane:
    """One level of a graph as text. `numbers` are shown beside the lines, if there are any."""

    id: str
    title: str
    language: str
    text: str
    numbers: tuple[int | None, ...] | None
    missing: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Operation:
    """An operation, its lines in each pane, and the lines of what it merely led to."""

    name: str
    label: str
    # The path of the module that it is part of.
    module: str
    # Why it has no code of its own; empty where it has some, or nothing is known.
    no_code: str
    lines: Mapping[str, tuple[LineNumber, ...]]
    leads: Mapping[str, tuple[LineNumber, ...]]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FormHead:
    """A native form of a kernel; `chunk` has its text. `ran`: the configuration that won."""

    name: str
    config: str
    chunk: str
    milliseconds: float | None
    ran: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PaneKernel:
    """A kernel, and its place in the kernel pane. The id of a library call says what it makes."""

    id: str
    name: str
    first_line: int
    last_line: int
    forms: tuple[FormHead, ...]
    forms_missing: str
    facts: Mapping[str, float]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LinkedPanes:
    """The levels of one graph side by side."""

    panes: tuple[PagePane, ...]
    operations: tuple[Operation, ...]
    kernels: tuple[PaneKernel, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FormText:
    """A native form. `links`: for a line of the kernel, the lines of this text."""

    text: str
    language: str
    links: Mapping[str, tuple[LineNumber, ...]]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Pass:
    """A pass that changed the graph. `before` and `after` are places among the texts."""

    stage: str
    name: str
    seconds: float | None
    before: int
    after: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Passes:
    """The passes of one graph. What one leaves, the next begins with: each text is here once.

    Instead of texts, there may be the chunks of graphs.
    """

    texts: tuple[str, ...]
    graphs: tuple[str, ...]
    passes: tuple[Pass, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScheduleNode:
    """A scheduler node."""

    id: str
    kind: str
    label: str
    operations: tuple[str, ...]
    group: str
    kernel: str
    bytes: int | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScheduleEdge:
    """A buffer that one node writes and another reads; `inside`: in one kernel."""

    writer: str
    reader: str
    buffer: str
    bytes: int | None
    inside: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScheduleGroup:
    """Nodes that were fused."""

    id: str
    kind: str
    members: tuple[str, ...]
    kernel: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Schedule:
    """The schedule of one graph."""

    nodes: tuple[ScheduleNode, ...]
    edges: tuple[ScheduleEdge, ...]
    groups: tuple[ScheduleGroup, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BufferRow:
    """A buffer, an input or a constant of a graph."""

    name: str
    kind: str
    dtype: str
    size: str
    stride: str
    bytes: int | None
    # Whose result it holds, and what else led to it.
    operation: str
    led_here: tuple[str, ...]
    # The scheduler node and the kernel that write it, and the nodes that read it.
    node: str
    kernel: str
    read_by: tuple[str, ...]
    # Buffers with the same memory, before and after it, and how torch came to that.
    takes_over: str
    given_to: str
    part_of: str


# --- chunks of the whole run ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class NamedThing:
    """Something to search for: an operation, a source line, a scheduler node or a buffer."""

    kind: str
    name: str
    note: str
    graph: int | None
    # Operations that a source line led to.
    operations: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageChoice:
    """One implementation that autotuning considered."""

    name: str
    description: str
    milliseconds: float | None
    state: str
    error: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Search:
    """What autotuning considered for one operation."""

    graph: str
    operation: str
    # Shapes and types of what it was tuned for; empty in older recordings.
    inputs: tuple[str, ...]
    winner: str
    choices: tuple[PageChoice, ...]


@dataclass(frozen=True, eq=False, repr=False)
class PageLane:
    """A row of the timeline."""

    name: str
    kind: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageSpan:
    """Something that took time. `lane` is a place in the timeline, `graph` one in the index."""

    lane: int
    start: float
    seconds: float
    depth: int
    stage: str
    label: str
    graph: int | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageTimeline:
    """Where the time went."""

    lanes: tuple[PageLane, ...]
    spans: tuple[PageSpan, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Guards:
    """The guards of one compile, one per line."""

    text: str


# --- chunks of one package ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PackageInput:
    """What a package accepts as one input. Sizes and strides: a text for each dimension."""

    name: str
    dtype: str
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    device: str
    # Bytes; 0 where it does not matter.
    aligned_to: int


@dataclass(frozen=True, eq=False, repr=False)
class PackageSize:
    """A symbol in those sizes, and which input it is taken from."""

    name: str
    expression: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PackageConstant:
    """A weight or buffer in a package."""

    name: str
    kind: str
    dtype: str
    shape: str
    device: str
    bytes: int
    # Kernels that change it in place.
    written_by: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PackageContents:
    """What a package of AOTInductor accepts and holds."""

    inputs: tuple[PackageInput, ...]
    sizes: tuple[PackageSize, ...]
    constants: tuple[PackageConstant, ...]
