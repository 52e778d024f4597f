"""What the operations of a loop body mean, written with torch's eager functions.

The reference is torch/_inductor/ops_handler.py, not what a backend makes of it: `truediv` is true
division, `floordiv` is for integers alone, `argmin` is the first minimum. An operation
without an entry in the tables here cannot be evaluated; nothing is approximated.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch import Tensor
from torch.utils._sympy import functions as sizes

TORCH_NAMES = {
    "torch.utils._sympy.functions": (
        "CeilToInt",
        "CleanDiv",
        "FloatTrueDiv",
        "FloorDiv",
        "FloorToInt",
        "Identity",
        "IntTrueDiv",
        "LShift",
        "Max",
        "Min",
        "Mod",
        "ModularIndexing",
        "PowByNatural",
        "PythonMod",
        "RShift",
        "RoundToInt",
        "ToFloat",
        "TruncToInt",
        "Where",
    ),
}

# Its elements are combined one by one, in Python.
_LONGEST_SCAN = 2**12


class CannotEvaluate(Exception):
    """The loop body has an operation that cannot be evaluated here; the text names it."""


# --- values ---------------------------------------------------------------------------------------

# Operations that have the same name and the same meaning in torch.
_SAME_IN_TORCH = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "ceil", "copysign", "cos", "cosh", "digamma", "eq", "erf", "erfc", "erfinv", "exp", "exp2",
    "expm1", "floor", "fmod", "frexp", "ge", "gt", "hypot", "i0", "igamma", "igammac", "isinf",
    "isnan", "ldexp", "le", "lgamma", "log", "log10", "log1p", "log2", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne", "neg",
    "nextafter", "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "sigmoid", "sign",
    "signbit", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh", "trunc",
)  # fmt: skip

_SAME_IN_SPECIAL = (
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "erfcx",
    "gammainc", "gammaincc", "hermite_polynomial_h", "hermite_polynomial_he", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log_ndtr", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "ndtr", "ndtri",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "spherical_bessel_j0", "zeta",
)  # fmt: skip


def _divide(x: Tensor, y: Tensor) -> Tensor:
    if not torch.result_type(x, y).is_floating_point:
        raise CannotEvaluate("truediv of integers")
    return torch.true_divide(x, y)


def _divide_integers(x: Tensor, y: Tensor, *, rounding: str) -> Tensor:
    if torch.result_type(x, y).is_floating_point:
        raise CannotEvaluate(f"{rounding} division of floats")
    return torch.div(x, y, rounding_mode=rounding)


def _fused_multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    if x.dtype is not torch.float32:
        raise CannotEvaluate(f"fma of {x.dtype}")
    # A product of two float32 is exact in float64, so only the sum is rounded.
    return (x.double() * y.double() + z.double()).float()


def _select(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition.bool(), x, y)


def _to_integer(rounded: Callable[[Tensor], Tensor]) -> Callable[[Tensor, torch.dtype], Tensor]:
    return lambda x, dtype: rounded(x).to(dtype)


POINTWISE: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in _SAME_IN_TORCH},
    **{name: getattr(torch.special, name) for name in _SAME_IN_SPECIAL},
    "and_": torch.bitwise_and,
    "ceil_to_int": _to_integer(torch.ceil),
    "div_rn": _divide,
    "floor_to_int": _to_integer(torch.floor),
    "floordiv": functools.partial(_divide_integers, rounding="floor"),
    "fma": _fused_multiply_add,
    "identity": lambda x: x,
    "lshift": torch.bitwise_left_shift,
    "mod": torch.fmod,  # As in C: the sign is that of the dividend.
    "mul_rn": torch.mul,
    "or_": torch.bitwise_or,
    "round_to_int": _to_integer(torch.round),
    "rshift": torch.bitwise_right_shift,
    "trunc_to_int": _to_integer(torch.trunc),
    "truncdiv": functools.partial(_divide_integers, rounding="trunc"),
    "truediv": _divide,
    "where": _select,
    "xor": torch.bitwise_xor,
}


# --- reductions, over the last dimension ----------------------------------------------------------


def _exclusive_or(x: Tensor) -> Tensor:
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        folded = torch.bitwise_xor(x[..., :half], x[..., half : 2 * half])
        x = torch.cat([folded, x[..., 2 * half :]], -1)
    return x.squeeze(-1)


def _extreme(x: Tensor, *, smallest: bool) -> Tensor:
    """The smallest or largest value; NaN if there is one, as everywhere in torch."""
    return x.amin(-1) if smallest else x.amax(-1)


def _first_extreme(x: Tensor, position: Tensor | None, *, smallest: bool) -> tuple[Tensor, Tensor]:
    """The smallest or largest value, and the lowest of the positions that have it."""
    if position is None:
        position = torch.arange(x.shape[-1], device=x.device)
    value = _extreme(x, smallest=smallest)
    found = (x == value.unsqueeze(-1)) | (x != x)
    beyond = torch.iinfo(torch.int64).max
    return value, torch.where(found, position.long(), beyond).amin(-1)


def _mean_and_deviation(x: Tensor) -> tuple[Tensor, ...]:
    mean = x.mean(-1)
    deviation = (x - mean.unsqueeze(-1)).square().sum(-1)
    return mean, deviation, torch.full_like(mean, x.shape[-1])


def _combine_means(mean: Tensor, deviation: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    total = weight.sum(-1)
    share = torch.where(total.unsqueeze(-1) == 0, 0, weight / total.unsqueeze(-1))
    combined = (mean * share).sum(-1)
    between = (weight * (mean - combined.unsqueeze(-1)).square()).sum(-1)
    return combined, deviation.sum(-1) + between, total


def _maximum_and_sum(x: Tensor, weight: Tensor | None = None) -> tuple[Tensor, ...]:
    """The largest value, and the sum of the exponentials of the differences from it.

    `weight` is given where `x` are maxima themselves: the sums that belong to them.
    """
    largest = x.amax(-1)
    # As in torch's own definition: a row of -inf has no differences that are numbers.
    difference = torch.where(largest.unsqueeze(-1) == -torch.inf, 0, x - largest.unsqueeze(-1))
    terms = difference.exp() if weight is None else difference.exp() * weight
    return largest, terms.sum(-1)


def _positional(x: Tensor, kind: str, position: Tensor | None) -> Any:
    value, index = _first_extreme(x, position, smallest=kind.startswith("argmin"))
    if kind.endswith("_with_value"):
        return value, index
    return value if kind.endswith("_value") else index


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "any": lambda x: x.bool().any(-1),
    "max": functools.partial(_extreme, smallest=False),
    "min": functools.partial(_extreme, smallest=True),
    "online_softmax_reduce": _maximum_and_sum,
    "prod": lambda x: x.prod(-1, dtype=x.dtype),
    "sum": lambda x: x.sum(-1, dtype=x.dtype),
    "welford_combine": _combine_means,
    "welford_reduce": _mean_and_deviation,
    "xor_sum": _exclusive_or,
}


def reduce_last(kind: str, dtype: torch.dtype, values: tuple[Tensor, ...]) -> Any:
    """The reduction of `values` over their last dimension, accumulated in `dtype`."""
    if kind.startswith(("argmin", "argmax")):
        position = values[1] if len(values) > 1 else None
        return _positional(values[0], kind, position)
    if kind not in _REDUCTIONS:
        raise CannotEvaluate(f"reduction {kind}")
    if kind != "any":
        values = tuple(value.to(dtype) for value in values)
    return _REDUCTIONS[kind](*values)


def scan_last(combine: Callable[..., Any], rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`combine` of each element along the last dimension with all before it, one after another."""
    length = rows[0].shape[-1]
    if length > _LONGEST_SCAN:
        raise CannotEvaluate(f"scan over {length} elements")
    steps = [tuple(row[..., number] for row in rows) for number in range(length)]
    for number in range(1, length):
        # What lowering wrote as `a + b` comes back inside a wrapper of torch.
        combined = combine(steps[number - 1], steps[number])
        steps[number] = tuple(getattr(each, "value", each) for each in combined)
    return tuple(torch.stack(column, -1) for column in zip(*steps, strict=True))


# --- index expressions ----------------------------------------------------------------------------


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y, rounding_mode="floor")


def _modulus(x: Tensor, y: Tensor) -> Tensor:
    # Neither sympy nor torch says whether it is C's or Python's; below zero they differ.
    if bool((x < 0).any()) or bool((y < 0).any()):
        raise CannotEvaluate("Mod of negative numbers in an index")
    return torch.remainder(x, y)


def _power(x: Tensor, y: Tensor) -> Tensor:
    if x.is_floating_point() or y.is_floating_point() or bool((y < 0).any()):
        raise CannotEvaluate("Pow in an index, other than by a natural number")
    return torch.pow(x, y)


def _true_divide(x: Tensor, y: Tensor) -> Tensor:
    return x.double() / y.double()


def _chain(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *terms: functools.reduce(function, terms)


_INDEX_FUNCTIONS: dict[type, Callable[..., Tensor]] = {
    sympy.Abs: torch.abs,
    sympy.Add: _chain(torch.add),
    sympy.And: _chain(torch.logical_and),
    sympy.Eq: torch.eq,
    sympy.Ge: torch.ge,
    sympy.Gt: torch.gt,
    sympy.Le: torch.le,
    sympy.Lt: torch.lt,
    sympy.Max: _chain(torch.maximum),
    sympy.Min: _chain(torch.minimum),
    sympy.Mod: _modulus,
    sympy.Mul: _chain(torch.mul),
    sympy.Ne: torch.ne,
    sympy.Not: torch.logical_not,
    sympy.Or: _chain(torch.logical_or),
    sympy.Pow: _power,
    sympy.ceiling: lambda x: torch.ceil(x).long(),
    sympy.floor: lambda x: torch.floor(x).long(),
    sizes.CeilToInt: lambda x: torch.ceil(x).long(),
    sizes.CleanDiv: _floor_divide,
    sizes.FloatTrueDiv: _true_divide,
    sizes.FloorDiv: _floor_divide,
    sizes.FloorToInt: lambda x: torch.floor(x).long(),
    sizes.Identity: lambda x: x,
    sizes.IntTrueDiv: _true_divide,
    sizes.LShift: torch.bitwise_left_shift,
    sizes.Max: _chain(torch.maximum),
    sizes.Min: _chain(torch.minimum),
    sizes.Mod: _modulus,
    sizes.ModularIndexing: lambda x, y, z: torch.remainder(_floor_divide(x, y), z),
    sizes.PowByNatural: _power,
    sizes.PythonMod: torch.remainder,
    sizes.RShift: torch.bitwise_right_shift,
    sizes.RoundToInt: lambda x: torch.round(x).long(),
    sizes.ToFloat: lambda x: x.double(),
    sizes.TruncToInt: lambda x: torch.trunc(x).long(),
    sizes.Where: torch.where,
}


def evaluate_index(expression: Any, symbols: Mapping[Any, Tensor], device: torch.device) -> Tensor:
    """An index expression as a tensor over whatever its symbols are tensors over."""
    if isinstance(expression, sympy.Symbol):
        if expression not in symbols:
            raise CannotEvaluate(f"no value for the size {expression}")
        return symbols[expression]
    if isinstance(expression, (sympy.Number, BooleanAtom)):
        return torch.tensor(_plain_number(expression), device=device)
    if expression.func not in _INDEX_FUNCTIONS:
        raise CannotEvaluate(f"{expression.func.__name__} in an index")
    terms = [evaluate_index(term, symbols, device) for term in expression.args]
    return _INDEX_FUNCTIONS[expression.func](*terms)


def _plain_number(number: Any) -> bool | int | float:
    if isinstance(number, BooleanAtom):
        return bool(number)
    return operator.index(number) if number.is_Integer else float(number)
