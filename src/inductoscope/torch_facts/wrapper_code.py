"""The code of a loaded Python wrapper: which statements call kernels, and how to exchange it."""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Iterator
from typing import Any

_NO_KERNELS = (
    "assert_",
    "empty_strided",
    "reinterpret_tensor",
    "args.clear",
    "len",
    "as_strided",
    "get_raw_stream",
    "torch.cuda.set_device",
    "inductoscope_",
)


def is_run_by_wrapper(function: ast.FunctionDef) -> bool:
    """Whether kernels are called in it: the entry, or a part of the graph."""
    return function.name == "call" or function.name.startswith("partition")


def kernel_call(statement: ast.stmt) -> tuple[str, ast.Call] | None:
    """The kernel that a statement calls, by the name in the wrapper; None if it calls none."""
    if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(
        statement.value, ast.Call
    ):
        return None
    name = ast.unparse(statement.value.func)
    if name.startswith(_NO_KERNELS):
        return None
    return name.removesuffix(".run"), statement.value


@contextlib.contextmanager
def exchanged(module: Any, code: types.CodeType, names: dict[str, Any]) -> Iterator[None]:
    """While this is active, the functions of a loaded wrapper have the code of a rewritten one.

    Whoever holds one of the functions then calls the rewritten code.
    """
    with contextlib.ExitStack() as stack:
        for function, before in exchange(module, code, names):
            stack.callback(setattr, function, "__code__", before)
        yield


def exchange(
    module: Any, code: types.CodeType, names: dict[str, Any]
) -> list[tuple[types.FunctionType, types.CodeType]]:
    """Give the functions of a loaded wrapper the code of a rewritten one, which uses `names`.

    Returns the functions with the code that they had.
    """
    vars(module).update(names)
    codes, found = _codes_of_functions(code), []
    for name, function in _functions_of(module).items():
        if name in codes:
            found.append((function, function.__code__))
            function.__code__ = codes[name]
    return found


def _codes_of_functions(code: types.CodeType) -> dict[str, types.CodeType]:
    """The code of every function of a module, by its qualified name."""
    found: dict[str, types.CodeType] = {}
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            inner = {f"{item.co_name}.{name}": c for name, c in _codes_of_functions(item).items()}
            found |= {item.co_name: item, **inner}
    return found


def _functions_of(module: Any) -> dict[str, types.FunctionType]:
    """The functions of a wrapper that call kernels."""
    runner = vars(getattr(module, "Runner", object)).get("call")
    found = {"Runner.call": runner, **vars(module)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, types.FunctionType)
        and (name in ("call", "Runner.call") or name.startswith("partition"))
    }
