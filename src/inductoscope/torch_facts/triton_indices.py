"""Index arithmetic of generated kernels: the type, width and range of each part.

A kernel's source suffices: `xnumel = 11` bounds `xindex`, a cast widens a value, and Triton's type
promotion gives all other types. A subexpression whose exact range exceeds its type wraps around.
Nothing is reported about expressions that are not understood.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_INDEX = re.compile(r"([a-z]\w*?)index")
_LARGEST = 1 << 200


@dataclass(frozen=True)
class Range:
    """The range of an integer expression, bounds included, and the type it is computed in."""

    low: int
    high: int
    bits: int = 32
    is_signed: bool = True

    @property
    def fits(self) -> bool:
        """Whether the type can hold the whole range."""
        lowest = -(1 << (self.bits - 1)) if self.is_signed else 0
        highest = (1 << (self.bits - 1)) - 1 if self.is_signed else (1 << self.bits) - 1
        return lowest <= self.low and self.high <= highest


@dataclass(frozen=True)
class Wraparound:
    """A subexpression whose values overflow the type it is computed in."""

    text: str
    range: Range
    # Every index occurs once in it, so the ends of the range are reached.
    is_exact: bool


@dataclass
class KernelIndices:
    """The value ranges of the indices of one kernel."""

    known: dict[str, Range] = field(default_factory=dict)
    _wide: set[str] = field(default_factory=set)

    def wraps(self, line: str) -> Iterator[Wraparound]:
        """Yield the outermost subexpressions of a line that wrap around."""
        statement = _parse(line)
        value = getattr(statement, "value", None)
        if value is not None:
            yield from self._wraps(value)

    def _wraps(self, node: ast.AST) -> Iterator[Wraparound]:
        if isinstance(node, ast.BinOp):
            found = self.range_of(node)
            if found is not None and not found.fits:
                is_exact = all(count == 1 for count in _names(node).values())
                yield Wraparound(ast.unparse(node), found, is_exact)
                return
        for child in ast.iter_child_nodes(node):
            yield from self._wraps(child)

    def learn(self, statement: ast.stmt) -> None:
        """Record the range of the variable that a statement assigns."""
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
        """Return the range of an expression; None if it is not understood."""
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
        # If a subexpression wraps around, the range does not hold.
        if not left.fits or not right.fits:
            return None
        ends = combine(left, right)
        if ends is None or max(map(abs, ends)) > _LARGEST:
            return None
        widest = max(left.bits, right.bits)
        signed = all(r.is_signed or r.bits < widest for r in (left, right))
        return Range(min(ends), max(ends), widest, signed)

    def _cast(self, node: ast.Call) -> Range | None:
        """Return the range of `(…).to(tl.int64)`, whose operand is computed in its own type."""
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr != "to" or not node.args:
            return None
        inner = self.range_of(function.value)
        bits = {"tl.int64": 64, "tl.int32": 32}.get(ast.unparse(node.args[0]))
        if inner is None or bits is None or not inner.fits:
            return None
        return Range(inner.low, inner.high, bits)


def kernel_indices(source: str) -> KernelIndices:
    """Parse the index arithmetic of a Triton kernel from its source."""
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
    """Return the range of a literal: Triton gives it the narrowest type that holds it."""
    for bits, is_signed in ((32, True), (32, False), (64, True)):
        found = Range(value, value, bits, is_signed)
        if found.fits:
            return found
    return None


_Ends = Callable[[Range, Range], "list[int] | None"]


def _quotients(left: Range, right: Range) -> list[int] | None:
    if left.low < 0 or right.low <= 0:
        return None
    return [left.low // right.high, left.high // right.low]


def _remainders(left: Range, right: Range) -> list[int] | None:
    if left.low < 0 or right.low <= 0:
        return None
    return [0, min(left.high, right.high - 1)]


_OPERATIONS: dict[type[ast.operator], _Ends] = {
    ast.Add: lambda left, right: [left.low + right.low, left.high + right.high],
    ast.Sub: lambda left, right: [left.low - right.high, left.high - right.low],
    ast.Mult: lambda left, right: [
        one * other for one in (left.low, left.high) for other in (right.low, right.high)
    ],
    ast.FloorDiv: _quotients,
    ast.Mod: _remainders,
}


# --- With how many bits a generated kernel computes its indices, read from its text ---------------
#
# Inductor lets a Triton kernel index with 32 bits where all sizes allow it. The text says so in the
# way Triton understands it: a program's number, a range and an argument `i32` have 32 bits; what is
# computed with one of 64 has 64. C++ loops count in `int64_t`.

NARROW, WIDE = 32, 64
# A literal takes on the width of the other operand.
_ANY = 0
LARGEST_NARROW = (1 << 31) - 1
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
    """The bit widths of a kernel's integers; None where one is unknown."""

    widths: Mapping[str, int | None] = field(default_factory=dict)
    pointers: Mapping[str, str] = field(default_factory=dict)
    # Axes that count their elements with 32 bits: 'x', 'y', 'r0_'.
    narrow_axes: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()

    def of_access(self, lines: Iterable[str]) -> int | None:
        """Return the width of the index in an access that became `lines`; None if unknown."""
        reader = _WidthReader(dict(self.widths), self.pointers)
        for line in lines:
            call = _access_in(line)
            if call is not None and call.args:
                place = call.args[0]
                if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add):
                    return reader.width(place.right)
        return None


def read_index_types(text: str, language: str) -> IndexTypes | None:
    """Parse the index types of a kernel; None if no index is narrower than 64 bits."""
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
    """Return the types of the arguments, from the decorator that Inductor writes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "signature":
                with contextlib.suppress(ValueError, TypeError, AttributeError):
                    found = ast.literal_eval(value).items()
                    return {str(name): kind for name, kind in found if isinstance(kind, str)}
    return {}


def _access_in(line: str) -> ast.Call | None:
    statement = _parse(line)
    for node in ast.walk(statement) if statement else ():
        if isinstance(node, ast.Call) and _method(node) in _ACCESSES:
            return node
    return None


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


@dataclass
class _WidthReader:
    """Evaluates the widths of a kernel's variables; None for one with conflicting widths."""

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
        # A fixed size is assigned to its own argument: `xnumel = 4096`.
        self.widths[name] = width if known in (width, _ANY) else known if width == _ANY else None

    def _counter(self, node: ast.expr) -> int | None:
        """Return the width of a loop counter: that of the bounds of its range."""
        if not isinstance(node, ast.Call):
            return None
        return self._joined(node.args) or NARROW

    def width(self, node: ast.expr, depth: int = 0) -> int | None:
        """Return the width of an integer expression; None if unknown."""
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
    return _ANY if abs(value) <= LARGEST_NARROW else WIDE


def _of_type(node: ast.expr) -> int | None:
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return {"int32": NARROW, "int64": WIDE}.get(name)
