"""Integers of generated kernels: with how many bits each is computed, and its range.

A kernel's source suffices. Inductor lets a Triton kernel index with 32 bits where all sizes allow
it: a program's number, a range and an argument `i32` have 32 bits, and what is computed with one of
64 has 64. `xnumel = 11` bounds `xindex`. A subexpression whose exact range exceeds its type wraps
around. Nothing is reported about expressions that are not understood. C++ loops count in `int64_t`.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

NARROW, WIDE = 32, 64
# A literal takes on the width of the other operand.
_ANY = 0
LARGEST_NARROW = (1 << 31) - 1
_LARGEST = 1 << 200
_LONGEST = 2_000_000
_DEEPEST = 60
_INDEX = re.compile(r"([a-z]\w*?)index")
_NUMEL = re.compile(r"(?:[xyz]|r\d_)numel\Z")
_COUNTED = ("program_id", "num_programs", "arange")
_JOINED = ("where", "minimum", "maximum", "cdiv", "div_floor_integer", "remainder_integer")
_SHAPED = ("broadcast_to", "reshape", "expand_dims")
_ACCESSES = ("load", "store", "atomic_add", "atomic_or")
_SIGNATURE_WIDTHS = {"i32": NARROW, "i64": WIDE, "constexpr": _ANY}
_NARROW_LOOP = re.compile(r"\bfor\s*\(\s*(?:int|int32_t|unsigned|uint32_t|short|int16_t)\s+\w+\s*=")

Ends = tuple[int, int]


@dataclass(frozen=True)
class Integer:
    """An integer expression: the bits of its type, and its range, bounds included."""

    bits: int | None = None
    ends: Ends | None = None
    is_signed: bool = True

    @property
    def fits(self) -> bool:
        """Whether the type is known to hold the whole range."""
        if self.bits is None or self.ends is None:
            return False
        lowest = -(1 << (self.bits - 1)) if self.bits and self.is_signed else 0
        highest = (1 << self.bits) - 1 + lowest
        return self.bits == _ANY or (lowest <= self.ends[0] and self.ends[1] <= highest)


_UNKNOWN = Integer()


@dataclass(frozen=True)
class Wraparound:
    """A subexpression whose values overflow the type it is computed in."""

    text: str
    bits: int
    low: int
    high: int
    # Every index occurs once in it, so the ends of the range are reached.
    is_exact: bool


@dataclass(frozen=True)
class KernelIntegers:
    """The integers of a kernel by name. A name with conflicting widths has none."""

    known: dict[str, Integer]
    # The type that each pointer among the arguments points to.
    pointers: Mapping[str, str]
    # The axes that the kernel counts its elements along: 'x', 'y', 'r0_'. A C++ kernel has none.
    axes: tuple[str, ...] = ()

    @property
    def narrow_axes(self) -> tuple[str, ...]:
        """The axes along which elements are counted with 32 bits."""
        indices = {axis: self.known.get(f"{axis}index", _UNKNOWN) for axis in self.axes}
        return tuple(axis for axis, index in indices.items() if index.bits == NARROW)

    def of_access(self, lines: Iterable[str]) -> int | None:
        """Return the width of the index in an access that became `lines`; None if unknown."""
        for line in lines:
            call = _access_in(line)
            if call is not None and call.args:
                place = call.args[0]
                if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add):
                    index = self.value(place.right)
                    return index.bits if index.is_signed else None
        return None

    def wraps(self, line: str) -> Iterator[Wraparound]:
        """Yield the outermost subexpressions of a line that wrap around."""
        value = getattr(_parse(line), "value", None)
        if value is not None:
            yield from self._wraps(value)

    def _wraps(self, node: ast.AST) -> Iterator[Wraparound]:
        if isinstance(node, ast.BinOp):
            found = self.value(node)
            if found.bits and found.ends and not found.fits:
                names = Counter(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
                is_exact = all(count == 1 for count in names.values())
                yield Wraparound(ast.unparse(node), found.bits, *found.ends, is_exact)
                return
        for child in ast.iter_child_nodes(node):
            yield from self._wraps(child)

    # --- statements -------------------------------------------------------------------------------

    def read(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            targets = getattr(statement, "targets", [getattr(statement, "target", None)])
            name = targets[0].id if isinstance(targets[0], ast.Name) else ""
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and name and statement.value:
                self._learn(name, self.value(statement.value))
            elif isinstance(statement, ast.For):
                if name:
                    self._learn(name, self._counter(statement.iter))
                self.read(statement.body)
            elif isinstance(statement, ast.If):
                self.read((*statement.body, *statement.orelse))

    def _learn(self, name: str, value: Integer) -> None:
        index = _INDEX.fullmatch(name)
        count = self.known.get(f"{index[1]}numel", _UNKNOWN) if index else _UNKNOWN
        if count.ends is not None:
            value = replace(value, ends=(0, count.ends[0] - 1))
        bits, known = value.bits, self.known.get(name, value).bits
        # A fixed size is assigned to its own argument: `xnumel = 4096`.
        bits = known if bits == _ANY else bits if known in (bits, _ANY) else None
        self.known[name] = replace(value, bits=bits)

    def _counter(self, node: ast.expr) -> Integer:
        """Return a loop counter: it has the width of the bounds of its range."""
        if not isinstance(node, ast.Call):
            return _UNKNOWN
        return Integer(self._joined(node.args).bits or NARROW)

    # --- expressions ------------------------------------------------------------------------------

    def value(self, node: ast.expr, depth: int = 0) -> Integer:
        """Evaluate an integer expression by Triton's type promotion."""
        if depth > _DEEPEST:
            return _UNKNOWN
        if isinstance(node, ast.Constant):
            return _of_constant(node.value)
        if isinstance(node, ast.Name):
            return self.known.get(node.id, _UNKNOWN)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            left, right = (self.value(side, depth + 1) for side in (node.left, node.right))
            return _combined(_OPERATIONS[type(node.op)], left, right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.value(node.operand, depth + 1)
            if inner.ends is None or isinstance(node.op, ast.UAdd):
                return inner
            return replace(inner, ends=(-inner.ends[1], -inner.ends[0]))
        if isinstance(node, ast.Subscript):
            return self.value(node.value, depth + 1)
        return self._of_call(node, depth) if isinstance(node, ast.Call) else _UNKNOWN

    def _of_call(self, node: ast.Call, depth: int) -> Integer:
        method = _method(node)
        if method in _COUNTED:
            return Integer(NARROW)
        if method == "to" and node.args:
            assert isinstance(node.func, ast.Attribute)
            # The operand is computed in its own type.
            inner = self.value(node.func.value, depth + 1)
            return Integer(_of_type(node.args[0]), inner.ends if inner.fits else None)
        if method == "full" and len(node.args) > 2:
            return Integer(_of_type(node.args[2]))
        if method == "load" and node.args:
            return Integer(self._loaded(node.args[0]))
        if method in _JOINED:
            return self._joined(node.args[1:] if method == "where" else node.args, depth)
        if method in _SHAPED:
            assert isinstance(node.func, ast.Attribute)
            is_function = isinstance(node.func.value, ast.Name) and node.func.value.id == "tl"
            shaped = node.args[0] if is_function and node.args else node.func.value
            return self.value(shaped, depth + 1)
        return _UNKNOWN

    def _loaded(self, place: ast.expr) -> int | None:
        pointer = place.left if isinstance(place, ast.BinOp) else place
        name = pointer.id if isinstance(pointer, ast.Name) else ""
        return _SIGNATURE_WIDTHS.get(self.pointers.get(name, ""))

    def _joined(self, nodes: Iterable[ast.expr], depth: int = 0) -> Integer:
        found = [self.value(node, depth + 1) for node in nodes]
        widths = [value.bits for value in found if value.bits is not None and value.is_signed]
        return Integer(max(widths, default=_ANY)) if len(widths) == len(found) else _UNKNOWN


def kernel_integers(text: str) -> KernelIntegers | None:
    """Read the integers of a Triton kernel; None if its source cannot be parsed."""
    try:
        tree = ast.parse(text if len(text) <= _LONGEST else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    kernels = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    signature = _signature(tree)
    if not kernels or not signature:
        return None
    pointers = {name: kind[1:] for name, kind in signature.items() if kind.startswith("*")}
    known = {name: Integer(_SIGNATURE_WIDTHS.get(kind)) for name, kind in signature.items()}
    axes = tuple(name.removesuffix("numel") for name in signature if _NUMEL.match(name))
    found = KernelIntegers(known, pointers, axes)
    found.read(kernels[-1].body)
    return found


def read_index_types(text: str, language: str) -> KernelIntegers | None:
    """Read the integers of a kernel; None if no index is narrower than 64 bits."""
    if language == "C++":
        is_narrow = len(text) <= _LONGEST and _NARROW_LOOP.search(text)
        return KernelIntegers({}, {}) if is_narrow else None
    found = kernel_integers(text)
    return found if found is not None and found.narrow_axes else None


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


def _parse(line: str) -> ast.stmt | None:
    try:
        body = ast.parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body[0] if len(body) == 1 else None


def _of_constant(value: object) -> Integer:
    """Return a literal: Triton gives it the narrowest type that holds it."""
    if type(value) is not int:
        return _UNKNOWN
    ends = (value, value)
    if abs(value) <= LARGEST_NARROW:
        return Integer(_ANY, ends)
    return Integer(NARROW, ends, is_signed=False) if 0 < value < 1 << 32 else Integer(WIDE, ends)


def _of_type(node: ast.expr) -> int | None:
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return {"int32": NARROW, "int64": WIDE}.get(name)


_Combine = Callable[[Ends, Ends], "list[int] | None"]


def _combined(combine: _Combine, left: Integer, right: Integer) -> Integer:
    if left.bits is None or right.bits is None:
        return _UNKNOWN
    bits = max(left.bits, right.bits)
    is_signed = all(side.is_signed or side.bits != bits for side in (left, right))
    ends = None
    # If an operand wraps around, the range does not hold.
    if left.ends and right.ends and left.fits and right.fits:
        ends = combine(left.ends, right.ends)
    if ends is None or max(map(abs, ends)) > _LARGEST:
        return Integer(bits, None, is_signed)
    return Integer(bits, (min(ends), max(ends)), is_signed)


def _quotients(left: Ends, right: Ends) -> list[int] | None:
    return [left[0] // right[1], left[1] // right[0]] if left[0] >= 0 and right[0] > 0 else None


def _remainders(left: Ends, right: Ends) -> list[int] | None:
    return [0, min(left[1], right[1] - 1)] if left[0] >= 0 and right[0] > 0 else None


_OPERATIONS: dict[type[ast.operator], _Combine] = {
    ast.Add: lambda left, right: [left[0] + right[0], left[1] + right[1]],
    ast.Sub: lambda left, right: [left[0] - right[1], left[1] - right[0]],
    ast.Mult: lambda left, right: [one * other for one in left for other in right],
    ast.FloorDiv: _quotients,
    ast.Mod: _remainders,
}
