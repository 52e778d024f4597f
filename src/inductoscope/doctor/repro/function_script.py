"""Writes a function of the user as a script, for failures before there is any graph.

The source of the function is copied with what it uses: modules, plain values, other functions of
the same file. What cannot be copied (closures, methods) is refused.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductoscope.doctor.repro.definition_text import PLAIN
from inductoscope.doctor.repro.source_parts import SourceParts
from inductoscope.doctor.search.input_recipes import recipes_for
from inductoscope.errors import ToolFailure


def function_script(
    function: Callable[..., Any], arguments: Sequence[Any], *, fullgraph: bool, title: str
) -> str:
    """The function, inputs of the same shapes and types, and a compiled call that fails."""
    parts = SourceParts()
    name = parts.add_function(function)
    recipes = [_recipe(value) for value in arguments]
    packed = ["base64", "zlib"] if any("zlib." in recipe for recipe in recipes) else []
    imports = [f"import {name}" for name in packed] + sorted({*parts.imports, "import torch"})
    options = ", fullgraph=True" if fullgraph else ""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    head = " ".join(title.split()).replace('"""', "'''").replace("\\", "/")
    inputs = "\n".join(f"        {recipe}," for recipe in recipes)
    return "\n".join(
        [
            f'"""{head}\n\n{versions}, {platform.system()}. Exits with 1 if it fails.\n"""\n',
            *imports,
            *parts.values,
            "\n",
            f"{parts.definitions}\n",
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
    if not isinstance(value, (*PLAIN, torch.Tensor, list, tuple)):
        raise ToolFailure(f"an argument is a {type(value).__name__}")
    every = list(recipes_for(value))
    # What Dynamo refuses hardly ever depends on values, and the script is run to make sure.
    text = next((text for text in every if "randn" in text), every[-1])
    if not text:
        raise ToolFailure("an argument is too large to be written into a script")
    return text
