"""Loop bodies and IR functions as expressions, so that one can be found in the other.

An FX node's IR function computes everything below it that was not stored. What the node itself
contributed are the expressions that none of its inputs' functions have. The same expressions are
then found in the loop body of the fused node, although names and indices differ there: loads are
told apart by buffer alone, constants by value, everything else by operation and operands.

Long operands are stood for by a digest: written out, an expression that uses its operand twice
would double in length with every line.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

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

_STORES = ("store", "store_reduction")
_LONGEST_OPERAND = 80


@dataclass(frozen=True)
class Step:
    """One line of a loop body: its variable, its text and what it computes."""

    name: str
    text: str
    expression: str


def steps_of(source: str) -> tuple[Step, ...]:
    """The computing lines of an IR function or a loop body. Lines that do not parse are passed."""
    known: dict[str, str] = {}
    steps: list[Step] = []
    for line in source.splitlines():
        statement = _parse(line)
        if statement is None:
            continue
        name, value = statement
        try:
            expression = _expression(value, known)
        except (OverflowError, RecursionError):
            continue
        if expression is None:
            continue
        known[name] = _short(expression)
        steps.append(Step(name, line.strip(), expression))
    return tuple(steps)


def _parse(line: str) -> tuple[str, ast.expr] | None:
    try:
        body = ast.parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(body) == 1 and isinstance(body[0], ast.Assign):
        target = body[0].targets[0]
        if isinstance(target, ast.Name):
            return target.id, body[0].value
    return None


def _expression(node: ast.expr, known: dict[str, str]) -> str | None:
    """What a right-hand side computes; None for index arithmetic and other bookkeeping."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id == "ops":
            return _operation(node.func.attr, node.args, known)
        return None
    if isinstance(node, ast.BinOp):
        return _combine(type(node.op), (node.left, node.right), known)
    if isinstance(node, ast.UnaryOp):
        return _combine(type(node.op), (node.operand,), known)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _combine(type(node.ops[0]), (node.left, node.comparators[0]), known)
    return None


def _operation(name: str, arguments: list[ast.expr], known: dict[str, str]) -> str:
    if name == "load":
        return f"load({_text(arguments[0])})" if arguments else "load()"
    if name in _STORES:
        value = _operand(arguments[2], known) if len(arguments) > 2 else ""
        return f"{name}({_text(arguments[0]) if arguments else ''}, {value})"
    return f"{name}({', '.join(_operand(argument, known) for argument in arguments)})"


def _combine(
    operator: type[ast.AST], operands: Iterable[ast.expr], known: dict[str, str]
) -> str | None:
    inner = [_operand(operand, known) for operand in operands]
    # Index arithmetic combines names that are no values.
    if not any(text in known.values() for text in inner):
        return None
    return f"{_OPERATORS.get(operator, operator.__name__)}({', '.join(inner)})"


def _operand(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return str(float(node.value))
    return _short(_expression(node, known) or _text(node))


def _short(expression: str) -> str:
    if len(expression) <= _LONGEST_OPERAND:
        return expression
    data = expression.encode("utf-8", "backslashreplace")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node)


def own_expressions(function: str, inputs: Iterable[str]) -> frozenset[str]:
    """What an IR function computes that the functions of its inputs do not."""
    below = {step.expression for source in inputs for step in steps_of(source)}
    return frozenset(step.expression for step in steps_of(function)) - below


def matching_steps(
    body: str, expressions: frozenset[str], *, stores: Iterable[str] = (), reduces: bool = False
) -> tuple[Step, ...]:
    """Lines of a loop body that compute one of `expressions`, or that store one of `stores`.

    `reduces`: the node is a reduction that ends in this body, so the reducing line is its own;
    an IR function ends just before it.
    """
    prefixes = [f"{kind}({name}," for kind in _STORES for name in stores]
    if reduces:
        prefixes.append("reduction(")
    return tuple(
        step
        for step in steps_of(body)
        if step.expression in expressions or step.expression.startswith(tuple(prefixes))
    )
