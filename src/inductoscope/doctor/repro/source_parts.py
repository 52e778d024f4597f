"""The source of functions of the program, with what they use: imports, values, other functions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from itertools import count
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from inductoscope.doctor.repro.definition_text import (
    PLAIN,
    definition_text,
    names_in_defaults,
    source_of,
)
from inductoscope.doctor.repro.literal_text import literal
from inductoscope.doctor.search.user_kernels import function_of
from inductoscope.errors import ToolFailure
from inductoscope.vocabulary.frames import is_users

TORCH_NAMES = {
    "torch._ops": ("OpOverload", "OpOverloadPacket", "_OpNamespace"),
}


class SourceParts:
    """What a script needs so that a function works in it, collected from the function's code."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.values: list[str] = []
        self.functions: list[str] = []
        self._other_names: list[str] = []
        self._named: dict[str, Any] = {}

    def add_function(self, function: Any, name: str = "") -> str:
        """Add a function, and all that it uses; raises `ToolFailure` if that cannot be copied.

        A lambda gets a name: this one, if it is given. So does a function that is called like one
        that is there already, such as `_`. Returns what the function is called.
        """
        if not isinstance(function, FunctionType) or function.__closure__:
            raise ToolFailure("the function is a method or a closure")
        known = next((name for name, each in self._named.items() if each is function), "")
        if known:
            return known
        own = function.__code__.co_name
        if own == "<lambda>":
            name = name or self._free_name("lambda", function)
        else:
            name = self._free_name(own, function) if own in self._named else own
        self._take_name(name, function)
        text = definition_text(function, name)
        self.functions.append(text)
        self._add_globals(function, names_in_defaults(text))
        return name

    def _free_name(self, like: str, function: FunctionType) -> str:
        names = (f"{like}_{number}" for number in count())
        return next(n for n in names if n not in self._named and n not in function.__globals__)

    def _take_name(self, name: str, item: Any) -> None:
        """One name stands for one thing."""
        if self._named.setdefault(name, item) is not item:
            raise ToolFailure(f"the program has two definitions of {name}")

    def add_kernel(self, function: FunctionType) -> None:
        """Add the function of a Triton kernel, with its decorators."""
        if self._named.get(function.__name__) is function:
            return
        self._take_name(function.__name__, function)
        source = source_of(function)
        self.functions.append(source)
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        for name in sorted(names & function.__globals__.keys()):
            self._add(name, function.__globals__[name])

    def add_class(self, kind: type) -> None:
        """Add a class with its methods."""
        if self._named.get(kind.__name__) is kind:
            return
        self._take_name(kind.__name__, kind)
        self.functions.append(source_of(kind))
        methods = [item for item in vars(kind).values() if isinstance(item, FunctionType)]
        for method in methods:
            self._add_globals(method)
        known = methods[0].__globals__ if methods else {}
        for base in kind.__bases__:
            # As the program writes it: by its own name, or as part of a module.
            names = [name for name, value in known.items() if value is base]
            self._add(names[0], base) if names else self._add_module_of(base)

    @property
    def text(self) -> str:
        """All of it, but `import torch`, which every script has."""
        head = "\n".join([*sorted(self.imports - {"import torch"}), *self.values])
        return "\n\n\n".join(filter(None, [head, self.definitions]))

    @property
    def definitions(self) -> str:
        """All functions and classes; what was added first uses what was added later."""
        return "\n\n".join([*reversed(self.functions), *self._other_names]).rstrip()

    def _add_module_of(self, kind: type) -> None:
        self.imports.add(f"import {kind.__module__}")

    def _add_globals(self, function: FunctionType, more: Iterable[str] = ()) -> None:
        for name in sorted({*_names(function.__code__), *more}):
            if name in function.__globals__ and not name.startswith("__"):
                self._add(name, function.__globals__[name])

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, torch._ops._OpNamespace):
            self._add_value(f"{name} = torch.ops.{value.name}")
        elif isinstance(value, ModuleType):
            same = value.__name__ == name
            self.imports.add(f"import {name}" if same else f"import {value.__name__} as {name}")
        elif isinstance(value, PLAIN):
            self._add_value(f"{name} = {literal(value)}")
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
            self._add_named_function(name, value)

    def _add_named_function(self, name: str, function: Any) -> None:
        """Add a function under the name that a global has, which may not be its own."""
        own = self.add_function(function, name)
        if own != name and self._named.get(name) is not function:
            self._take_name(name, function)
            self._other_names.append(f"{name} = {own}\n")

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


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
