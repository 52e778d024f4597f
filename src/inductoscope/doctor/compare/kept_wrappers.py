"""Keeps what is needed to watch the kernels of the program's own compiled graphs later.

A graph whose results turn out to need a closer look is then not compiled again.
"""

from __future__ import annotations

import threading
from typing import Any

from inductoscope.doctor.compare.kernels import LoadedWrapper
from inductoscope.doctor.compare.watched_graphs import WatchedGraph, described


class KeptWrappers:
    """The wrappers that this process has loaded, each with a description of its graph."""

    def __init__(self) -> None:
        self.wrappers: list[LoadedWrapper] = []
        self._thread = threading.local()

    def note_graph(self, lowered: Any) -> None:
        """Code was generated for a graph; its wrapper is loaded next, by the same thread."""
        if not getattr(lowered, "is_const_graph", False):
            graph = described(lowered)
            graph.lowered = None  # It holds the whole state of the compile.
            self._thread.graph = graph

    def note_module(self, module: Any, path: str) -> None:
        """A generated module was loaded: a wrapper, or a kernel of one."""
        graph: WatchedGraph | None = getattr(self._thread, "graph", None)
        if graph is not None and hasattr(module, "call"):
            self._thread.graph = None
            self.wrappers.append(LoadedWrapper(module, path, graph))


KEPT = KeptWrappers()
