"""With how many bits a generated kernel computes its indices, read from its text.

Inductor lets a Triton kernel index with 32 bits where all sizes allow it. The text says so in the
way Triton understands it: a program's number, a range and an argument `i32` have 32 bits; what is
computed with one of 64 has 64. C++ loops count in `int64_t`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NARROW, WIDE = 32, 64
# A number in the text itself takes on the width of what it is computed with.
_ANY = 0
LARGEST_NARROW = (1 << 31) - 1
_LARGEST = {NARROW: LARGEST_NARROW}
_LONGEST = 2_000_000
_DEEPEST = 60
_COUNTED = ("program_id", "num_programs", "arange")
_JOINED = ("where", "minimum", "maximum", "div_floor_integer", "remainder_integer")
_SHAPED = ("broadcast_to", "reshape", "expand_dims")
_ACCESSES = ("load", "store", "atomic_add", "atomic_or")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_NUMEL = re.compile(r"(?:[xyz]|r\d_)numel\Z")
_SIGNATURE_WIDTHS = {"i32": NARROW, "i64": WIDE, "constexpr": _ANY}
_NARROW_LOOP = re.compile(r"\bfor\s*\(\s*(?:int|int32_t|unsigned|uint32_t|short|int16_t)\s+\w+\s*=")


@dataclass(frozen=True)
class IndexTypes:
    """The widths of a kernel's integers; None where one is not known."""

    widths: Mapping[str, int | None] = field(default_factory=dict)
    pointers: Mapping[str, str] = field(default_factory=dict)
    # Axes that count their elements with 32 bits: 'x', 'y', 'r0_'.
    narrow_axes: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()

    @property
    def limit(self) -> int:
        """The largest index that the narrow ones can hold."""
        return _LARGEST[NARROW]

    def of_access(self, lines: Iterable[str]) -> int | None:
        """The width of the index in the line that an access became; None where it is not known."""
        reader = _WidthReader(dict(self.widths), self.pointers)
        for line in lines:
            call = _access_in(line)
            if call is not None and call.args:
                place = call.args[0]
                if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add):
                    return reader.width(place.right)
        return None


def read_index_types(text: str, language: str) -> IndexTypes | None:
    """What a kernel's text says; None where nothing in it is narrower than 64 bits."""
    if len(text) > _LONGEST:
        return None
    if language == "C++":
        return IndexTypes(narrow_axes=("loop",)) if _NARROW_LOOP.search(text) else None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    kernels = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    signature = _signature(tree)
    if not kernels or not signature:
        return None
    pointers = {name: kind[1:] for name, kind in signature.items() if kind.startswith("*")}
    reader = _WidthReader({n: _SIGNATURE_WIDTHS.get(k) for n, k in signature.items()}, pointers)
    reader.read(kernels[-1].body)
    return _types(reader, signature)


def _types(reader: _WidthReader, signature: Mapping[str, str]) -> IndexTypes | None:
    axes = tuple(name.removesuffix("numel") for name in signature if _NUMEL.match(name))
    narrow = tuple(axis for axis in axes if reader.widths.get(f"{axis}index") == NARROW)
    return IndexTypes(reader.widths, reader.pointers, narrow, axes) if narrow else None


def _signature(tree: ast.Module) -> dict[str, str]:
    """Argument to type, from the decorator that Inductor writes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "signature":
                return _texts(value)
    return {}


def _texts(node: ast.expr) -> dict[str, str]:
    if not isinstance(node, ast.Dict):
        return {}
    return {
        key.value: value.value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
        and isinstance(value, ast.Constant)
        and isinstance(key.value, str)
        and isinstance(value.value, str)
    }


def _access_in(line: str) -> ast.Call | None:
    try:
        tree = ast.parse(line.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _method(node) in _ACCESSES:
            return node
    return None


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


@dataclass
class _WidthReader:
    """Follows a kernel's statements. A name that has two widths has none that is known."""

    widths: dict[str, int | None]
    pointers: Mapping[str, str]

    def read(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._learn(statement.targets[0].id, self.width(statement.value))
            elif isinstance(statement, ast.For):
                if isinstance(statement.target, ast.Name):
                    self._learn(statement.target.id, self._counter(statement.iter))
                self.read(statement.body)
            elif isinstance(statement, ast.If):
                self.read((*statement.body, *statement.orelse))

    def _learn(self, name: str, width: int | None) -> None:
        known = self.widths.get(name, width)
        # A size that is fixed is given to its argument again: `xnumel = 4096`.
        self.widths[name] = width if known in (width, _ANY) else known if width == _ANY else None

    def _counter(self, node: ast.expr) -> int | None:
        """Of a loop over a range: as wide as its ends."""
        if not isinstance(node, ast.Call):
            return None
        return self._joined(node.args) or NARROW

    def width(self, node: ast.expr, depth: int = 0) -> int | None:
        """The width of an integer expression; None where it is not known."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Constant):
            return _of_constant(node.value)
        if isinstance(node, ast.Name):
            return self.widths.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            return self._joined((node.left, node.right), depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return self.width(node.operand, depth + 1)
        if isinstance(node, ast.Subscript):
            return self.width(node.value, depth + 1)
        return self._of_call(node, depth) if isinstance(node, ast.Call) else None

    def _of_call(self, node: ast.Call, depth: int) -> int | None:
        method = _method(node)
        if method in _COUNTED:
            return NARROW
        if method == "to" and node.args:
            return _of_type(node.args[0])
        if method == "full" and len(node.args) > 2:
            return _of_type(node.args[2])
        if method == "load" and node.args:
            return self._loaded(node.args[0])
        if method in _JOINED:
            return self._joined(node.args[1:] if method == "where" else node.args, depth)
        if method in _SHAPED:
            assert isinstance(node.func, ast.Attribute)
            is_function = isinstance(node.func.value, ast.Name) and node.func.value.id == "tl"
            shaped = node.args[0] if is_function and node.args else node.func.value
            return self.width(shaped, depth + 1)
        return None

    def _loaded(self, place: ast.expr) -> int | None:
        pointer = place.left if isinstance(place, ast.BinOp) else place
        name = pointer.id if isinstance(pointer, ast.Name) else ""
        return _SIGNATURE_WIDTHS.get(self.pointers.get(name, ""))

    def _joined(self, nodes: Iterable[ast.expr], depth: int = 0) -> int | None:
        widest = _ANY
        for node in nodes:
            width = self.width(node, depth + 1)
            if width is None:
                return None
            widest = max(widest, width)
        return widest


def _of_constant(value: object) -> int | None:
    if type(value) is not int:
        return None
    return _ANY if abs(value) <= _LARGEST[NARROW] else WIDE


def _of_type(node: ast.expr) -> int | None:
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return {"int32": NARROW, "int64": WIDE}.get(name)
