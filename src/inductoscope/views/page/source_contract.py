"""What the browser makes the linked panes of a graph from: texts, and the names that join them.

Lines are counted in the browser, when someone looks at the graph: a large recording has millions of
them, and few are ever looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inductoscope.views.page.chunk_contract import LineNumber, PaneKernel

# The key of lines that belong to nothing: nothing that torch names is called so.
OF_NOTHING = "-"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SourceText:
    """A pane as blocks of lines, each of one thing or of nothing."""

    language: str
    text: str
    keys: tuple[str, ...]
    # How many lines each block has.
    counts: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SourceKernel:
    """A kernel as a graph calls it."""

    # The scheduler nodes in it.
    nodes: tuple[str, ...]
    library: bool
    # Where its text is, and where the text of this very call: places in the list of kernels.
    texts: tuple[int, ...]
    own: tuple[int, ...]
    # By scheduler node and line of its loop body: the lines that were written for it, from 1.
    numbered: Mapping[str, Mapping[str, tuple[int, ...]]]


@dataclass(frozen=True, eq=False, repr=False)
class SourceCall:
    """A line of the wrapper that calls a kernel, a place in the list of calls."""

    line: LineNumber
    kernel: int


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GraphSources:
    """One graph. Graphs of torch.fx are chunks of their own, as they were recorded."""

    # The panes in their order.
    titles: Mapping[str, str]
    # By pane: the chunk of the graph.
    graphs: Mapping[str, str]
    # By pane.
    texts: Mapping[str, SourceText]
    # Why a pane is empty.
    missing: Mapping[str, str]
    # The number of the wrapper's first line.
    wrapper_line: int
    kernels: tuple[PaneKernel, ...]
    called: tuple[SourceKernel, ...]
    calls: tuple[SourceCall, ...]
    # By scheduler node: the operations that it computes, and all that torch lists for it.
    computed: Mapping[str, tuple[str, ...]]
    origins: Mapping[str, tuple[str, ...]]
    # By scheduler node and operation: the names of lines of its loop body.
    steps: Mapping[str, Mapping[str, tuple[str, ...]]]
    # Scheduler nodes without a loop body.
    bodyless: tuple[str, ...]
    # Why operations have no code.
    no_code: Mapping[str, str]
    # How the files of Python and of this tool begin, which are nobody's program.
    library_files: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class RecordedPayload:
    """JSON that goes onto the page as it was recorded; the browser reads it with the same care."""

    text: str
