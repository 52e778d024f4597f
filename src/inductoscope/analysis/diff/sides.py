"""One side of a diff: a graph of a run, and canonical names that depend only on order."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from inductoscope.model.entities import Compile, InductorGraph, Process, Recording
from inductoscope.model.fx import FxGraph, FxNode, graph_from, read_graph
from inductoscope.model.join import captured_graph, final_graph
from inductoscope.model.kernels import NativeIndex
from inductoscope.model.schedule import ScheduledNode, read_schedule

_QUOTED = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
_QUOTED_OR_NAME = re.compile(rf"{_QUOTED}|[A-Za-z_]\w*")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_SYMBOL = re.compile(r"\b[su]\d+\b")
# Names that Inductor generates: their numbers only reflect the order.
_NUMBERED = re.compile(
    r"(buf|op|arg|primals|tangents|tmp|in_ptr|out_ptr|in_out_ptr|ks|ws|s|u|constant|get_index|index)"
    r"_?\d+(?:_\d+)*"
)


@dataclass
class Renaming:
    """Canonical names: every name gets a number at first sight and keeps it.

    An input of a backward graph may be called like an operation: as `rsqrt` in `ops.rsqrt(rsqrt)`.
    So what follows a dot or is called is an operation, unless it is a kernel.
    """

    names: dict[str, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        return _QUOTED_OR_NAME.sub(self._word, text)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        bare = word[1:-1] if word[0] in "'\"" else word
        if bare in self.names:
            is_input = self.names[bare].startswith("node#")
            return word if is_input and _is_operation(found) else self.names[bare]
        match = _NUMBERED.fullmatch(bare)
        if match is None:
            return word
        self.know([bare], match[1])
        return self.names[bare]

    def know(self, names: Iterable[str], kind: str) -> None:
        for name in names:
            if name not in self.names:
                self.names[name] = f"{kind}#{self._counts[kind]}"
                self._counts[kind] += 1


def _is_operation(found: re.Match[str]) -> bool:
    text = found.string
    return text.startswith(".", found.start() - 1) or text.startswith("(", found.end())


def graph_lines(graph: FxGraph) -> tuple[str, ...]:
    """Return one line per node: operation, arguments by position, metadata of the value."""
    names = {node.name: f"%{number}" for number, node in enumerate(graph.nodes)}
    symbols = Renaming()
    return tuple(_node_line(graph, node, names, symbols) for node in graph.nodes)


def _node_line(graph: FxGraph, node: FxNode, names: Mapping[str, str], symbols: Renaming) -> str:
    arguments = " ".join(_replaced(text, names, symbols) for text in (node.args, node.kwargs))
    value = _SYMBOL.sub(lambda m: symbols.text(m[0]), json.dumps(node.value, sort_keys=True))
    return f"{names[node.name]} = {_target(graph, node)} {arguments.strip()} : {value}"


def _target(graph: FxGraph, node: FxNode) -> str:
    """Return the call target. Inputs and constants go by their position and content."""
    if node.op in ("placeholder", "output"):
        return node.op
    if node.op != "get_attr":
        return f"{node.op} {_ADDRESS.sub('0x', node.target)}"
    held = graph.attributes.get(node.target)
    return f"get_attr {_content(held)}"


def _content(value: Any) -> str:
    inner = graph_from(value)
    if inner is not None:
        return "{" + "; ".join(graph_lines(inner)) + "}"
    return json.dumps(value, sort_keys=True, default=str)


def _replaced(text: str, names: Mapping[str, str], symbols: Renaming) -> str:
    def word(match: re.Match[str]) -> str:
        found = match[0]
        if found in names:
            return names[found]
        return symbols.text(found) if _SYMBOL.fullmatch(found) else found

    return _QUOTED_OR_NAME.sub(word, _ADDRESS.sub("0x", text))


def without_comments(lines: Iterable[str]) -> list[str]:
    """Drop lines of Python that are only comments on the origin of code."""
    return [line.rstrip() for line in lines if line.strip() and not line.strip().startswith("#")]


# --- One graph in one of the two runs, read once --------------------------------------------------


@dataclass(frozen=True)
class Side:
    """A graph that Inductor compiled; None if the compile has none."""

    recording: Recording
    compile: Compile
    graph: InductorGraph | None
    # One per recording: it reads every file that a native compiler was given.
    natives: NativeIndex
    # Of the process that compiled it.
    rank: str

    @cached_property
    def _final_nodes(self) -> dict[str, FxNode]:
        return {node.name: node for node in self.final.nodes} if self.final else {}

    @cached_property
    def _captured_nodes(self) -> dict[str, FxNode]:
        return {node.name: node for node in self.captured.nodes} if self.captured else {}

    @cached_property
    def final(self) -> FxGraph | None:
        if self.graph is None:
            return None
        return read_graph(self.recording, final_graph(self.compile, self.graph))

    @cached_property
    def captured(self) -> FxGraph | None:
        return captured_graph(self.recording, self.compile)

    @cached_property
    def before(self) -> tuple[ScheduledNode, ...]:
        """The single scheduler nodes, before any fusion."""
        digest = self.graph.scheduled_before if self.graph else ""
        nodes = read_schedule(self.recording, digest)
        return tuple(leaf for node in nodes for leaf in node.leaves)

    @cached_property
    def after(self) -> tuple[ScheduledNode, ...]:
        """The scheduler nodes after fusion, in the order of the generated program."""
        digest = self.graph.scheduled_after if self.graph else ""
        return read_schedule(self.recording, digest)

    def renaming(self) -> Renaming:
        """Return a renaming that knows inputs and buffers by position in graph and schedule."""
        renaming = Renaming()
        nodes = self.final.nodes if self.final else ()
        renaming.know((n.name for n in nodes if n.op in ("placeholder", "get_attr")), "node")
        renaming.know((leaf.name for leaf in self.before), "op")
        renaming.know((b.name for leaf in self.before for b in leaf.buffers), "buf")
        kernels = self.graph.kernels if self.graph else ()
        renaming.know((k.name for k in kernels if k.language != "extern"), "kernel")
        return renaming

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The inputs of `renaming` that the recording lacks."""
        known = {"the final graph": self.final, "the scheduler's nodes": self.before}
        return tuple(what for what, found in known.items() if not found)

    @property
    def process(self) -> Process | None:
        wanted = self.compile.process
        return next((p for p in self.recording.processes if p.stream == wanted), None)

    def operations(self, leaf: ScheduledNode) -> tuple[str, ...]:
        """Return the user's operations in a scheduler node, as far back as they are known."""
        if self.final is None:
            return leaf.origins
        nodes = [self._final_nodes[name] for name in leaf.origins if name in self._final_nodes]
        return tuple(dict.fromkeys(word for node in nodes for word in self._words(node)))

    def _words(self, node: FxNode) -> list[str]:
        known = [self._captured_nodes[n] for n in node.origins if n in self._captured_nodes]
        return [n.operation for n in known if n.op != "placeholder"] or [node.operation]
