"""The range of an index that is computed from values: clamped, rounded, or chosen.

A kernel may turn any value into an index. Where the value is a minimum, or comes from loop
variables by way of floating-point numbers, its range is known although its value is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from inductoscope.analysis.bounds.expressions import Applied, Expression, Loaded, Name, Number

# More than all roundings of float32 on the way to an index together.
_SLACK = 2.0**-18


@dataclass(frozen=True)
class Ends:
    """Expressions that a value is nowhere below, and nowhere above; None where there is none."""

    low: Expression | None
    high: Expression | None


_OPEN = Ends(None, None)


@lru_cache(maxsize=1 << 14)
def is_exact(value: Expression) -> bool:
    """Whether it is a whole number that loop variables and sizes decide."""
    if isinstance(value, Loaded):
        return False
    if isinstance(value, Number):
        return isinstance(value.value, int)
    if isinstance(value, Applied):
        return value.operation not in ("rounded", *_ROUNDING) and all(map(is_exact, value.operands))
    return True


def ends_of(value: Expression, lengths: Mapping[str, int]) -> Ends:
    """The range of a value. `lengths`: of the loops, as far as they are numbers."""
    if is_exact(value):
        return Ends(value, value)
    if not isinstance(value, Applied):
        return _OPEN
    if value.operation in _ROUNDING:
        return _rounded(value, lengths)
    operands = [ends_of(operand, lengths) for operand in value.operands]
    if value.operation == "rounded":
        return operands[0]
    if value.operation in ("min", "max"):
        return _extreme(value.operation, operands)
    if value.operation == "where" and len(operands) == 3:
        return Ends(
            _all("min", [end.low for end in operands[1:]]),
            _all("max", [end.high for end in operands[1:]]),
        )
    return _OPEN


def _extreme(operation: str, operands: list[Ends]) -> Ends:
    """A minimum is above nothing that one of its operands is above."""
    lows, highs = [end.low for end in operands], [end.high for end in operands]
    if operation == "min":
        return Ends(_all("min", lows), _any("min", highs))
    return Ends(_any("max", lows), _all("max", highs))


def _all(operation: str, ends: list[Expression | None]) -> Expression | None:
    found = [end for end in ends if end is not None]
    return Applied(operation, tuple(found)) if len(found) == len(ends) else None


def _any(operation: str, ends: list[Expression | None]) -> Expression | None:
    found = [end for end in ends if end is not None]
    return Applied(operation, tuple(found)) if found else None


# --- numbers with a fraction ----------------------------------------------------------------------

Numeric = tuple[float, float]


_ROUNDING: dict[str, Callable[[float], int]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
}


def _rounded(value: Applied, lengths: Mapping[str, int]) -> Ends:
    inner = _numeric(value.operands[0], lengths)
    if inner is None:
        # Rounding keeps a clamp at whole numbers.
        clamped = ends_of(value.operands[0], lengths)
        return clamped if _are_whole(clamped) else _OPEN
    low, high = inner
    slack = _SLACK * max(1.0, abs(low), abs(high))
    function = _ROUNDING[value.operation]
    # Rounding takes nothing that is positive below zero.
    below = max(low - slack, 0.0) if low >= 0 else low - slack
    return Ends(Number(function(below)), Number(function(high + slack)))


def _are_whole(ends: Ends) -> bool:
    return all(end is None or is_exact(end) for end in (ends.low, ends.high))


def _numeric(value: Expression, lengths: Mapping[str, int]) -> Numeric | None:
    if isinstance(value, Number):
        return (float(value.value), float(value.value))
    if isinstance(value, Name):
        length = lengths.get(value.name)
        return None if length is None or length < 1 else (0.0, float(length - 1))
    if not isinstance(value, Applied):
        return None
    found = [_numeric(operand, lengths) for operand in value.operands]
    if value.operation in ("rounded", "float"):
        return found[0]
    operands = [item for item in found if item is not None]
    if value.operation in ("min", "max"):
        return _numeric_extreme(value.operation, found)
    if len(operands) < len(found):
        return None
    if value.operation == "add":
        return sum(low for low, _ in operands), sum(high for _, high in operands)
    if value.operation == "mul":
        return _product(operands)
    return None


def _numeric_extreme(operation: str, operands: list[Numeric | None]) -> Numeric | None:
    if None in operands:
        return None
    known = [operand for operand in operands if operand is not None]
    choose = min if operation == "min" else max
    return choose(low for low, _ in known), choose(high for _, high in known)


def _product(operands: list[Numeric]) -> Numeric:
    low, high = operands[0]
    for other in operands[1:]:
        corners = [one * two for one in (low, high) for two in other]
        low, high = min(corners), max(corners)
    return low, high
