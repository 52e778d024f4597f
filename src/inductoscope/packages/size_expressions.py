"""Computes the expressions over sizes that stand in a generated wrapper, as far as it is safe."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

_SUFFIX = re.compile(r"\b(\d+)(?:L|LL|UL)\b")
_CAST = re.compile(r"static_cast<int64_t>")
_PREFIX = re.compile(r"\b(?:c10|std|at)::")
_MOST_LENGTH = 2_000
_MOST = 1 << 63


def value_of(expression: str, values: Mapping[str, int]) -> int | None:
    """The value of a C++ expression over integers; None if it is not a plain one.

    Names are looked up as they are written, also `arg0_1_size[0]`. Nothing is executed.
    """
    text = expression.strip()
    if text in values:
        return values[text]
    if not text or len(text) > _MOST_LENGTH:
        return None
    plain = _PREFIX.sub("", _CAST.sub("", _SUFFIX.sub(r"\1", text)))
    try:
        return _value(ast.parse(plain, mode="eval").body, values)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, values: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, (ast.Name, ast.Subscript)):
        return values.get(ast.unparse(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, values)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp):
        return _combined(node.op, _value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _called(node.func.id, [_value(argument, values) for argument in node.args])
    return None


def _combined(operator: ast.operator, left: int | None, right: int | None) -> int | None:
    if left is None or right is None or abs(left) > _MOST or abs(right) > _MOST:
        return None
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    return None  # C++ divides otherwise than Python does.


def _called(name: str, arguments: list[int | None]) -> int | None:
    known = [value for value in arguments if value is not None]
    if len(known) != len(arguments):
        return None
    if name == "div_floor_integer" and len(known) == 2 and known[1]:
        return known[0] // known[1]
    if name in ("max", "min") and len(known) == 2:
        return max(known) if name == "max" else min(known)
    return known[0] if name in ("int64_t", "long") and len(known) == 1 else None
