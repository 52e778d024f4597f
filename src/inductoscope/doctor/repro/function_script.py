"""Writes a function of the user as a script, for failures before there is any graph.

The source of the function is copied with what it uses: modules, plain values, other functions of
the same file. What cannot be copied (closures, methods) is refused.
"""

from __future__ import annotations

import inspect
import platform
import textwrap
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from inductoscope.doctor.search.input_recipes import recipes_for
from inductoscope.errors import ToolFailure

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def function_script(
    function: Callable[..., Any], arguments: Sequence[Any], *, fullgraph: bool, title: str
) -> str:
    """The function, inputs of the same shapes and types, and a compiled call that fails."""
    parts = _Parts()
    parts.add_function(function)
    recipes = [_recipe(value) for value in arguments]
    packed = ["base64", "zlib"] if any("zlib." in recipe for recipe in recipes) else []
    imports = [f"import {name}" for name in packed] + sorted({*parts.imports, "import torch"})
    options = ", fullgraph=True" if fullgraph else ""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    head = " ".join(title.split()).replace('"""', "'''").replace("\\", "/")
    inputs = "\n".join(f"        {recipe}," for recipe in recipes)
    name = getattr(function, "__name__", "fn")
    return "\n".join(
        [
            f'"""{head}\n\n{versions}, {platform.system()}. Exits with 1 if it fails.\n"""\n',
            *imports,
            *parts.values,
            "\n",
            "\n\n".join(reversed(parts.functions)),
            f"\ndef inputs():\n    torch.manual_seed(0)\n    return [\n{inputs}\n    ]\n\n",
            'if __name__ == "__main__":',
            f"    {name}(*inputs())",
            '    print("eager: ok")',
            f"    torch.compile({name}{options})(*inputs())",
            '    print("compiled: ok")',
            "",
        ]
    )


def _recipe(value: Any) -> str:
    if not isinstance(value, (*_PLAIN, torch.Tensor, list, tuple)):
        raise ToolFailure(f"an argument is a {type(value).__name__}")
    every = list(recipes_for(value))
    # What Dynamo refuses hardly ever depends on values, and the script is run to make sure.
    text = next((text for text in every if "randn" in text), every[-1])
    if not text:
        raise ToolFailure("an argument is too large to be written into a script")
    return text


class _Parts:
    """What a function needs, collected from its code."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.values: list[str] = []
        self.functions: list[str] = []
        self._seen: set[str] = set()

    def add_function(self, function: Any) -> None:
        if not isinstance(function, FunctionType) or function.__closure__:
            raise ToolFailure("the function is a method or a closure")
        if function.__name__ in self._seen:
            return
        self._seen.add(function.__name__)
        try:
            source = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError) as error:
            raise ToolFailure("the source of the function cannot be read") from error
        lines = source.splitlines()
        start = next(n for n, line in enumerate(lines) if line.startswith(("def ", "async def ")))
        self.functions.append("\n".join(lines[start:]) + "\n")
        for name in _names(function.__code__):
            if name in function.__globals__:
                self._add(name, function.__globals__[name])

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            self.imports.add(f"import {value.__name__} as {name}")
            if value.__name__ == name:
                self.imports.discard(f"import {name} as {name}")
                self.imports.add(f"import {name}")
        elif isinstance(value, _PLAIN):
            line = f"{name} = {value!r}"
            if line not in self.values:
                self.values.append(line)
        else:
            self.add_function(value)


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
