"""Loop bodies and IR functions as expressions, and the memory accesses of loop bodies.

An FX node's IR function computes everything below it that was not stored. What the node itself
contributed are the expressions that none of its inputs' functions have. The same expressions are
then found in the loop body of the fused node, although names and indices differ there: loads are
told apart by buffer alone, constants by value, everything else by operation and operands. What
is computed from constants alone is a constant, because the loop body has it worked out.

Long operands are stood for by a digest: written out, an expression that uses its operand twice
would double in length with every line.
"""

from __future__ import annotations

import ast
import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from inductoscope.torch_facts.index_expressions import (
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

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.USub: "neg",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.Invert: "invert",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}

_WORKED_OUT: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "maximum": max,
    "minimum": min,
}

_STORES = ("store", "store_reduction")
_LOADS = ("load", "load_indirect")
_LONGEST_OPERAND = 80


@dataclass(frozen=True)
class Step:
    """A line of a loop body: its variable, its text and the value it computes.

    The name of a variable in a masked block is qualified: 'masked_subblock1.load'.
    """

    name: str
    text: str
    # Empty if not needed: the recording tells whose line it is.
    expression: str = ""
    # The same expression with computed indices treated like plain ones.
    direct: str = ""
    # The line number, from 0.
    number: int = 0

    @property
    def gathers(self) -> bool:
        """Whether the line loads at a computed index (gather)."""
        return self.expression.startswith("load_indirect(")


@dataclass(frozen=True)
class _Operation:
    """The operation of one line, before its names are resolved.

    Operands are operations, names, or literal texts.
    """

    name: str
    operands: tuple[_Operation | _Name | str, ...]
    # Infix operators occur on values and on indices; only values count as computing.
    is_infix: bool = False


class _Name(str):
    """A name whose value an earlier line may have computed."""


# The same body is requested once per operation in it.
@lru_cache(maxsize=4096)
def steps_of(source: str) -> tuple[Step, ...]:
    """Return the computing lines of an IR function or loop body; skip lines that do not parse."""
    known: dict[str, str] = {}
    direct: dict[str, str] = {}
    steps: list[Step] = []
    indices = _Indices(source)
    for number, (name, line) in enumerate(named_lines(source)):
        text = line.strip()
        found = _parse(indices.written_plainly(text))
        expression = _expression(found[1], known) if found else None
        if found and expression is not None:
            known[found[0]] = _short(expression)
            plain = expression
            if indices.some_computed:
                plain = (_expression(found[1], direct) or "").replace("load_indirect(", "load(", 1)
                direct[found[0]] = _short(plain)
            steps.append(Step(name, text, expression, plain, number))
    return tuple(steps)


_GET_INDEX = re.compile(r"(\w+) = self\.get_index\('(\w+)'\)")
_INDEX_EXPR = re.compile(r"ops\.index_expr\((?!-?\d+,)(.+), (torch\.\w+)\)")
_INDIRECT = re.compile(r"^(\w+) = .*\bindirect\d+", re.MULTILINE)
_LOAD = re.compile(r"ops\.load\(('?\w+'?), (.+)\)")
_COMPUTED = re.compile(r"\btmp\d+")


class _Indices:
    """Normalized indices of one source: every source names the variables differently.

    Computed indices, as in a gather, are distinguished from plain ones. An index used as a value,
    as in an arange, is identified only if it is the single one in its source.
    """

    def __init__(self, source: str) -> None:
        self._named = dict(_GET_INDEX.findall(source))
        self._indirect = set(_INDIRECT.findall(source))
        written = {self._named.get(index, index) for index, _ in _INDEX_EXPR.findall(source)}
        self._has_one = len(written) == 1
        self.some_computed = any(self._is_computed(one) for _, one in _LOAD.findall(source))

    def written_plainly(self, line: str) -> str:
        """Rewrite a source line with normalized indices."""
        if self._has_one and "index_expr" in line:
            line = _INDEX_EXPR.sub(r"ops.index_expr('index', \2)", line)
        load = _LOAD.search(line)
        if load and self._is_computed(load[2]):
            line = line.replace(load[0], f"ops.load_indirect({load[1]})")
        return line

    def _is_computed(self, index: str) -> bool:
        return self._named.get(index, "") in self._indirect or bool(_COMPUTED.search(index))


def steps_called(body: str, names: Iterable[str]) -> tuple[Step, ...]:
    """Return the lines of a loop body with these names."""
    known = _numbers_by_name(body)
    lines = named_lines(body)
    numbers = sorted(number for name in dict.fromkeys(names) for number in known.get(name, ()))
    return tuple(
        Step(lines[number][0], lines[number][1].strip(), number=number) for number in numbers
    )


@lru_cache(maxsize=4096)
def _numbers_by_name(body: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, (name, _) in enumerate(named_lines(body)):
        found.setdefault(name, []).append(number)
    return found


_BLOCK = re.compile(r"def (\w+)\(")


@lru_cache(maxsize=4096)
def named_lines(source: str) -> tuple[tuple[str, str], ...]:
    """Return the lines of a loop body, each after its block and the name it assigns."""
    block = ""
    found = []
    for line in source.split("\n"):
        begins = _BLOCK.match(line) if line.startswith("def ") else None
        if begins:
            block = "" if begins[1] == "body" else f"{begins[1]}."
        found.append((block + line.strip().partition(" = ")[0], line))
    return tuple(found)


_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{0,20})?(?:e[+-]?\d\d)?")


# Bodies of one model have many lines in common.
@lru_cache(maxsize=1 << 16)
def _parse(line: str) -> tuple[str, _Operation] | None:
    """Split a line into the name it assigns and its operation; None if it computes nothing."""
    try:
        body = ast.parse(line).body
        statement = body[0] if len(body) == 1 else None
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            operation = _operation(statement.value)
            return None if operation is None else (statement.targets[0].id, operation)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        pass
    return None


def _operation(node: ast.expr) -> _Operation | None:
    """Parse a right-hand side; None if it is neither an `ops` call nor an infix operation."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id == "ops":
            return _Operation(node.func.attr, tuple(map(_operand, node.args)))
        return None
    if isinstance(node, ast.BinOp):
        return _infix(node.op, node.left, node.right)
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        return _infix(node.op, node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _infix(node.ops[0], node.left, node.comparators[0])
    return None


def _infix(sign: ast.AST, *operands: ast.expr) -> _Operation:
    name = _OPERATORS.get(type(sign), type(sign).__name__)
    return _Operation(name, tuple(map(_operand, operands)), is_infix=True)


def _operand(node: ast.expr) -> _Operation | _Name | str:
    if isinstance(node, ast.Name):
        return _Name(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return str(float(node.value))
    operation = _operation(node)
    if operation is not None:
        return operation
    text = ast.unparse(node)  # A negative number is an operation on a constant.
    return str(float(text)) if _NUMBER.fullmatch(text) else text


def _expression(operation: _Operation, known: dict[str, str]) -> str | None:
    """Return the expression of an operation, with its operands inlined."""
    name, operands = operation.name, operation.operands
    if operation.is_infix:
        inner = [_value(operand, known) for operand in operands]
        # Index arithmetic only combines names that are not values.
        return _computed(name, inner) if set(inner) & set(known.values()) else None
    if name == "index_expr" and operands and _NUMBER.fullmatch(str(operands[0])):
        name = "constant"  # The scheduler writes an index that is a number as one.
    if name in _LOADS:
        return f"{name}({_plain(operands[0]) if operands else ''})"
    if name in _STORES:
        value = _value(operands[2], known) if len(operands) > 2 else ""
        return f"{name}({_plain(operands[0]) if operands else ''}, {value})"
    return _computed(name, [_value(operand, known) for operand in operands])


_CONSTANT = re.compile(r"constant\((-?\d[\d.]*(?:e[+-]?\d+)?), ([\w.]+)\)")


def _computed(name: str, operands: list[str]) -> str:
    constants = [_CONSTANT.fullmatch(operand) for operand in operands]
    if name in _WORKED_OUT and len(constants) == 2 and constants[0] and constants[1]:
        (first, dtype), (second, other) = constants[0].groups(), constants[1].groups()
        if dtype == other and (float(second) or name != "truediv"):
            return f"constant({_WORKED_OUT[name](float(first), float(second))}, {dtype})"
    return f"{name}({', '.join(operands)})"


def _value(operand: _Operation | _Name | str, known: dict[str, str]) -> str:
    if isinstance(operand, _Operation):
        return _short(_expression(operand, known) or _plain(operand))
    return known.get(operand, operand) if isinstance(operand, _Name) else operand


def _plain(operand: _Operation | _Name | str) -> str:
    if isinstance(operand, _Operation):
        return f"{operand.name}({', '.join(_plain(inner) for inner in operand.operands)})"
    return str(operand)


def _short(expression: str) -> str:
    if len(expression) <= _LONGEST_OPERAND:
        return expression
    data = expression.encode("utf-8", "backslashreplace")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def own_expressions(function: str, inputs: Iterable[str]) -> frozenset[str]:
    """Return the expressions that an IR function computes and its inputs' functions do not.

    Expressions of an input at a computed index still belong to the input.
    """
    below = {step.expression for source in inputs for step in steps_of(source)}
    return frozenset(
        step.expression
        for step in steps_of(function)
        if step.expression not in below and (step.gathers or step.direct not in below)
    )


def matching_steps(
    body: str, expressions: frozenset[str], *, stores: Iterable[str] = (), reduces: bool = False
) -> tuple[Step, ...]:
    """Return the lines of a loop body that compute `expressions` or store `stores`.

    `reduces`: the node is a reduction that ends in this body, so the reducing line is its own;
    an IR function ends just before it.
    """
    prefixes = [f"{kind}({name}," for kind in _STORES for name in stores]
    if reduces:
        prefixes.append("reduction(")
    steps = steps_of(body)
    elsewhere = expressions - {step.expression for step in steps}
    return tuple(
        step
        for step in steps
        if step.expression in expressions
        or (step.direct in elsewhere and not step.gathers)
        or step.expression.startswith(tuple(prefixes))
    )


# --- The indices of a loop body, as torch prints them ---------------------------------------------

_PRINTED = re.compile(
    r"^(?:var_ranges = \{(?P<ranges>.*)\}|(?P<index>index\d+) = (?P<sum>.*)"
    r"|\s+(?P<line>\w+) = (?:self\.get_index\('(?P<got>\w+)'\)"
    r"|ops\.(?P<operation>\w+)\('(?P<buffer>[^']*)', (?P<at>\w+)[,)].*))$",
    re.MULTILINE,
)
_LENGTH = re.compile(r"(\w+): (\d{1,18})(?=,|$)")
_TERM = re.compile(r"(?:(\d{1,18})\*)?([A-Za-z_]\w*)|(\d{1,18})")


@dataclass(frozen=True)
class PrintedAccess:
    """A line that loads or stores; its index is empty if it is none of the printed ones."""

    line: str
    operation: str
    buffer: str
    index: str


@dataclass(frozen=True)
class PrintedBody:
    """The ranges and indices of a loop body as text, which takes far less time than a parse."""

    ranges: str
    accesses: tuple[PrintedAccess, ...]

    def indices(self, buffer: str, *, loads: bool) -> tuple[str, ...]:
        """Return the places at which the body loads from a buffer, or stores to it."""
        found = (
            access.index or "a data-dependent place"
            for access in self.accesses
            if access.buffer == buffer and access.operation.startswith("load") is loads
        )
        return tuple(dict.fromkeys(found))


# Several rules read the bodies of a whole recording, one after the other.
@lru_cache(maxsize=1 << 16)
def printed_body(text: str) -> PrintedBody:
    """Find the printed indices of a loop body by patterns; skip what matches none."""
    ranges = ""
    sums: dict[str, str] = {}
    got: dict[str, str] = {}
    accesses = []
    for found in _PRINTED.finditer(text):
        if found["index"]:
            sums[found["index"]] = found["sum"]
        elif found["got"]:
            got[found["line"]] = sums.get(found["got"], "")
        elif found["operation"]:
            line, operation, buffer, at = found.group("line", "operation", "buffer", "at")
            accesses.append(PrintedAccess(line, operation, buffer, got.get(at, "")))
        else:
            ranges = found["ranges"]
    return PrintedBody(ranges, tuple(accesses))


def read_lengths(ranges: str) -> dict[str, int]:
    """Parse the loop variables whose length is a number: 'p0: 64, p1: 128'."""
    return {name: int(length) for name, length in _LENGTH.findall(ranges)}


def read_sum(index: str, lengths: Mapping[str, int]) -> tuple[int, list[tuple[int, int]]] | None:
    """Parse a sum of constants times loop variables: its least value, and all steps and counts.

    Return None for any other index. A negative step is a positive one from the other end.
    """
    least, steps = 0, []
    for part in index.replace(" - ", " + -").split(" + "):
        sign = -1 if part.startswith("-") else 1
        match = _TERM.fullmatch(part.removeprefix("-"))
        if match is None:
            return None
        if match[3]:
            least += sign * int(match[3])
            continue
        count, step = lengths.get(match[2]), int(match[1] or 1)
        if not count or not step:
            return None
        least -= step * (count - 1) if sign < 0 else 0
        steps.append((step, count))
    return least, steps


# --- The memory accesses of a loop body, read from its text ---------------------------------------
#
# A body is a list of index expressions and of blocks: the main one, and one for each part that
# runs only where a mask holds. Reading it line by line gives every load and store, the index it
# uses, and what holds when it is made: masks around it, and bounds that the kernel asserts before
# it.

_LONGEST = 2_000_000
_MOST_NESTED = 12
# A clamp around data is useful; deeper expressions only grow.
_DEEPEST_DATA = 8
_DEEPEST = 40
_LARGEST = 2000
# A masked block is read once for each call of it.
_MOST_LINES = 50_000
_INTEGERS = ("int64", "int32", "int16", "int8", "uint16", "uint8", "bool")
# The ranges of types too narrow for the indices of ordinary tensors.
_SMALL = {
    "bool": (0, 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int8": (-128, 127),
    "uint16": (0, (1 << 16) - 1),
    "uint8": (0, 255),
}
_TRUTHS = ("and", "eq", "ge", "gt", "le", "lt", "ne", "not", "or")
# On integers, these operations are bitwise, not logical.
_BITWISE = ("and_", "bitwise_and", "bitwise_or", "or_")

# The meaning of value operations for an index that is computed from values.
_VALUES = {
    **{name: name for name in ("abs", "add", "mul", "sub", "floordiv", "mod", "where")},
    **{name: name for name in ("ceil", "floor", "trunc")},
    **{name: name for name in ("eq", "ge", "gt", "le", "lt", "ne")},
    **dict.fromkeys(("and_", "bitwise_and", "logical_and"), "and"),
    **dict.fromkeys(("or_", "bitwise_or", "logical_or"), "or"),
    "logical_not": "not",
    "maximum": "max",
    "minimum": "min",
    "remainder": "mod",
}


@dataclass(frozen=True)
class MemoryAccess:
    operation: str
    # The name of the result in its line.
    line: str
    buffer: str
    index: Expression
    # Conditions that hold whenever the access is made.
    conditions: tuple[Expression, ...]
    # Whether it addresses more than the index, as a search does.
    is_search: bool = False


@dataclass(frozen=True)
class IndexFromValue:
    """A value that became an index variable (indirect indexing)."""

    line: str
    variable: str
    value: Expression

    @property
    def buffers(self) -> tuple[str, ...]:
        return data_in(self.value)


@dataclass(frozen=True)
class LoopBody:
    ranges: Mapping[str, Expression]
    accesses: tuple[MemoryAccess, ...]
    from_values: tuple[IndexFromValue, ...]


def read_body(text: str) -> LoopBody:
    """Parse the accesses of a recorded loop body; raise NotUnderstood if there is none."""
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
    reader.read_block("body", ())
    return LoopBody(_ranges(assigned), tuple(reader.accesses), tuple(reader.from_values))


def _ranges(assigned: Mapping[str, ast.expr]) -> dict[str, Expression]:
    node = assigned.get("var_ranges")
    if not isinstance(node, ast.Dict):
        raise NotUnderstood("a loop body without ranges")
    pairs = zip(node.keys, node.values, strict=True)
    return {key.id: from_syntax(value) for key, value in pairs if isinstance(key, ast.Name)}


@dataclass
class _Reader:
    """Evaluates the lines of the blocks in the order in which a kernel executes them."""

    assigned: Mapping[str, ast.expr]
    blocks: Mapping[str, list[ast.stmt]]
    accesses: list[MemoryAccess] = field(default_factory=list)
    from_values: list[IndexFromValue] = field(default_factory=list)
    lines: int = 0
    # Of the block that is being read.
    values: dict[str, Expression] = field(default_factory=dict)
    conditions: tuple[Expression, ...] = ()
    depth: int = 0

    def read_block(self, name: str, conditions: tuple[Expression, ...]) -> Expression:
        if self.depth > _MOST_NESTED:
            raise NotUnderstood("masks that are nested too deeply")
        outer = self.values, self.conditions, self.depth
        self.values, self.conditions, self.depth = {}, conditions, self.depth + 1
        result: Expression = Loaded("")
        for statement in self.blocks.get(name, ()):
            self.lines += 1
            if self.lines > _MOST_LINES:
                raise NotUnderstood("a loop body with too many lines")
            if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name):
                result = self.values.get(statement.value.id, Loaded(""))
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                line = statement.targets[0].id
                self.values[line] = self.read_line(line, statement.value)
        self.values, self.conditions, self.depth = outer
        return result

    def read_line(self, line: str, node: ast.expr) -> Expression:
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
            name = _text(node.args[0] if node.args else None)
            if name not in self.assigned:
                raise NotUnderstood(f"an index {name[:40]} that is not there")
            return from_syntax(self.assigned[name])
        if method.startswith("set_indirect") and node.args:
            value = self._value(node.args[0])
            variable = method.removeprefix("set_")
            self.from_values.append(IndexFromValue(method, variable, value))
            return Loaded("")
        if method in self.blocks and node.args:
            return self._masked(method, node)
        return self._unknown(node)

    def _masked(self, method: str, node: ast.Call) -> Expression:
        mask = self._value(node.args[0])
        inner = (*self.conditions, *conjuncts(mask))
        value = self.read_block(method, inner)
        other = self._value(node.args[1]) if len(node.args) > 1 else Loaded("")
        return self._kept(Applied("where", (mask, value, other)), node)

    def _operation(self, line: str, name: str, node: ast.Call) -> Expression:
        if name == "load" or name in _STORES:
            return self._access(name, line, node)
        if name == "load_seed" and len(node.args) > 1:
            index = self._value(node.args[1])
            self._note(name, line, _text(node.args[0]), index)
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
        self._note(name, line, buffer, index)
        return Loaded(buffer, is_plain=True)

    def _search(self, line: str, node: ast.Call) -> Expression:
        table = node.args[1] if len(node.args) > 1 else None
        name = _text(table.elts[0]) if isinstance(table, ast.Tuple) and table.elts else ""
        self._note("bucketize", line, name, Loaded(""), is_search=True)
        return Loaded(name)

    def _note(
        self, name: str, line: str, buffer: str, index: Expression, *, is_search: bool = False
    ) -> None:
        found = MemoryAccess(name, line, buffer, index, self.conditions, is_search)
        self.accesses.append(found)

    def _asserted(self, node: ast.Call) -> Iterator[Expression]:
        """Return the bounds that the kernel asserts before it continues."""
        index, size = self._value(node.args[0]), self._value(node.args[1])
        flags = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        flags.update(zip(("lower", "upper"), node.args[2:4], strict=False))
        if _is_true(flags.get("lower")):
            yield Applied("ge", (index, Number(0)))
        if _is_true(flags.get("upper")):
            yield Applied("lt", (index, size))

    # --- values -----------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.Name):
            return self.values.get(node.id, Loaded(""))
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            # Minus infinity pads a maximum: a legal value, but not one to compute with.
            return Number(node.value) if math.isfinite(node.value) else Loaded("")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._value(node.operand)
            return Number(-inner.value) if isinstance(inner, Number) else Loaded("")
        return Loaded("")

    def _typed(self, name: str, node: ast.Call) -> Expression:
        """Cast a value to a type. How a fractional value is rounded is up to the kernel."""
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
        """Return the value, or an unknown one if the expression has grown too large to use."""
        is_deep = depth_of(found) > (_DEEPEST_DATA if has_data(found) else _DEEPEST)
        return self._unknown(node) if is_deep or size_of(found) > _LARGEST else found

    def _unknown(self, node: ast.Call) -> Expression:
        """Return an unknown value that depends on the buffers of the operands."""
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        known = [self.values[name] for name in names if name in self.values]
        buffers = [buffer for value in known for buffer in data_in(value)]
        return Loaded(buffers[0] if buffers else "")


def _is_logical(operation: str, operands: tuple[Expression, ...]) -> bool:
    """Check whether a bitwise operation combines booleans.

    For `and`, an operand of unknown value is allowed as well: a nonzero result still implies that
    the other operands are true.
    """
    is_and = operation == "and"
    return all(_is_truth(one) or (is_and and isinstance(one, Loaded)) for one in operands)


def _is_truth(value: Expression) -> bool:
    if isinstance(value, Number):
        return isinstance(value.value, bool)
    return isinstance(value, Applied) and value.operation in _TRUTHS


def _may_change(value: Expression, kind: str) -> bool:
    """Check whether a cast to `kind` may change the value because the type is narrow."""
    limits = _SMALL.get(kind)
    if limits is None or _is_truth(value):
        return False
    return not (isinstance(value, Number) and limits[0] <= value.value <= limits[1])


@lru_cache(maxsize=1 << 14)
def _is_rounded(value: Expression) -> bool:
    """Check whether a value may be fractional."""
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
