"""Values in a generated file, read from its syntax tree. Nothing is evaluated.

What is not a literal becomes a `Dotted` name, a `Made` object, or `Opaque`; `code` writes all but
the last back as Python.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What torch writes into generated files. Any other call is not read: `code` must never write one.
_MAKERS = ("DeviceProperties", "tl.constexpr", "triton.language.constexpr", "constexpr")

_DEEPEST = 40
_MOST_BITS = 256  # Longer numbers are not sizes; Python refuses to print the longest ones.


@dataclass(frozen=True)
class Dotted:
    """A name such as `ReductionHint.INNER` or `tl.float32`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Made:
    """A call such as `DeviceProperties(type='cuda', cc=90)`, as far as it can be read."""

    name: str
    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return code(self)


@dataclass(frozen=True)
class Opaque:
    """Something that is not a plain value."""

    what: str

    def __str__(self) -> str:
        return f"<{self.what}>"


def read_value(node: ast.AST, depth: int = 0) -> Any:
    """The value that an expression spells out."""
    if depth > _DEEPEST:
        return Opaque("nested too deeply")
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.UnaryOp):
        return _signed(node, depth)
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return _sequence(node, depth)
    if isinstance(node, ast.Dict):
        return _dictionary(node, depth)
    if isinstance(node, ast.Call):
        return _made(node, depth)
    name = dotted_name(node)
    return Dotted(name) if name else Opaque(type(node).__name__)


def _constant(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return Opaque("a number with too many digits")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return Opaque(type(value).__name__)


def _signed(node: ast.UnaryOp, depth: int) -> Any:
    value = read_value(node.operand, depth + 1)
    if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
        return -value
    return Opaque("UnaryOp")


def _sequence(node: ast.List | ast.Tuple | ast.Set, depth: int) -> Any:
    values = [read_value(item, depth + 1) for item in node.elts]
    if isinstance(node, ast.List):
        return values
    if isinstance(node, ast.Tuple):
        return tuple(values)
    return set(values) if all(map(_is_hashable, values)) else Opaque("Set")


def _dictionary(node: ast.Dict, depth: int) -> Any:
    found = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        key = Opaque("**") if key_node is None else read_value(key_node, depth + 1)
        if not _is_hashable(key):
            return Opaque("Dict")
        found[key] = read_value(value_node, depth + 1)
    return found


def _made(node: ast.Call, depth: int) -> Any:
    name = dotted_name(node.func)
    positional = tuple(read_value(argument, depth + 1) for argument in node.args)
    keywords = {
        keyword.arg: read_value(keyword.value, depth + 1)
        for keyword in node.keywords
        if keyword.arg is not None
    }
    if not name or len(keywords) < len(node.keywords):
        return Opaque("Call")
    if name == "set" and not positional and not keywords:
        return set()
    if name == "float" and positional in (("inf",), ("-inf",), ("nan",)):
        return float(positional[0])
    return Made(name, positional, keywords) if name in _MAKERS else Opaque(f"{name}(...)")


def _is_hashable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_hashable, value))
    return not isinstance(value, (list, dict, set, Made))


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` of an expression that is just that, else nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _DEEPEST:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def is_plain(value: Any) -> bool:
    """Whether a value was read whole."""
    if isinstance(value, Opaque):
        return False
    if isinstance(value, Mapping):
        return all(is_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple, set)):
        return all(map(is_plain, value))
    if isinstance(value, Made):
        return is_plain(value.positional) and is_plain(value.keywords)
    return True


def code(value: Any) -> str:
    """A value as Python text."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, Made):
        words = [code(item) for item in value.positional]
        words += [f"{name}={code(item)}" for name, item in value.keywords.items()]
        return f"{value.name}({', '.join(words)})"
    if isinstance(value, (Dotted, Opaque)):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{code(k)}: {code(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(code, value)) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{code(item)}, " for item in value).removesuffix(" ") + ")"
    if isinstance(value, set):
        return "{" + ", ".join(sorted(map(code, value))) + "}" if value else "set()"
    return repr(value)
