"""Names that only number things, replaced by numbers that depend on nothing but their order."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.model.fx import FxGraph, FxNode, graph_from

_QUOTED = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
_QUOTED_OR_NAME = re.compile(rf"{_QUOTED}|[A-Za-z_]\w*")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_SYMBOL = re.compile(r"\b[su]\d+\b")
# Names that Inductor makes up: their numbers say only which came first.
_NUMBERED = re.compile(
    r"(buf|op|arg|primals|tangents|tmp|in_ptr|out_ptr|in_out_ptr|ks|ws|s|u|constant|get_index|index)"
    r"_?\d+(?:_\d+)*"
)


@dataclass
class Renaming:
    """Gives every name a number when it is first seen; the same name always has the same.

    An input of a backward graph may be called like an operation: as `rsqrt` in `ops.rsqrt(rsqrt)`.
    So what follows a dot or is called is an operation, unless it is a kernel.
    """

    names: dict[str, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        """The text with all known and all numbered names replaced."""
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
        """Number these names in this order."""
        for name in names:
            if name not in self.names:
                self.names[name] = f"{kind}#{self._counts[kind]}"
                self._counts[kind] += 1


def _is_operation(found: re.Match[str]) -> bool:
    text = found.string
    return text.startswith(".", found.start() - 1) or text.startswith("(", found.end())


def graph_lines(graph: FxGraph) -> tuple[str, ...]:
    """One line per node: operation, arguments by position, and what the value is like."""
    names = {node.name: f"%{number}" for number, node in enumerate(graph.nodes)}
    symbols = Renaming()
    return tuple(_node_line(graph, node, names, symbols) for node in graph.nodes)


def _node_line(graph: FxGraph, node: FxNode, names: Mapping[str, str], symbols: Renaming) -> str:
    arguments = " ".join(_replaced(text, names, symbols) for text in (node.args, node.kwargs))
    value = _SYMBOL.sub(lambda m: symbols.text(m[0]), json.dumps(node.value, sort_keys=True))
    return f"{names[node.name]} = {_target(graph, node)} {arguments.strip()} : {value}"


def _target(graph: FxGraph, node: FxNode) -> str:
    """What is called. Inputs and constants are identified by their position and content."""
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
    """Lines of Python without those that only say where something came from."""
    return [line.rstrip() for line in lines if line.strip() and not line.strip().startswith("#")]
