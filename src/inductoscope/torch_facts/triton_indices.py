"""The arithmetic on indices in a Triton kernel: which type each part has, and which range.

A kernel's text says it all: `xnumel = 11` bounds `xindex`, a cast makes a value wider, and Triton's
rules give the type of everything else. A part whose exact range does not fit into its type wraps.
What is not understood has no range, and nothing is said of it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_INDEX = re.compile(r"([a-z]\w*?)index")
_LARGEST = 1 << 200


@dataclass(frozen=True)
class Range:
    """All values of an integer expression, ends included, and the type it is computed in."""

    low: int
    high: int
    bits: int = 32
    is_signed: bool = True

    @property
    def fits(self) -> bool:
        """Whether its type can hold all values."""
        lowest = -(1 << (self.bits - 1)) if self.is_signed else 0
        highest = (1 << (self.bits - 1)) - 1 if self.is_signed else (1 << self.bits) - 1
        return lowest <= self.low and self.high <= highest


@dataclass(frozen=True)
class Wraparound:
    """A part of a line whose values do not fit into the type that it is computed in."""

    text: str
    range: Range
    # Every index occurs once in it, so the ends of the range are reached.
    is_exact: bool


@dataclass
class KernelIndices:
    """The indices of one kernel, from its text."""

    known: dict[str, Range] = field(default_factory=dict)
    _wide: set[str] = field(default_factory=set)

    def wraps(self, line: str) -> Iterator[Wraparound]:
        """The outermost parts of a line that wrap, each only once."""
        statement = _parse(line)
        value = getattr(statement, "value", None)
        if value is not None:
            yield from self._wraps(value)

    def _wraps(self, node: ast.AST) -> Iterator[Wraparound]:
        if isinstance(node, ast.BinOp):
            found = self.range_of(node)
            if found is not None and not found.fits:
                yield Wraparound(ast.unparse(node), found, self._is_exact(node))
                return
        for child in ast.iter_child_nodes(node):
            yield from self._wraps(child)

    def _is_exact(self, node: ast.AST) -> bool:
        return all(count == 1 for count in _names(node).values())

    def learn(self, statement: ast.stmt) -> None:
        """Take note of what a line assigns."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return
        name, value = statement.targets[0].id, statement.value
        if "int64" in ast.unparse(value) or self._wide & _names(value).keys():
            self._wide.add(name)
        index = _INDEX.fullmatch(name)
        count = self.known.get(f"{index[1]}numel") if index else None
        if count is not None:
            self.known[name] = Range(0, count.low - 1, 64 if name in self._wide else 32)
            return
        found = self.range_of(value)
        if found is None:
            self.known.pop(name, None)
        else:
            self.known[name] = found

    def range_of(self, node: ast.expr) -> Range | None:
        """The range of an expression; None where it is not understood."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return _constant(node.value)
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.range_of(node.operand)
            return inner and Range(-inner.high, -inner.low, inner.bits, inner.is_signed)
        if isinstance(node, ast.BinOp):
            return self._combined(node)
        if isinstance(node, ast.Call):
            return self._cast(node)
        return None

    def _combined(self, node: ast.BinOp) -> Range | None:
        left, right = self.range_of(node.left), self.range_of(node.right)
        combine = _OPERATIONS.get(type(node.op))
        if combine is None or left is None or right is None:
            return None
        # What wraps below has another value than the range says.
        if not left.fits or not right.fits:
            return None
        ends = combine(left, right)
        if ends is None or max(map(abs, ends)) > _LARGEST:
            return None
        widest = max(left.bits, right.bits)
        signed = all(r.is_signed or r.bits < widest for r in (left, right))
        return Range(min(ends), max(ends), widest, signed)

    def _cast(self, node: ast.Call) -> Range | None:
        """`(…).to(tl.int64)`, of which the inside is computed first, in its own type."""
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr != "to" or not node.args:
            return None
        inner = self.range_of(function.value)
        bits = {"tl.int64": 64, "tl.int32": 32}.get(ast.unparse(node.args[0]))
        if inner is None or bits is None or not inner.fits:
            return None
        return Range(inner.low, inner.high, bits)


def kernel_indices(source: str) -> KernelIndices:
    """What a Triton kernel's text says of its indices."""
    found = KernelIndices()
    for line in source.splitlines():
        statement = _parse(line)
        if statement is not None:
            found.learn(statement)
    return found


def _names(node: ast.AST) -> Counter[str]:
    return Counter(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _parse(line: str) -> ast.stmt | None:
    try:
        body = ast.parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body[0] if len(body) == 1 else None


def _constant(value: int) -> Range | None:
    """Triton gives a number the first of these types that holds it."""
    for bits, is_signed in ((32, True), (32, False), (64, True)):
        found = Range(value, value, bits, is_signed)
        if found.fits:
            return found
    return None


_Ends = Callable[[Range, Range], "list[int] | None"]


def _sums(left: Range, right: Range) -> list[int]:
    return [left.low + right.low, left.high + right.high]


def _differences(left: Range, right: Range) -> list[int]:
    return [left.low - right.high, left.high - right.low]


def _products(left: Range, right: Range) -> list[int]:
    return [a * b for a in (left.low, left.high) for b in (right.low, right.high)]


def _quotients(left: Range, right: Range) -> list[int] | None:
    if left.low < 0 or right.low <= 0:
        return None
    return [left.low // right.high, left.high // right.low]


def _remainders(left: Range, right: Range) -> list[int] | None:
    if left.low < 0 or right.low <= 0:
        return None
    return [0, min(left.high, right.high - 1)]


_OPERATIONS: dict[type[ast.operator], _Ends] = {
    ast.Add: _sums,
    ast.Sub: _differences,
    ast.Mult: _products,
    ast.FloorDiv: _quotients,
    ast.Mod: _remainders,
}
