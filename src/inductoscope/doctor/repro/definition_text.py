"""The source of a function, written so that it means the same in another file.

Annotations are left out: they may name what only the function's own file knows. A default is
written as the value that it has, since what it was computed from may be gone.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import accumulate
from types import CodeType, FunctionType
from typing import Any

import torch

from inductoscope.doctor.repro.literal_text import literal
from inductoscope.errors import ToolFailure

# What a script can hold as a value.
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)

_COMPARED = ("co_names", "co_varnames", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount")


def source_of(item: Any) -> str:
    """The source of a function or a class; raises `ToolFailure` if it cannot be read."""
    try:
        # By its code: a function may say that it wraps another one, which has its own source.
        return textwrap.dedent(inspect.getsource(getattr(item, "__code__", item)))
    except (OSError, TypeError) as error:
        raise ToolFailure("the source of the function cannot be read") from error


def definition_text(function: FunctionType, name: str) -> str:
    """The definition of a function, or of a lambda, under this name and without decorators."""
    if function.__code__.co_name == "<lambda>":
        return _lambda_text(function, name)
    source = source_of(function).encode()
    try:
        node = ast.parse(source).body[0]
    except SyntaxError:
        node = None
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise ToolFailure("the source of the function cannot be told apart")
    if node.name != name and node.name in function.__code__.co_names:
        raise ToolFailure(f"the program has two definitions of {node.name}")
    text = _edited(source, node, [*_defaults(function, node.args), *_annotations(node)])
    return re.sub(rf"\b{node.name}\b", name, text, count=1)


def names_in_defaults(text: str) -> set[str]:
    """What a definition uses at once, and not only when it is called."""
    node: Any = ast.parse(text).body[0]
    given = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    return set().union(*map(_names_in, given))


def _defaults(function: FunctionType, arguments: ast.arguments) -> Iterator[tuple[ast.expr, str]]:
    """The expressions of defaults that are plain values, and those values."""
    values = function.__defaults__ or ()
    by_name: Mapping[str, Any] = function.__kwdefaults__ or {}
    names = [arg.arg for arg in arguments.kwonlyargs]
    named = {n: node for n, node in zip(names, arguments.kw_defaults, strict=True) if node}
    if len(values) != len(arguments.defaults) or by_name.keys() != named.keys():
        raise ToolFailure("the function has other defaults than its source")
    given = {**dict(zip(arguments.defaults, values, strict=True)),
             **{node: by_name[name] for name, node in named.items()}}  # fmt: skip
    for node, value in given.items():
        if isinstance(node, ast.Constant):
            continue
        if isinstance(value, PLAIN):
            yield node, literal(value)
        elif not _names_in(node) <= {*function.__globals__, *dir(builtins)}:
            raise ToolFailure(f"the function has a default of type {type(value).__name__}")


def _names_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _annotations(node: ast.AST) -> Iterator[tuple[ast.expr, str | None]]:
    """Also of functions inside of it: their definitions are executed. No text: left out."""
    for each in ast.walk(node):
        if isinstance(each, ast.arg) and each.annotation is not None:
            yield each.annotation, None
        elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.returns is not None:
            yield each.returns, None


# --- text -----------------------------------------------------------------------------------------


def _edited(
    source: bytes, node: ast.FunctionDef | ast.AsyncFunctionDef, edits: list[tuple[Any, Any]]
) -> str:
    """The source from `def` on, with other texts in the places of these expressions."""
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    text = source
    for each, new in sorted(edits, key=lambda e: (e[0].lineno, e[0].col_offset), reverse=True):
        start = place(each.lineno, each.col_offset)
        end = place(each.end_lineno, each.end_col_offset)
        before = text[:start]
        if new is None:
            # With the mark before it, unless the annotation is in brackets.
            before = before.rstrip().removesuffix(b":").removesuffix(b"->").rstrip()
        text = before + (new or "").encode() + text[end:]
    return text[place(node.lineno, node.col_offset) :].decode().rstrip() + "\n"


# --- lambdas --------------------------------------------------------------------------------------


def _lambda_text(function: FunctionType, name: str) -> str:
    """A lambda may not be the only one on its line."""
    code = function.__code__
    alike = [node for node in _lambdas_at(code) if _is_same(_code_of(node), code)]
    # How a call is compiled depends on what else is in the file, so instructions may differ.
    exact = [node for node in alike if _code_of(node).co_code == code.co_code]
    found = {_as_function(function, node, name) for node in exact or alike}
    if len(found) != 1:
        raise ToolFailure("the function is a lambda whose source cannot be told apart")
    return found.pop()


def _as_function(function: FunctionType, node: ast.Lambda, name: str) -> str:
    values = dict(_defaults(function, node.args))
    arguments = copy.copy(node.args)
    arguments.defaults = [_with_value(each, values) for each in node.args.defaults]
    arguments.kw_defaults = [each and _with_value(each, values) for each in node.args.kw_defaults]
    return f"def {name}({ast.unparse(arguments)}):\n    return {ast.unparse(node.body)}\n"


def _with_value(node: ast.expr, values: Mapping[ast.expr, str]) -> ast.expr:
    return ast.parse(values[node], mode="eval").body if node in values else node


def _lambdas_at(code: CodeType) -> list[ast.Lambda]:
    try:
        file = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return []
    lambdas = [node for node in ast.walk(file) if isinstance(node, ast.Lambda)]
    return [node for node in lambdas if node.lineno == code.co_firstlineno]


def _code_of(node: ast.Lambda) -> CodeType:
    whole = compile(ast.Expression(node), "<lambda>", "eval")
    # A default may be a lambda too; its code comes before.
    return [part for part in whole.co_consts if isinstance(part, CodeType)][-1]


def _is_same(one: CodeType, other: CodeType) -> bool:
    return (
        all(getattr(one, part) == getattr(other, part) for part in _COMPARED)
        and len(one.co_consts) == len(other.co_consts)
        and all(map(_is_same_constant, one.co_consts, other.co_consts))
    )


def _is_same_constant(one: object, other: object) -> bool:
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return _is_same(one, other)
    return (type(one), one) == (type(other), other)
