"""Loop bodies and IR functions as expressions, so that one can be found in the other.

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
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from inductoscope.recording.values import filled

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
    """One line of a loop body: its variable, its text and what it computes.

    In a masked part of the body, the name of that part precedes: 'masked_subblock1.load'.
    """

    name: str
    text: str
    # Empty where it need not be known: the recording says whose the line is.
    expression: str = ""
    # The same, as if no index in it had been computed.
    direct: str = ""
    # Its place among the lines, from 0.
    number: int = 0

    @property
    def gathers(self) -> bool:
        """Whether it reads at an index that was computed."""
        return self.expression.startswith("load_indirect(")


@dataclass(frozen=True)
class _Operation:
    """What a line does, before its names are resolved.

    Operands are operations, names, or literal texts.
    """

    name: str
    operands: tuple[_Operation | _Name | str, ...]
    # Infix operators are of values and of indices; only the first compute something.
    is_infix: bool = False


class _Name(str):
    """A name whose value an earlier line may have computed."""


# The same body is asked for once per operation in it.
@lru_cache(maxsize=4096)
def steps_of(source: str) -> tuple[Step, ...]:
    """The computing lines of an IR function or a loop body. Lines that do not parse are passed."""
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
    """What a source says of indices, whose variables have other names in every source.

    An index that was computed, as of a gather, is told from one that was not. An index as a value,
    as of an arange, is known again where a source has no other: then it can only be that one.
    """

    def __init__(self, source: str) -> None:
        self._named = dict(_GET_INDEX.findall(source))
        self._indirect = set(_INDIRECT.findall(source))
        written = {self._named.get(index, index) for index, _ in _INDEX_EXPR.findall(source)}
        self._has_one = len(written) == 1
        self.some_computed = any(self._is_computed(one) for _, one in _LOAD.findall(source))

    def written_plainly(self, line: str) -> str:
        """A line of the source, with indices as they are written in every source."""
        if self._has_one and "index_expr" in line:
            line = _INDEX_EXPR.sub(r"ops.index_expr('index', \2)", line)
        load = _LOAD.search(line)
        if load and self._is_computed(load[2]):
            line = line.replace(load[0], f"ops.load_indirect({load[1]})")
        return line

    def _is_computed(self, index: str) -> bool:
        return self._named.get(index, "") in self._indirect or bool(_COMPUTED.search(index))


def steps_called(body: str, names: Iterable[str]) -> tuple[Step, ...]:
    """The lines of a loop body that have these names."""
    known = _numbers_by_name(body)
    lines = named_lines(body)
    numbers = sorted(number for name in dict.fromkeys(names) for number in known.get(name, ()))
    return tuple(
        filled(Step, name=lines[n][0], text=lines[n][1].strip(), expression="", direct="", number=n)
        for n in numbers
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
    """The lines of a loop body, each after the name that it gives, with its part of the body."""
    block = ""
    found = []
    for line in source.split("\n"):
        begins = _BLOCK.match(line) if line.startswith("def ") else None
        if begins:
            block = "" if begins[1] == "body" else f"{begins[1]}."
        found.append((block + line.strip().partition(" = ")[0], line))
    return tuple(found)


_FLAT_CALL = re.compile(r"(\w+) = ops\.(\w+)\(([^()\[\]{}]*)\)")
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{0,20})?(?:e[+-]?\d\d)?")
_QUOTED = re.compile(r"'[^'\\\\]*'")
_DOTTED = re.compile(r"[A-Za-z_]\w*\.\w+")


# Bodies of one model have many lines in common.
@lru_cache(maxsize=1 << 16)
def _parse(line: str) -> tuple[str, _Operation] | None:
    """The name that a line gives and what it does; None for a line that computes nothing."""
    flat = _FLAT_CALL.fullmatch(line)
    operands = _flat_operands(flat[3]) if flat else None
    if flat and operands is not None:
        return flat[1], _Operation(flat[2], operands)
    return _parse_any(line)


def _flat_operands(text: str) -> tuple[_Name | str, ...] | None:
    """The operands of a call that holds no other; None where the grammar has to be asked."""
    found: list[_Name | str] = []
    for word in text.split(", ") if text else ():
        if word == "None" or word == "True" or word == "False":
            found.append(word)
        elif _PLAIN.fullmatch(word):
            found.append(_Name(word))
        elif _NUMBER.fullmatch(word):
            found.append(str(float(word)))
        elif _QUOTED.fullmatch(word):
            found.append(word[1:-1])
        elif _DOTTED.fullmatch(word):
            found.append(word)
        else:
            return None
    return tuple(found)


def _parse_any(line: str) -> tuple[str, _Operation] | None:
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
    """What a right-hand side does; None for index arithmetic and other bookkeeping."""
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
    return _operation(node) or ast.unparse(node)


def _expression(operation: _Operation, known: dict[str, str]) -> str | None:
    """What an operation computes, with everything below it written out."""
    name, operands = operation.name, operation.operands
    if operation.is_infix:
        inner = [_value(operand, known) for operand in operands]
        # Index arithmetic combines names that are not values.
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
    """An operand as it is written."""
    if isinstance(operand, _Operation):
        return f"{operand.name}({', '.join(_plain(inner) for inner in operand.operands)})"
    return str(operand)


def _short(expression: str) -> str:
    if len(expression) <= _LONGEST_OPERAND:
        return expression
    data = expression.encode("utf-8", "backslashreplace")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def own_expressions(function: str, inputs: Iterable[str]) -> frozenset[str]:
    """What an IR function computes that the functions of its inputs do not.

    What an input computes at an index that was computed is still the input's.
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
    """Lines of a loop body that compute one of `expressions`, or that store one of `stores`.

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
