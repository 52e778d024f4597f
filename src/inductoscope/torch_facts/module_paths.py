"""Modules of a model: their paths as torch writes them, read into names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# The variable that holds the outermost module: L['self'] is a local, G['model'] a global.
_ROOT = re.compile(r"^(?:getattr\()*[LG]\['([^']*)'\]")
# A name below it: .h, ['h'], [0], or the second argument of a getattr.
_NAME = re.compile(r"\.(\w+)|\['([^']+)'\]|\[(\d+)\]|, '([^']+)'\)")


@dataclass(frozen=True)
class Module:
    """A module by its names from the outermost one on (`h`, `0`, `attn`), and its class."""

    names: tuple[str, ...]
    kind: str

    @property
    def path(self) -> str:
        """As a user writes it: h.0.attn; empty for the outermost module."""
        return ".".join(self.names)


def modules_in(recorded: Any) -> tuple[Module, ...]:
    """The modules around a node, from recorded data; what is damaged is left out."""
    pairs = recorded if isinstance(recorded, list) else []
    return tuple(
        Module(module_names(str(pair[0])), str(pair[1]))
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2
    )


def module_names(path: str) -> tuple[str, ...]:
    """The names in a path as torch writes it: L['self'].h.0, h.0, L['self']._modules['h']."""
    root = _ROOT.match(path)
    # An exported program has plain names, without a variable before them.
    below = path[root.end() :] if root else f".{path}"
    found = ["".join(names) for names in _NAME.findall(below)]
    return tuple(name for name in found if name != "_modules")
