"""The memory accesses of a loop body, read from its text.

A body is a list of index expressions and of blocks: the main one, and one for each part that runs
only where a mask holds. Reading it line by line gives every load and store, the index it uses, and
what holds when it is made: masks around it, and bounds that the kernel asserts before it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from inductoscope.analysis.bounds.expressions import (
    Applied,
    Expression,
    Loaded,
    NotUnderstood,
    Number,
    applied,
    conjuncts,
    data_in,
    depth_of,
    from_syntax,
    has_data,
    size_of,
)

_LONGEST = 2_000_000
_MOST_NESTED = 12
# A clamp around data is worth knowing; past that, values only become more and more.
_DEEPEST_DATA = 8
_DEEPEST = 40
_LARGEST = 2000
# A masked block is read once for each call of it.
_MOST_LINES = 50_000
_STORES = ("store", "store_reduction")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint16", "uint8", "bool")
# What fits into the types that indices of ordinary tensors do not fit into.
_SMALL = {
    "bool": (0, 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int8": (-128, 127),
    "uint16": (0, (1 << 16) - 1),
    "uint8": (0, 255),
}
_TRUTHS = ("and", "eq", "ge", "gt", "le", "lt", "ne", "not", "or")
# Of integers, these are no questions of true and false.
_BITWISE = ("and_", "bitwise_and", "bitwise_or", "or_")

# What an operation on values means for an index that is computed from them.
_VALUES = {
    "abs": "abs",
    "add": "add",
    "and_": "and",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "ceil": "ceil",
    "eq": "eq",
    "floor": "floor",
    "floordiv": "floordiv",
    "ge": "ge",
    "gt": "gt",
    "le": "le",
    "logical_and": "and",
    "logical_not": "not",
    "logical_or": "or",
    "lt": "lt",
    "maximum": "max",
    "minimum": "min",
    "mod": "mod",
    "mul": "mul",
    "ne": "ne",
    "or_": "or",
    "remainder": "mod",
    "sub": "sub",
    "trunc": "trunc",
    "where": "where",
}


@dataclass(frozen=True)
class MemoryAccess:
    """One load or store of a loop body."""

    operation: str
    # The name that its line gives to the result.
    line: str
    buffer: str
    index: Expression
    # All of these hold when it is made.
    conditions: tuple[Expression, ...]
    # It addresses more than the index says, as a search does.
    is_search: bool = False


@dataclass(frozen=True)
class IndexFromValue:
    """A value that became a variable of indices."""

    line: str
    variable: str
    value: Expression

    @property
    def buffers(self) -> tuple[str, ...]:
        """Where the value comes from."""
        return data_in(self.value)


@dataclass(frozen=True)
class LoopBody:
    """What a loop body says of memory."""

    ranges: Mapping[str, Expression]
    accesses: tuple[MemoryAccess, ...]
    from_values: tuple[IndexFromValue, ...]


def read_body(text: str) -> LoopBody:
    """The accesses of a recorded loop body; raises NotUnderstood where it is none."""
    if len(text) > _LONGEST:
        raise NotUnderstood("a loop body that is too long")
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotUnderstood("a loop body that cannot be read") from error
    assigned = {
        statement.targets[0].id: statement.value
        for statement in statements
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    blocks = {item.name: item.body for item in statements if isinstance(item, ast.FunctionDef)}
    if "body" not in blocks:
        raise NotUnderstood("a loop body without a main block")
    reader = _Reader(assigned, blocks)
    reader.read_block("body", (), 0)
    return LoopBody(_ranges(assigned), tuple(reader.accesses), tuple(reader.from_values))


def _ranges(assigned: Mapping[str, ast.expr]) -> dict[str, Expression]:
    node = assigned.get("var_ranges")
    if not isinstance(node, ast.Dict):
        raise NotUnderstood("a loop body without ranges")
    pairs = zip(node.keys, node.values, strict=True)
    return {key.id: from_syntax(value) for key, value in pairs if isinstance(key, ast.Name)}


@dataclass
class _Reader:
    """Follows the lines of the blocks in the order in which a kernel runs them."""

    assigned: Mapping[str, ast.expr]
    blocks: Mapping[str, list[ast.stmt]]
    accesses: list[MemoryAccess] = field(default_factory=list)
    from_values: list[IndexFromValue] = field(default_factory=list)
    lines: int = 0

    def read_block(self, name: str, conditions: tuple[Expression, ...], depth: int) -> Expression:
        """Read one block; returns the value that it gives."""
        if depth > _MOST_NESTED:
            raise NotUnderstood("masks that are nested too deeply")
        block = _BlockReader(self, {}, conditions, depth)
        result: Expression = Loaded("")
        for statement in self.blocks.get(name, ()):
            self.lines += 1
            if self.lines > _MOST_LINES:
                raise NotUnderstood("a loop body with too many lines")
            if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name):
                result = block.values.get(statement.value.id, Loaded(""))
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                line = statement.targets[0].id
                block.values[line] = block.read_line(line, statement.value)
        return result

    def index(self, name: str) -> Expression:
        """The expression under a name."""
        if name not in self.assigned:
            raise NotUnderstood(f"an index {name[:40]} that is not there")
        return from_syntax(self.assigned[name])


@dataclass
class _BlockReader:
    reader: _Reader
    values: dict[str, Expression]
    conditions: tuple[Expression, ...]
    depth: int

    def read_line(self, line: str, node: ast.expr) -> Expression:
        """Take note of what a line does; returns its value."""
        if not isinstance(node, ast.Call):
            return Loaded("")
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            owner, method = node.func.value.id, node.func.attr
            if owner == "ops":
                return self._operation(line, method, node)
            if owner == "self":
                return self._own(line, method, node)
        return self._unknown(node)

    def _own(self, line: str, method: str, node: ast.Call) -> Expression:
        if method == "get_index":
            return self.reader.index(_text(node.args[0] if node.args else None))
        if method.startswith("set_indirect") and node.args:
            value = self._value(node.args[0])
            variable = method.removeprefix("set_")
            self.reader.from_values.append(IndexFromValue(method, variable, value))
            return Loaded("")
        if method in self.reader.blocks and node.args:
            return self._masked(method, node)
        return self._unknown(node)

    def _masked(self, method: str, node: ast.Call) -> Expression:
        mask = self._value(node.args[0])
        inner = (*self.conditions, *conjuncts(mask))
        value = self.reader.read_block(method, inner, self.depth + 1)
        other = self._value(node.args[1]) if len(node.args) > 1 else Loaded("")
        return self._kept(Applied("where", (mask, value, other)), node)

    def _operation(self, line: str, name: str, node: ast.Call) -> Expression:
        if name == "load" or name in _STORES:
            return self._access(name, line, node)
        if name == "load_seed" and len(node.args) > 1:
            index = self._value(node.args[1])
            self._note(MemoryAccess(name, line, _text(node.args[0]), index, self.conditions))
            return Loaded("")
        if name == "bucketize":
            return self._search(line, node)
        if name == "check_bounds" and len(node.args) > 1:
            self.conditions = (*self.conditions, *self._asserted(node))
            return Loaded("")
        if name in ("index_expr", "value_expr", "constant", "to_dtype") and node.args:
            return self._typed(name, node)
        return self._computed(name, node)

    def _access(self, name: str, line: str, node: ast.Call) -> Expression:
        if len(node.args) < 2:
            raise NotUnderstood(f"{name} without an index")
        buffer, index = _text(node.args[0]), self._value(node.args[1])
        self._note(MemoryAccess(name, line, buffer, index, self.conditions))
        return Loaded(buffer, is_plain=True)

    def _search(self, line: str, node: ast.Call) -> Expression:
        table = node.args[1] if len(node.args) > 1 else None
        name = _text(table.elts[0]) if isinstance(table, ast.Tuple) and table.elts else ""
        access = MemoryAccess("bucketize", line, name, Loaded(""), self.conditions, is_search=True)
        self._note(access)
        return Loaded(name)

    def _note(self, access: MemoryAccess) -> None:
        self.reader.accesses.append(access)

    def _asserted(self, node: ast.Call) -> Iterator[Expression]:
        """What the kernel makes sure of before it goes on."""
        index, size = self._value(node.args[0]), self._value(node.args[1])
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        flags = [*node.args[2:4]]
        lower, upper = (
            _is_true(flags[number] if len(flags) > number else given.get(name))
            for number, name in enumerate(("lower", "upper"))
        )
        if lower:
            yield Applied("ge", (index, Number(0)))
        if upper:
            yield Applied("lt", (index, size))

    # --- values -----------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.Name):
            return self.values.get(node.id, Loaded(""))
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            # Minus infinity pads a maximum: a value like others, but none to compute with.
            return Number(node.value) if math.isfinite(node.value) else Loaded("")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._value(node.operand)
            return Number(-inner.value) if isinstance(inner, Number) else Loaded("")
        return Loaded("")

    def _typed(self, name: str, node: ast.Call) -> Expression:
        """A value with a type. One with a fraction is rounded in ways only the kernel knows."""
        value = self._value(node.args[0])
        kind = _type(node)
        if name == "to_dtype" and kind in _INTEGERS and _is_rounded(value):
            return self._kept(Applied("trunc", (value,)), node)
        if kind in _INTEGERS:
            return self._unknown(node) if _may_change(value, kind) else value
        if isinstance(value, Number):
            return value
        return self._kept(Applied("rounded", (value,)), node)

    def _computed(self, name: str, node: ast.Call) -> Expression:
        operands = tuple(self._value(operand) for operand in node.args)
        operation = _VALUES.get(name)
        if operation is None or node.keywords:
            return self._unknown(node)
        if operation == "sub" and len(operands) == 2:
            operation = "add"
            operands = (operands[0], Applied("mul", (Number(-1), operands[1])))
        if name in _BITWISE and not _is_logical(operation, operands):
            return self._unknown(node)
        found = applied(operation, operands)
        is_arithmetic = operation in ("add", "mul", "max", "min", "where")
        if is_arithmetic and _is_rounded(found):
            found = Applied("rounded", (found,))
        return self._kept(found, node)

    def _kept(self, found: Expression, node: ast.Call) -> Expression:
        """The value, unless it is larger than anybody can use."""
        is_deep = depth_of(found) > (_DEEPEST_DATA if has_data(found) else _DEEPEST)
        return self._unknown(node) if is_deep or size_of(found) > _LARGEST else found

    def _unknown(self, node: ast.Call) -> Expression:
        """Some value, of the buffers that it was computed from."""
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        known = [self.values[name] for name in names if name in self.values]
        buffers = [buffer for value in known for buffer in data_in(value)]
        return Loaded(buffers[0] if buffers else "")


def _is_logical(operation: str, operands: tuple[Expression, ...]) -> bool:
    """Whether an operation on bits is one of true and false.

    With an unknown value, `and` can only be zero or unknown, and says as much of its operands.
    """
    is_and = operation == "and"
    return all(_is_truth(one) or (is_and and isinstance(one, Loaded)) for one in operands)


def _is_truth(value: Expression) -> bool:
    """Whether it is true or false, and nothing else."""
    if isinstance(value, Number):
        return isinstance(value.value, bool)
    return isinstance(value, Applied) and value.operation in _TRUTHS


def _may_change(value: Expression, kind: str) -> bool:
    """Whether a type is so small that a value may not fit."""
    limits = _SMALL.get(kind)
    if limits is None or _is_truth(value):
        return False
    return not (isinstance(value, Number) and limits[0] <= value.value <= limits[1])


@lru_cache(maxsize=1 << 14)
def _is_rounded(value: Expression) -> bool:
    """Whether it can have a fraction."""
    if isinstance(value, Number):
        return isinstance(value.value, float)
    if not isinstance(value, Applied):
        return False
    if value.operation in ("trunc", "ceil", "floor"):
        return False
    return value.operation in ("rounded", "truediv") or any(map(_is_rounded, value.operands))


def _type(node: ast.Call) -> str:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    found = node.args[1] if len(node.args) > 1 else given.get("dtype")
    return found.attr if isinstance(found, ast.Attribute) else ""


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _text(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise NotUnderstood("a line without the name that it needs")
