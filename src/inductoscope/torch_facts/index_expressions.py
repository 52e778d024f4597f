"""Index expressions, read from the text that torch prints for them.

The text comes from a recording: it is parsed, never evaluated. An expression that is not understood
raises an exception, and the caller reports it instead of guessing.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from inductoscope.wording import count_of

_LONGEST = 20_000
_DEEPEST = 60
# A value that is used twice doubles the expression: beyond this size it is useless.
_LARGEST = 20_000


class NotUnderstood(Exception):
    """An expression or a part of a loop body that has no meaning here; the text says which."""


# Exceptions that computing with a damaged recording may raise.
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Number:
    value: int | float

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Name:
    """A loop variable, a size, or an index that is data."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Loaded:
    """A value known only at run time: loaded from a buffer, or computed from a loaded value."""

    buffer: str
    # Whether it is the loaded value itself, not computed from one.
    is_plain: bool = False

    def __str__(self) -> str:
        return f"a value of {self.buffer}" if self.buffer else "a value"


@dataclass(frozen=True)
class Applied:
    """An operation applied to expressions, under its Python name."""

    operation: str
    operands: tuple[Expression, ...]

    def __post_init__(self) -> None:
        # Expressions are looked up often, and hashing takes time proportional to their size.
        object.__setattr__(self, "_hash", hash((self.operation, self.operands)))

    def __hash__(self) -> int:
        return int(self._hash)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Applied)
            and hash(self) == hash(other)
            and self.operation == other.operation
            and self.operands == other.operands
        )

    def __str__(self) -> str:
        return f"{self.operation}({', '.join(map(str, self.operands))})"


Expression = Number | Name | Loaded | Applied

ZERO, ONE = Number(0), Number(1)

# Names as torch, sympy and Python print them.
_FUNCTIONS = {
    **{name: name.lower() for name in ("Abs", "Max", "Min", "Mod", "Where")},
    **{name: name.lower() for name in ("Eq", "Ge", "Gt", "Le", "Lt", "Ne")},
    **{name: name for name in ("floor", "max", "min")},
    "CeilToInt": "ceil",
    "CleanDiv": "floordiv",
    "FloatTrueDiv": "truediv",
    "FloorDiv": "floordiv",
    "FloorToInt": "floor",
    "IntTrueDiv": "truediv",
    "ModularIndexing": "modular",
    "PowByNatural": "pow",
    "PythonMod": "mod",
    "ToFloat": "float",
    "TruncToInt": "trunc",
    "ceiling": "ceil",
    "div_floor_integer": "floordiv",
}
# These return their operand unchanged, in sympy and in C++.
_UNCHANGED = ("Identity", "int64_t", "long")
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Mult: "mul",
    ast.Pow: "pow",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.NotEq: "ne",
}
# The number of operands of an operation; those not listed take one or more.
_OPERANDS = {
    **dict.fromkeys(("abs", "ceil", "float", "floor", "not", "trunc"), 1),
    **dict.fromkeys(("eq", "ge", "gt", "le", "lt", "ne"), 2),
    **dict.fromkeys(("floordiv", "mod", "pow", "truediv"), 2),
    **dict.fromkeys(("modular", "where"), 3),
}
_DIVISIONS = ("floordiv", "mod", "modular", "truediv")
OPPOSITES = {"eq": "ne", "ge": "lt", "gt": "le", "le": "gt", "lt": "ge", "ne": "eq"}


@lru_cache(maxsize=1 << 14)
def read_expression(text: str) -> Expression:
    if len(text) > _LONGEST:
        raise NotUnderstood("an expression that is too long")
    try:
        return from_syntax(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotUnderstood(text[:80]) from error


def from_syntax(node: ast.expr, depth: int = 0) -> Expression:
    if depth > _DEEPEST:
        raise NotUnderstood("an expression that is nested too deeply")
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return constant(node.value)
    if isinstance(node, ast.Name):
        return Name(node.id)
    if isinstance(node, ast.UnaryOp):
        return _unary(node, depth)
    if isinstance(node, ast.BinOp):
        return _binary(node, depth)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = (from_syntax(node.left, depth + 1), from_syntax(node.comparators[0], depth + 1))
        return applied(_named(_COMPARISONS.get(type(node.ops[0])), node), sides)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        operands = tuple(from_syntax(operand, depth + 1) for operand in node.args)
        if node.func.id in _UNCHANGED and len(operands) == 1:
            return operands[0]
        return applied(_named(_FUNCTIONS.get(node.func.id), node), operands)
    raise NotUnderstood(ast.unparse(node)[:80])


def _unary(node: ast.UnaryOp, depth: int) -> Expression:
    operand = from_syntax(node.operand, depth + 1)
    if isinstance(node.op, ast.USub):
        return Number(-operand.value) if isinstance(operand, Number) else minus(operand)
    if isinstance(node.op, ast.UAdd):
        return operand
    return Applied("not", (operand,))


def _binary(node: ast.BinOp, depth: int) -> Expression:
    left, right = from_syntax(node.left, depth + 1), from_syntax(node.right, depth + 1)
    if isinstance(node.op, ast.Sub):
        return Applied("add", (left, minus(right)))
    return applied(_named(_BINARY.get(type(node.op)), node), (left, right))


def constant(value: int | float) -> Number:
    """Return a constant; raise NotUnderstood if it is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise NotUnderstood(f"the number {value}")
    return Number(value)


def applied(operation: str, operands: tuple[Expression, ...]) -> Applied:
    """Apply an operation; raise NotUnderstood if it has no meaning with these operands."""
    wanted = _OPERANDS.get(operation)
    if not operands or (wanted is not None and len(operands) != wanted):
        raise NotUnderstood(f"{operation} with {count_of(len(operands), 'operand')}")
    if operation in _DIVISIONS and any(
        isinstance(divisor, Number) and divisor.value == 0 for divisor in operands[1:]
    ):
        raise NotUnderstood("a division by zero")
    return Applied(operation, operands)


def _named(operation: str | None, node: ast.AST) -> str:
    if operation is None:
        raise NotUnderstood(ast.unparse(node)[:80])
    return operation


def minus(expression: Expression) -> Expression:
    return Applied("mul", (Number(-1), expression))


def add(*terms: Expression) -> Expression:
    return Applied("add", terms)


def span(size: tuple[Expression, ...], stride: tuple[Expression, ...]) -> Expression:
    """Return the number of elements between a strided tensor's first and last, both included."""
    pairs = zip(size, stride, strict=True)
    return add(ONE, *(Applied("mul", (add(length, Number(-1)), step)) for length, step in pairs))


@lru_cache(maxsize=1 << 15)
def names_in(expression: Expression) -> frozenset[str]:
    if isinstance(expression, Name):
        return frozenset((expression.name,))
    if isinstance(expression, Applied):
        return frozenset().union(*map(names_in, expression.operands))
    return frozenset()


@lru_cache(maxsize=1 << 15)
def has_data(expression: Expression) -> bool:
    """Check whether any part of an expression is only known at run time."""
    if isinstance(expression, Applied):
        return any(map(has_data, expression.operands))
    return isinstance(expression, Loaded)


@lru_cache(maxsize=1 << 15)
def data_in(expression: Expression) -> tuple[str, ...]:
    """Return the buffers that an expression loads values from."""
    if isinstance(expression, Loaded):
        return (expression.buffer,) if expression.buffer else ()
    inner = expression.operands if isinstance(expression, Applied) else ()
    return tuple(dict.fromkeys(buffer for operand in inner for buffer in data_in(operand)))


@lru_cache(maxsize=1 << 15)
def depth_of(expression: Expression) -> int:
    inner = expression.operands if isinstance(expression, Applied) else ()
    return 1 + max(map(depth_of, inner), default=0)


@lru_cache(maxsize=1 << 15)
def size_of(expression: Expression) -> int:
    """Return the number of nodes of an expression; repeated ones count every time."""
    inner = expression.operands if isinstance(expression, Applied) else ()
    return 1 + sum(map(size_of, inner))


def replaced(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """Substitute names in an expression; unchanged if none of the names occurs."""
    found = values.keys() & names_in(expression)
    if not found:
        return expression
    if size_of(expression) * max(size_of(values[name]) for name in found) > _LARGEST**2:
        raise NotUnderstood("an expression that is too large")
    result = _with_values(expression, values)
    if size_of(result) > _LARGEST:
        raise NotUnderstood("an expression that is too large")
    return result


def _with_values(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    if values.keys().isdisjoint(names_in(expression)):
        return expression
    if isinstance(expression, Name):
        return values[expression.name]
    assert isinstance(expression, Applied)
    operands = tuple(_with_values(operand, values) for operand in expression.operands)
    return Applied(expression.operation, operands)


def conjuncts(condition: Expression, *, is_negated: bool = False) -> Iterator[Expression]:
    """Yield conditions that all hold if a condition does, or if it does not."""
    operation = condition.operation if isinstance(condition, Applied) else ""
    operands = condition.operands if isinstance(condition, Applied) else ()
    if operation == "not":
        yield from conjuncts(operands[0], is_negated=not is_negated)
    elif operation == ("or" if is_negated else "and"):
        for operand in operands:
            yield from conjuncts(operand, is_negated=is_negated)
    elif not is_negated:
        yield condition
    elif operation in OPPOSITES:
        yield Applied(OPPOSITES[operation], operands)
    else:
        yield Applied("not", (condition,))


# --- The exact value of an expression for given values of its names -------------------------------

Values = Mapping[str, int]
Evaluate = Callable[[Values], Any]

_LARGEST_POWER = 64
_LARGEST_VALUE = 1 << 200


class NoValue(Exception):
    """An expression depends on data, on rounding, or on behavior that torch leaves undefined."""


@lru_cache(maxsize=1 << 14)
def compiled(expression: Expression) -> Evaluate:
    """Compile an expression to a function from the values of its names to its value."""
    if isinstance(expression, Number):
        value = expression.value
        if isinstance(value, float):
            exact = Fraction(value) if math.isfinite(value) else None
            return _undefined if exact is None else lambda values: exact
        return lambda values: value
    if isinstance(expression, Name):
        return _look_up(expression.name)
    if isinstance(expression, Loaded):
        return _undefined
    return _call(expression)


def value_of(expression: Expression, values: Values) -> int:
    """Evaluate an expression to an integer; raise NoValue if the result is not one."""
    return valued(expression)(values)


def valued(expression: Expression) -> Callable[[Values], int]:
    """Compile an expression to a function from the values of its names to an integer."""
    evaluate = compiled(expression)

    def value(values: Values) -> int:
        found = evaluate(values)
        if isinstance(found, Fraction):
            if found.denominator != 1:
                raise NoValue
            found = int(found)
        if abs(found) > _LARGEST_VALUE:
            raise NoValue
        return int(found)

    return value


def holds(condition: Expression, values: Values) -> bool | None:
    """Evaluate a condition; None if only a run can decide it."""
    try:
        return bool(compiled(condition)(values))
    except NoValue:
        return None


def _undefined(values: Values) -> Any:
    raise NoValue


def _look_up(name: str) -> Evaluate:
    def look_up(values: Values) -> Any:
        if name not in values:
            raise NoValue
        return values[name]

    return look_up


def _call(expression: Applied) -> Evaluate:
    operands = [compiled(operand) for operand in expression.operands]
    if expression.operation in ("and", "or"):
        return _logical(operands, is_and=expression.operation == "and")
    if expression.operation == "where" and len(operands) == 3:
        condition, first, second = operands
        return lambda values: first(values) if condition(values) else second(values)
    function = _MEANINGS.get(expression.operation)
    if function is None:
        return _undefined
    if len(operands) == 2 and function is not max and function is not min:
        left, right = operands
        return lambda values: function(left(values), right(values))
    return lambda values: function(*[operand(values) for operand in operands])


def _logical(operands: list[Evaluate], *, is_and: bool) -> Evaluate:
    """Evaluate and/or: one operand can decide even if another has no value."""

    def logical(values: Values) -> bool:
        is_open = False
        for operand in operands:
            try:
                if bool(operand(values)) is not is_and:
                    return not is_and
            except NoValue:
                is_open = True
        if is_open:
            raise NoValue
        return is_and

    return logical


def _divide(left: Any, right: Any) -> Any:
    if right == 0:
        raise NoValue
    return Fraction(left) / Fraction(right)


def _floor_divide(left: Any, right: Any) -> Any:
    # For negative numbers, torch's definitions and generated code may differ.
    if right <= 0:
        raise NoValue
    return left // right


def _remainder(left: Any, right: Any) -> Any:
    if left < 0 or right <= 0:
        raise NoValue
    return left % right


def _power(left: Any, right: Any) -> Any:
    if not isinstance(right, int) or not 0 <= right <= _LARGEST_POWER or abs(left) > _LARGEST_VALUE:
        raise NoValue
    return left**right


_MEANINGS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "add": lambda *terms: sum(terms),
    "ceil": math.ceil,
    "eq": lambda left, right: left == right,
    "float": lambda operand: operand,
    "floor": math.floor,
    "floordiv": _floor_divide,
    "ge": lambda left, right: left >= right,
    "gt": lambda left, right: left > right,
    "le": lambda left, right: left <= right,
    "lt": lambda left, right: left < right,
    "max": max,
    "min": min,
    "mod": _remainder,
    "modular": lambda value, by, modulus: _remainder(_floor_divide(value, by), modulus),
    "mul": lambda *factors: math.prod(factors),
    "ne": lambda left, right: left != right,
    "not": lambda operand: not operand,
    "pow": _power,
    "truediv": _divide,
    "trunc": math.trunc,
}


def number_of(text: str, values: Mapping[str, int]) -> int | None:
    """Evaluate the text of an expression for the given sizes; None if the value is unknown."""
    if text.isdecimal():
        return int(text)
    try:
        return value_of(read_expression(text), values)
    except (NoValue, NotUnderstood, *FAILURES):
        return None


def numbers_of(texts: Sequence[str], values: Mapping[str, int]) -> list[int] | None:
    """Evaluate several texts for the given sizes; None if any value is unknown."""
    found = [number_of(text, values) for text in texts]
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


# --- Sizes in bytes -------------------------------------------------------------------------------

_TYPE_BITS = re.compile(r"(?:float|int|uint|complex|bfloat|bits)(\d+)")


def bytes_of(dtype: str, size: Iterable[str]) -> int | None:
    """Return the bytes of a tensor; None if a size is not a number or the type is unknown."""
    sizes = list(size)
    width = type_width(dtype)
    if width is None or not all(part.isdecimal() and len(part) < 19 for part in sizes):
        return None
    return math.prod(map(int, sizes)) * width


def type_width(dtype: str) -> int | None:
    """Return the bytes of one element; None if the type is unknown."""
    name = dtype.removeprefix("torch.")
    if name == "bool":
        return 1
    match = _TYPE_BITS.match(name)
    # Types of fewer than eight bits are packed.
    return max(1, int(match[1]) // 8) if match and len(match[1]) < 4 else None
