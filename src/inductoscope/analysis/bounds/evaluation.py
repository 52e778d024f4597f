"""The exact value of an expression for given values of its names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from inductoscope.analysis.bounds.expressions import Applied, Expression, Loaded, Name, Number

Values = Mapping[str, int]
Evaluate = Callable[[Values], Any]

_LARGEST_POWER = 64
_LARGEST = 1 << 200


class NoValue(Exception):
    """It depends on data, on rounding, or on what torch leaves undefined."""


@lru_cache(maxsize=1 << 14)
def compiled(expression: Expression) -> Evaluate:
    """A function from the values of names to the value of the expression."""
    if isinstance(expression, Number):
        constant = _exact(expression.value)
        return _undefined if constant is None else lambda values: constant
    if isinstance(expression, Name):
        return _look_up(expression.name)
    if isinstance(expression, Loaded):
        return _undefined
    return _call(expression)


def value_of(expression: Expression, values: Values) -> int:
    """The integer that it is; raises NoValue where it is none."""
    return valued(expression)(values)


def valued(expression: Expression) -> Callable[[Values], int]:
    """A function from the values of names to the integer that it is."""
    evaluate = compiled(expression)

    def value(values: Values) -> int:
        found = evaluate(values)
        if isinstance(found, Fraction):
            if found.denominator != 1:
                raise NoValue
            found = int(found)
        if abs(found) > _LARGEST:
            raise NoValue
        return int(found)

    return value


def holds(condition: Expression, values: Values) -> bool | None:
    """Whether it holds; None where only a run can tell."""
    try:
        return bool(compiled(condition)(values))
    except NoValue:
        return None


def _exact(value: int | float) -> int | Fraction | None:
    if isinstance(value, int):
        return value
    return Fraction(value) if math.isfinite(value) else None


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
    if expression.operation == "where":
        return _where(operands)
    function = _FUNCTIONS.get(expression.operation)
    if function is None:
        return _undefined
    if len(operands) == 2 and function is not max and function is not min:
        left, right = operands
        return lambda values: function(left(values), right(values))
    return lambda values: function(*[operand(values) for operand in operands])


def _where(operands: list[Evaluate]) -> Evaluate:
    if len(operands) != 3:
        return _undefined
    condition, first, second = operands
    return lambda values: first(values) if condition(values) else second(values)


def _logical(operands: list[Evaluate], *, is_and: bool) -> Evaluate:
    """One operand can decide, even where another has no value."""

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


def _add(*terms: Any) -> Any:
    return sum(terms)


def _multiply(*terms: Any) -> Any:
    return math.prod(terms)


def _divide(left: Any, right: Any) -> Any:
    if right == 0:
        raise NoValue
    return Fraction(left) / Fraction(right)


def _floor_divide(left: Any, right: Any) -> Any:
    # Below zero, torch's own definitions and generated code need not agree.
    if right <= 0:
        raise NoValue
    return left // right


def _remainder(left: Any, right: Any) -> Any:
    if left < 0 or right <= 0:
        raise NoValue
    return left % right


def _modular(value: Any, divisor: Any, modulus: Any) -> Any:
    return _remainder(_floor_divide(value, divisor), modulus)


def _power(left: Any, right: Any) -> Any:
    if not isinstance(right, int) or not 0 <= right <= _LARGEST_POWER or abs(left) > _LARGEST:
        raise NoValue
    return left**right


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "add": _add,
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
    "modular": _modular,
    "mul": _multiply,
    "ne": lambda left, right: left != right,
    "not": lambda operand: not operand,
    "pow": _power,
    "truediv": _divide,
    "trunc": math.trunc,
}
