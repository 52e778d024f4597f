"""The source of functions of the program, with what they use: imports, values, other functions."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from inductoscope.doctor.repro.lambda_text import lambda_as_function
from inductoscope.doctor.search.user_kernels import function_of
from inductoscope.errors import ToolFailure
from inductoscope.vocabulary.frames import is_users

TORCH_NAMES = {
    "torch._ops": ("OpOverload", "OpOverloadPacket", "_OpNamespace"),
}

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


class SourceParts:
    """What a script needs so that a function works in it, collected from the function's code."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.values: list[str] = []
        self.functions: list[str] = []
        self._seen: set[str] = set()

    def add_function(self, function: Any, name: str = "") -> str:
        """Add a function, and all that it uses; raises `ToolFailure` if that cannot be copied.

        A lambda gets a name: this one, if it is given. Returns what the function is called.
        """
        if not isinstance(function, FunctionType) or function.__closure__:
            raise ToolFailure("the function is a method or a closure")
        is_lambda = function.__name__ == "<lambda>"
        name = (name or f"lambda_{len(self.functions)}") if is_lambda else function.__name__
        if name in self._seen:
            return name
        self._seen.add(name)
        self.functions.append(
            lambda_as_function(function, name) if is_lambda else _definition(_source(function))
        )
        self._add_globals(function)
        return name

    def add_kernel(self, function: FunctionType) -> None:
        """Add the function of a Triton kernel, with its decorators."""
        if function.__name__ in self._seen:
            return
        self._seen.add(function.__name__)
        source = _source(function)
        self.functions.append(source)
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        for name in sorted(names & function.__globals__.keys()):
            self._add(name, function.__globals__[name])

    def add_class(self, kind: type) -> None:
        """Add a class with its methods."""
        if kind.__name__ in self._seen:
            return
        self._seen.add(kind.__name__)
        self.functions.append(_source(kind))
        methods = [item for item in vars(kind).values() if isinstance(item, FunctionType)]
        for method in methods:
            self._add_globals(method)
        known = methods[0].__globals__ if methods else {}
        for base in kind.__bases__:
            # As the program writes it: by its own name, or as part of a module.
            names = [name for name, value in known.items() if value is base]
            self._add(names[0], base) if names else self._add_module_of(base)

    @property
    def definitions(self) -> str:
        """All functions and classes; what was added first uses what was added later."""
        return "\n\n".join(reversed(self.functions)).rstrip()

    def _add_module_of(self, kind: type) -> None:
        self.imports.add(f"import {kind.__module__}")

    def _add_globals(self, function: FunctionType) -> None:
        for name in _names(function.__code__):
            if name in function.__globals__ and not name.startswith("__"):
                self._add(name, function.__globals__[name])

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, torch._ops._OpNamespace):
            self._add_value(f"{name} = torch.ops.{value.name}")
        elif isinstance(value, ModuleType):
            same = value.__name__ == name
            self.imports.add(f"import {name}" if same else f"import {value.__name__} as {name}")
        elif isinstance(value, PLAIN):
            self._add_value(f"{name} = {value!r}")
        elif isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            self._add_value(f"{name} = torch.ops.{value}")
        # Before it is asked for anything: torch's operations have every attribute.
        elif _name_in_library(value):
            self.imports.add(_import_of(_name_in_library(value), name, type(value).__module__))
        elif _is_librarys(value):
            self.imports.add(_import_of(value.__name__, name, value.__module__))
        elif isinstance(value, type):
            self.add_class(value)
        elif type(value).__module__.startswith("triton.runtime"):
            self.add_kernel(function_of(value))
        elif type(value).__module__.startswith("triton.language"):
            self._add_constant(name, value)
        else:
            self.add_function(value, name)

    def _add_constant(self, name: str, value: Any) -> None:
        if not isinstance(getattr(value, "value", None), PLAIN):
            raise ToolFailure(f"the kernel uses {name}, which cannot be written down")
        self.imports.add("import triton.language")
        self._add_value(f"{name} = triton.language.constexpr({value.value!r})")

    def _add_value(self, line: str) -> None:
        if line not in self.values:
            self.values.append(line)


def _import_of(there: str, name: str, module: str) -> str:
    as_named = "" if there == name else f" as {name}"
    return f"from {module} import {there}{as_named}"


def _name_in_library(value: Any) -> str:
    """What an installed package calls the only object of a class of its own; empty if it is none.

    Such as the operations that a lowering is made of.
    """
    module = sys.modules.get(type(value).__module__)
    if module is None or is_users(getattr(module, "__file__", None) or ""):
        return ""
    return next((name for name, other in vars(module).items() if other is value), "")


def _is_librarys(value: Any) -> bool:
    """Whether a function or class can be imported from an installed package."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or is_users(getattr(module, "__file__", None) or ""):
        return False
    return getattr(module, getattr(value, "__name__", ""), None) is value


def _source(item: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(item))
    except (OSError, TypeError) as error:
        raise ToolFailure("the source of the function cannot be read") from error


def _definition(source: str) -> str:
    """A function without its decorators."""
    lines = source.splitlines()
    starts = (n for n, line in enumerate(lines) if line.startswith(("def ", "async def ")))
    start = next(starts, None)
    if start is None:
        raise ToolFailure("the source of the function cannot be told apart")
    return "\n".join(lines[start:]) + "\n"


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
