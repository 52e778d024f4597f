"""The source of a lambda, as a function with a name."""

from __future__ import annotations

import ast
import linecache
from types import CodeType, FunctionType

from inductoscope.errors import ToolFailure

_COMPARED = ("co_names", "co_varnames", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount")


def lambda_as_function(function: FunctionType, name: str) -> str:
    """A definition that does the same as this lambda, which may not be the only one on its line."""
    code = function.__code__
    alike = [node for node in _lambdas_at(code) if _is_same(_code_of(node), code)]
    # How a call is compiled depends on what else is in the file, so instructions may differ.
    exact = [node for node in alike if _code_of(node).co_code == code.co_code]
    found = {
        f"def {name}({ast.unparse(node.args)}):\n    return {ast.unparse(node.body)}\n"
        for node in exact or alike
    }
    if len(found) != 1:
        raise ToolFailure("the function is a lambda whose source cannot be told apart")
    return found.pop()


def _lambdas_at(code: CodeType) -> list[ast.Lambda]:
    try:
        file = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return []
    lambdas = [node for node in ast.walk(file) if isinstance(node, ast.Lambda)]
    return [node for node in lambdas if node.lineno == code.co_firstlineno]


def _code_of(node: ast.Lambda) -> CodeType:
    whole = compile(ast.Expression(node), "<lambda>", "eval")
    return next(part for part in whole.co_consts if isinstance(part, CodeType))


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
