"""Keeps what is needed to watch the kernels of the program's own compiled graphs later.

A graph whose results turn out to need a closer look is then not compiled again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from inductoscope.doctor.compare.kernels import LoadedWrapper
from inductoscope.doctor.compare.watched_graphs import WatchedGraph, described


class KeptWrappers:
    """The wrappers that this process has loaded, each with a description of its graph."""

    def __init__(self) -> None:
        self.wrappers: list[LoadedWrapper] = []
        # The compiled graph whose call turned out to be wrong.
        self.called: Callable[..., Any] | None = None
        self._thread = threading.local()

    def note_graph(self, lowered: Any) -> None:
        """Code was generated for a graph; its wrapper is loaded next, by the same thread."""
        if not getattr(lowered, "is_const_graph", False):
            self._thread.graph = described(lowered)

    def note_module(self, module: Any, path: str) -> None:
        """A generated module was loaded: a wrapper, or a kernel of one."""
        graph: WatchedGraph | None = getattr(self._thread, "graph", None)
        if graph is not None and hasattr(module, "call"):
            self._thread.graph = None
            self.wrappers.append(LoadedWrapper(module, path, graph))

    def let_go(self) -> None:
        """Forget the lowered graphs, which hold the whole state of a compile.

        They are of use only for a call that is wrong, and that is hardly ever a later one.
        """
        for wrapper in self.wrappers:
            wrapper.graph.lowered = None


KEPT = KeptWrappers()
