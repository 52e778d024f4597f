"""Floating-point operations of matrix products, convolutions and attention, by their shapes.

The formulas are those of torch.utils.flop_counter: a product and a sum count as two.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inductoscope.analysis.fusion.sizes import type_width
from inductoscope.model.fx import FxGraph, FxNode
from inductoscope.recording.values import members

Shape = tuple[int, ...]
# The number that a recorded size stands for; raises ValueError where it is unknown.
SizeOf = Callable[[Any], int]


@dataclass(frozen=True)
class MatrixWork:
    """Operations of matrix units, and the type that they are on."""

    flops: int
    dtype: str


def matrix_work(graph: FxGraph, node: FxNode, size_of: SizeOf) -> MatrixWork | None:
    """What a node needs of matrix units; None if it is no such operation, or sizes are unknown."""
    formula = FORMULAS.get(node.operation)
    if formula is None:
        return None
    arguments = _arguments(graph, node, size_of)
    result = _shape(node.value, size_of)
    tensors = [a for a in arguments if isinstance(a, _Operand)]
    if not tensors:
        return None
    try:
        flops = formula(arguments, result)
    except (AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError):
        return None
    return MatrixWork(flops, tensors[-1].dtype)


def operand_bytes(graph: FxGraph, node: FxNode, size_of: SizeOf) -> int:
    """Bytes of the tensors that a node is given, each once: of a view only what it shows."""
    tensors = {a for a in _arguments(graph, node, size_of) if isinstance(a, _Operand)}
    return sum(math.prod(a.shape) * (type_width(a.dtype) or 0) for a in tensors)


def is_convolution(node: FxNode) -> bool:
    """Whether a matrix operation is a convolution, or a part of its backward pass."""
    return "convolution" in node.operation


def is_matrix_operation(node: FxNode) -> bool:
    """Whether it is done by matrix units."""
    return node.operation in FORMULAS


@dataclass(frozen=True)
class _Operand:
    name: str
    shape: Shape
    dtype: str


def _arguments(graph: FxGraph, node: FxNode, size_of: SizeOf) -> list[Any]:
    try:
        tree = ast.parse(node.args or "()", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    items = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return [_argument(graph, item, size_of) for item in items]


def _argument(graph: FxGraph, item: ast.expr, size_of: SizeOf) -> Any:
    if isinstance(item, ast.Name):
        node = graph.node(item.id)
        value = members(node.value) if node is not None else {}
        shape = _shape(value, size_of)
        return None if shape is None else _Operand(item.id, shape, str(value.get("dtype", "")))
    try:
        return ast.literal_eval(item)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _shape(value: Any, size_of: SizeOf) -> Shape | None:
    """Of several results, the first one's."""
    if isinstance(value, list):
        value = value[0] if value else None
    shape = members(value).get("shape")
    if not isinstance(shape, list):
        return None
    try:
        return tuple(size_of(size) for size in shape)
    except ValueError:
        return None


# --- formulas -------------------------------------------------------------------------------------


def _product(first: int) -> Callable[[Sequence[Any], Shape | None], int]:
    """A matrix product whose factors begin at this argument, perhaps for a whole batch."""

    def formula(arguments: Sequence[Any], result: Shape | None) -> int:
        left: Shape = arguments[first].shape
        right: Shape = arguments[first + 1].shape
        return 2 * math.prod(left) * right[-1]

    return formula


def _linear(arguments: Sequence[Any], result: Shape | None) -> int:
    if result is None:
        raise ValueError
    given: Shape = arguments[0].shape
    return 2 * math.prod(result) * given[-1]


def _convolution(arguments: Sequence[Any], result: Shape | None) -> int:
    is_transposed = len(arguments) > 6 and arguments[6] is True
    return _convolved(arguments[0].shape, arguments[1].shape, result, is_transposed)


def _convolved(given: Shape, weight: Shape, result: Shape | None, transposed: bool) -> int:
    """Each element of the output, or of the input where transposed, meets one filter."""
    met = given if transposed else result
    if met is None:
        raise ValueError
    return 2 * math.prod(met) * math.prod(weight[1:])


def _convolution_backward(arguments: Sequence[Any], result: Shape | None) -> int:
    gradient, given, weight = (a.shape for a in arguments[:3])
    forward = _convolved(given, weight, gradient, arguments[7] is True)
    return forward * sum(bool(wanted) for wanted in arguments[10][:2])


def _attention(products: float, first: int = 0) -> Callable[[Sequence[Any], Shape | None], int]:
    """So many products of the size of query times key."""

    def formula(arguments: Sequence[Any], result: Shape | None) -> int:
        query, key, value = (a.shape for a in arguments[first : first + 3])
        pairs = math.prod(query[:-1]) * key[-2]
        return int(pairs * (products * query[-1] + products * value[-1]))

    return formula


FORMULAS: Mapping[str, Callable[[Sequence[Any], Shape | None], int]] = {
    "mm": _product(0),
    "bmm": _product(0),
    "addmm": _product(1),
    "baddbmm": _product(1),
    "_int_mm": _product(0),
    "_scaled_mm": _product(0),
    "_linear_pointwise": _linear,
    "_mkl_linear": _linear,
    "convolution": _convolution,
    "_convolution_pointwise": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(2),
    "_scaled_dot_product_efficient_attention": _attention(2),
    "_scaled_dot_product_cudnn_attention": _attention(2),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(2),
    "_scaled_dot_product_flash_attention_backward": _attention(5, 1),
    "_scaled_dot_product_efficient_attention_backward": _attention(5, 1),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(5, 1),
}
