"""Evaluates the loop body of a scheduler node with torch tensors.

Lowering makes loop bodies, and a backend turns them into C++ or Triton. If a body gives eager's
numbers here but the kernel does not, the backend compiled it wrongly. If the body gives other
numbers, lowering made it wrong.

Every value of the body is one tensor over the whole iteration space: a leading dimension of one,
a dimension for each iteration variable, then one for each reduction variable. Dimensions that a
value does not depend on have size one.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch import Tensor
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.utils._sympy import functions as sympy_functions

from inductoscope.inside.compare.values import plain_torch

# A GPU is fast, and has room for tensors of a gigabyte.
_MOST_POINTS = {"cpu": 2**24, "cuda": 2**27}
_NARROW = (torch.bfloat16, torch.float16)


def evaluate(
    node: Any,
    values: Mapping[str, Tensor],
    sizes: Mapping[sympy.Symbol, int] = {},
    *,
    widened: bool = False,
) -> dict[str, Tensor]:
    """Return the values that the loop body of a SchedulerNode stores, by the buffer's name.

    `values` holds the tensors that the body reads, by buffer name, in the strides of the buffer.
    `sizes` gives the symbols of dynamic shapes. A node that writes into another buffer (a mutation,
    a part of a concatenation) also returns that buffer, with the new content.

    bfloat16 and float16 are rounded after every operation, as in eager. `widened` keeps them in
    float32 between load and store instead, as generated code does.

    Raises CannotEvaluate for everything that has no exact answer here.
    """
    body = getattr(node, "_body", None)
    if body is None:
        raise CannotEvaluate(f"{type(node).__name__} has no loop body")
    try:
        with plain_torch():
            return _evaluate(body, node.node, values, sizes, widened)
    except CannotEvaluate:
        raise
    except Exception as error:  # The evaluation failed, which says nothing about the body.
        raise CannotEvaluate(f"{type(error).__name__}: {error}") from error


def _evaluate(
    body: Any,
    buffer: Any,
    values: Mapping[str, Tensor],
    sizes: Mapping[sympy.Symbol, int],
    widened: bool,
) -> dict[str, Tensor]:
    space = _Space(body, sizes, buffer.get_device())
    output = _Output(buffer, values, space)
    with V.set_ops_handler(_Operations(space, values, output, widened)):
        body(*space.variables)
    return output.tensors()


# --- the iteration space --------------------------------------------------------------------------


class _Space:
    """The iteration space of the loops, with index expressions as tensors over it."""

    def __init__(self, body: Any, sizes: Mapping[sympy.Symbol, int], device: torch.device) -> None:
        self.device = device
        self._known = {symbol: torch.tensor(int(n), device=device) for symbol, n in sizes.items()}
        outer, inner = map(self.integers, body.sizes)
        self.outer = (1, *outer)
        self.shape = (*self.outer, *inner)
        if math.prod(self.shape) > _MOST_POINTS.get(device.type, 2**24):
            raise CannotEvaluate(f"a loop over {math.prod(self.shape)} points")
        symbols = [self._axis(number + 1) for number in range(len(self.shape) - 1)]
        self.variables = symbols[: len(outer)], symbols[len(outer) :]

    def _axis(self, number: int) -> sympy.Symbol:
        along = torch.arange(self.shape[number], device=self.device)
        shape = [1] * len(self.shape)
        shape[number] = -1
        return self.name(along.reshape(shape))

    def name(self, value: Tensor) -> sympy.Symbol:
        """Create a symbol that stands for `value` in index expressions."""
        symbol = sympy.Symbol(f"evaluated{len(self._known)}", integer=True, nonnegative=True)
        self._known[symbol] = value
        return symbol

    def integers(self, expressions: Any) -> tuple[int, ...]:
        values = (evaluate_index(sympy.sympify(e), self._known, self.device) for e in expressions)
        return tuple(map(int, values))

    def placed(self, value: Tensor, layout: Any) -> Tensor:
        """Copy a tensor to the strides of an IR layout."""
        size, stride = map(self.integers, (layout.size, layout.stride))
        if tuple(value.shape) != size:
            raise CannotEvaluate(f"a value of shape {tuple(value.shape)} for a buffer of {size}")
        placed = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
        return placed.copy_(value.detach())

    def index(self, expression: Any) -> Tensor:
        value = evaluate_index(sympy.sympify(expression), self._known, self.device)
        return value if value.dim() else value.reshape([1] * len(self.shape))

    def rows(self, value: Tensor) -> Tensor:
        """Expand a value to all points, with the reduction variables merged into the last axis."""
        return value.expand(self.shape).reshape(*self.outer, -1)

    def reduced(self, value: Tensor) -> Tensor:
        return value.reshape(*self.outer, *[1] * (len(self.shape) - len(self.outer)))


# --- memory ---------------------------------------------------------------------------------------


def _extent(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    if 0 in size:
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))


def _memory(value: Tensor) -> Tensor:
    """Return a tensor's elements from the first to the last, in memory order."""
    extent = _extent(tuple(value.shape), value.stride())
    return value.detach().as_strided((extent,), (1,), value.storage_offset())


@dataclass(frozen=True)
class _MemoryPlace:
    """The position of a buffer in the memory of the buffer that owns it."""

    name: str
    layout: Any
    start: int


class _Output:
    """The memory that a node writes; a write to a buffer inside another one changes both."""

    def __init__(self, buffer: Any, values: Mapping[str, Tensor], space: _Space) -> None:
        self._space = space
        self._places = _places(buffer, space)
        self._name, owner = self._places[0].name, self._places[-1]
        self._start = self._places[0].start
        mutates = isinstance(buffer.get_layout(), ir.MutationLayoutSHOULDREMOVE)
        self.has_content = mutates and owner.name in values
        if len(self._places) > 1 and owner.name in values:
            self._all = _memory(space.placed(values[owner.name], owner.layout))
        else:
            layout = owner.layout
            extent = _extent(space.integers(layout.size), space.integers(layout.stride))
            extent += space.integers([layout.offset])[0]
            self._all = torch.zeros(extent, dtype=layout.dtype, device=space.device)
        self._written = torch.zeros_like(self._all, dtype=torch.bool)

    def part(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the memory that a store to `name` addresses, and the mask of written elements."""
        if name != self._name:
            raise CannotEvaluate(f"store to {name} by the node of {self._name}")
        return self._all[self._start :], self._written[self._start :]

    def tensors(self) -> dict[str, Tensor]:
        if not self.has_content and not bool(self._view(self._written, self._places[0]).all()):
            raise CannotEvaluate(f"store leaves elements of {self._name} unwritten")
        return {place.name: self._view(self._all, place) for place in self._places}

    def _view(self, memory: Tensor, place: _MemoryPlace) -> Tensor:
        layout = place.layout
        start = place.start + self._space.integers([layout.offset])[0]
        size, stride = (self._space.integers(group) for group in (layout.size, layout.stride))
        return memory.as_strided(size, stride, start)


def _places(buffer: Any, space: _Space) -> list[_MemoryPlace]:
    """Return the buffer, the buffer that contains it, and so on up to the owner of the memory."""
    layout = buffer.get_layout()
    if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
        # Its stores address the mutated buffer, so it is another name for that one.
        outer = _places(layout.get_buffer(), space)
        return [_MemoryPlace(buffer.get_name(), outer[0].layout, outer[0].start), *outer]
    if isinstance(layout, ir.NonOwningLayout):
        outer = _places(_buffer_of(layout.view), space)
        start = outer[0].start + space.integers([layout.view.get_layout().offset])[0]
        return [_MemoryPlace(buffer.get_name(), layout, start), *outer]
    return [_MemoryPlace(buffer.get_name(), layout, 0)]


def _buffer_of(view: Any) -> Any:
    while not isinstance(view, ir.Buffer):
        view = view.data
    return view


# --- operations -----------------------------------------------------------------------------------


class _Operations:
    """The ops handler that the body calls; operations not defined here are in POINTWISE."""

    def __init__(
        self, space: _Space, values: Mapping[str, Tensor], output: _Output, widened: bool
    ) -> None:
        self._space = space
        self._values = values
        self._output = output
        self._widened = widened
        self._mask: Tensor | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = POINTWISE.get(name.removeprefix("libdevice_"))
        if function is None:
            raise CannotEvaluate(name)
        return function

    def _computed(self, dtype: torch.dtype) -> torch.dtype:
        return torch.float32 if self._widened and dtype in _NARROW else dtype

    def constant(self, value: Any, dtype: torch.dtype) -> Tensor:
        if dtype in _NARROW:
            # Eager does not round the scalar of `x * 0.1` to the dtype of x. A tensor without
            # dimensions is such a scalar: it leaves the dtype to the other operand.
            return torch.tensor(float(value), dtype=torch.float32, device=self._space.device)
        shape = [1] * len(self._space.shape)
        return torch.full(shape, value, dtype=dtype, device=self._space.device)

    def index_expr(self, expression: Any, dtype: torch.dtype) -> Tensor:
        return self._space.index(expression).to(self._computed(dtype))

    value_expr = index_expr

    def to_dtype(
        self,
        x: Tensor,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> Tensor:
        return x.to(self._computed(dtype) if use_compute_types else dtype)

    def to_dtype_bitcast(self, x: Tensor, dtype: torch.dtype, src_dtype: torch.dtype) -> Tensor:
        if dtype.itemsize != src_dtype.itemsize:
            raise CannotEvaluate(f"to_dtype_bitcast from {src_dtype} to {dtype}")
        return x.to(src_dtype).view(dtype).to(self._computed(dtype))

    # Memory and indices.

    def load(self, name: str, index: Any) -> Tensor:
        if name not in self._values:
            raise CannotEvaluate(f"load: no value for {name}")
        memory = _memory(self._values[name])
        position = self._within("load", self._space.index(index), memory.numel())
        if not memory.numel():  # With an empty buffer, every access is masked off.
            memory = memory.new_zeros(1)
        value = memory[position]
        return value.to(self._computed(value.dtype))

    def _within(self, operation: str, position: Tensor, length: int) -> Tensor:
        """Check positions against bounds, and replace masked-off ones by a valid position."""
        outside = (position < 0) | (position >= length)
        if not bool(outside.any()):
            return position
        if self._mask is None or bool((outside & self._mask).any()):
            raise CannotEvaluate(f"{operation}: index out of bounds")
        return torch.where(outside, 0, position)

    def indirect_indexing(
        self, x: Tensor, size: Any, check: bool = True, wrap_neg: bool = True
    ) -> sympy.Symbol:
        position, length = x.long(), int(self._space.index(size))
        if wrap_neg:
            position = torch.where(position < 0, position + length, position)
        if check:
            position = self._within("indirect_indexing", position, length)
        return self._space.name(position)

    def check_bounds(self, index: Any, size: Any, lower: bool, upper: bool) -> None:
        self._within("check_bounds", self._space.index(index), int(self._space.index(size)))

    def masked(self, mask: Tensor, body: Callable[[], Tensor], other: Any) -> Tensor:
        mask, outer = mask.bool(), self._mask
        self._mask = mask if outer is None else mask & outer
        try:
            value = body()
        finally:
            self._mask = outer
        return torch.where(
            mask, value, torch.full([], other, dtype=value.dtype, device=mask.device)
        )

    def store(self, name: str, index: Any, value: Tensor, mode: str | None = None) -> None:
        if mode not in (None, "atomic_add"):
            raise CannotEvaluate(f"store with mode {mode}")
        memory, written = self._output.part(name)
        position = self._within("store", self._space.index(index), memory.numel())
        # An addition is done at every point, whether or not the value depends on it.
        shape = self._space.shape if mode else torch.broadcast_shapes(position.shape, value.shape)
        position, value = position.expand(shape), value.to(memory.dtype).expand(shape)
        if self._mask is not None:
            active = self._mask.expand(shape)
            position, value = position[active], value[active]
        if mode:
            self._add(memory, position, value)
        else:
            _put(memory, position, value)
        written[position] = True

    def _add(self, memory: Tensor, position: Tensor, value: Tensor) -> None:
        if not self._output.has_content:
            raise CannotEvaluate("store with mode atomic_add into a buffer without content")
        memory.index_put_((position,), value, accumulate=True)

    def store_reduction(self, name: str, index: Any, value: Tensor) -> None:
        self.store(name, index, value)

    # Reductions and scans along the reduction variables.

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any
    ) -> Any:
        values = value if isinstance(value, (tuple, list)) else (value,)
        rows = tuple(self._space.rows(each) for each in values)
        found = reduce_last(reduction_type, self._computed(dtype), rows)
        if isinstance(found, tuple):
            return tuple(self._space.reduced(each) for each in found)
        return self._space.reduced(found)

    def scan(
        self, dtypes: tuple[torch.dtype, ...], combine: Callable[..., Any], values: Any
    ) -> tuple[Tensor, ...]:
        pairs = zip(values, dtypes, strict=True)
        rows = tuple(self._space.rows(each.to(self._computed(dtype))) for each, dtype in pairs)
        return tuple(each.reshape(self._space.shape) for each in scan_last(combine, rows))


def _put(memory: Tensor, position: Tensor, value: Tensor) -> None:
    memory[position] = value
    kept = memory[position]
    if not bool(((kept == value) | (kept != kept)).all()):
        raise CannotEvaluate("store of different values to one element")


# --- What the operations of a loop body mean, written with torch's eager functions ----------------
#
# The reference is torch/_inductor/ops_handler.py, not what a backend makes of it: `truediv` is true
# division, `floordiv` is for integers alone, `argmin` is the first minimum. An operation
# without an entry in the tables here cannot be evaluated; nothing is approximated.


# A scan combines its elements one by one, in Python.
_LONGEST_SCAN = 2**12


class CannotEvaluate(Exception):
    """Raised for an operation that cannot be evaluated; the message names it."""


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


def _to_integer(rounded: Callable[[Tensor], Tensor]) -> Callable[[Tensor, torch.dtype], Tensor]:
    return lambda x, dtype: rounded(x).to(dtype)


POINTWISE: dict[str, Callable[..., Any]] = {
    # Operations are named as the functions of torch.special that they compute.
    **{name: getattr(torch.special, name) for name in torch.special.__all__},
    **{name: getattr(torch, name) for name in _SAME_IN_TORCH},
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
    "where": lambda condition, x, y: torch.where(condition.bool(), x, y),
    "xor": torch.bitwise_xor,
}


# --- reductions, over the last dimension ----------------------------------------------------------


def _exclusive_or(x: Tensor) -> Tensor:
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        folded = torch.bitwise_xor(x[..., :half], x[..., half : 2 * half])
        x = torch.cat([folded, x[..., 2 * half :]], -1)
    return x.squeeze(-1)


def _first_extreme(x: Tensor, position: Tensor | None, *, smallest: bool) -> tuple[Tensor, Tensor]:
    """Return the smallest or largest value, and the lowest position that has it.

    A NaN counts as the extreme value, as everywhere in torch.
    """
    if position is None:
        position = torch.arange(x.shape[-1], device=x.device)
    value = x.amin(-1) if smallest else x.amax(-1)
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
    """Return the largest value, and the sum of exponentials of differences from it.

    If `x` are maxima themselves, `weight` holds the corresponding sums.
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
    "max": lambda x: x.amax(-1),
    "min": lambda x: x.amin(-1),
    "online_softmax_reduce": _maximum_and_sum,
    "prod": lambda x: x.prod(-1, dtype=x.dtype),
    "sum": lambda x: x.sum(-1, dtype=x.dtype),
    "welford_combine": _combine_means,
    "welford_reduce": _mean_and_deviation,
    "xor_sum": _exclusive_or,
}


def reduce_last(kind: str, dtype: torch.dtype, values: tuple[Tensor, ...]) -> Any:
    """Reduce `values` over their last dimension, accumulating in `dtype`."""
    if kind.startswith(("argmin", "argmax")):
        position = values[1] if len(values) > 1 else None
        return _positional(values[0], kind, position)
    if kind not in _REDUCTIONS:
        raise CannotEvaluate(f"reduction {kind}")
    if kind != "any":
        values = tuple(value.to(dtype) for value in values)
    return _REDUCTIONS[kind](*values)


def scan_last(combine: Callable[..., Any], rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Scan along the last dimension with `combine`, one element after another."""
    length = rows[0].shape[-1]
    if length > _LONGEST_SCAN:
        raise CannotEvaluate(f"scan over {length} elements")
    steps = [tuple(row[..., number] for row in rows) for number in range(length)]
    for number in range(1, length):
        # torch wraps the result of an expression such as `a + b` in lowering.
        combined = combine(steps[number - 1], steps[number])
        steps[number] = tuple(getattr(each, "value", each) for each in combined)
    return tuple(torch.stack(column, -1) for column in zip(*steps, strict=True))


# --- index expressions ----------------------------------------------------------------------------


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y, rounding_mode="floor")


def _modulus(x: Tensor, y: Tensor) -> Tensor:
    # The sign convention, C's or Python's, is not specified; below zero they differ.
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
    sympy_functions.CeilToInt: lambda x: torch.ceil(x).long(),
    sympy_functions.CleanDiv: _floor_divide,
    sympy_functions.FloatTrueDiv: _true_divide,
    sympy_functions.FloorDiv: _floor_divide,
    sympy_functions.FloorToInt: lambda x: torch.floor(x).long(),
    sympy_functions.Identity: lambda x: x,
    sympy_functions.IntTrueDiv: _true_divide,
    sympy_functions.LShift: torch.bitwise_left_shift,
    sympy_functions.Max: _chain(torch.maximum),
    sympy_functions.Min: _chain(torch.minimum),
    sympy_functions.Mod: _modulus,
    sympy_functions.ModularIndexing: lambda x, y, z: torch.remainder(_floor_divide(x, y), z),
    sympy_functions.PowByNatural: _power,
    sympy_functions.PythonMod: torch.remainder,
    sympy_functions.RShift: torch.bitwise_right_shift,
    sympy_functions.RoundToInt: lambda x: torch.round(x).long(),
    sympy_functions.ToFloat: lambda x: x.double(),
    sympy_functions.TruncToInt: lambda x: torch.trunc(x).long(),
    sympy_functions.Where: torch.where,
}


def evaluate_index(expression: Any, symbols: Mapping[Any, Tensor], device: torch.device) -> Tensor:
    """Evaluate an index expression as a tensor over the dimensions of its symbols."""
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
