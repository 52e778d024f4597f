"""The private torch names that the source files of inductoscope declare.

A file that touches a private name of torch or of Triton lists it at its top:

    TORCH_NAMES = {"torch._inductor.ir": ("Buffer", "NonOwningLayout")}

The keys are modules, the values paths from there; no path means the module itself. The lists are
read and not imported, because some of these files import torch. A test holds each list to what its
file uses. Hooks declare theirs in `capture/hooks`, where a missing one switches the hook off.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from inductoscope.vocabulary.torch_names import TorchName

LIST = "TORCH_NAMES"
_PACKAGE = Path(__file__).parents[2]


def declared_names() -> Iterator[TorchName]:
    """All names that files declare, in the order of the files."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        if LIST in source:
            yield from names_in(ast.parse(source))


def names_in(tree: ast.Module) -> Iterator[TorchName]:
    """The names that one file declares."""
    for statement in tree.body:
        if is_declaration(statement):
            for module, attributes in ast.literal_eval(statement.value).items():
                yield from (TorchName(module, path) for path in attributes or ("",))


def is_declaration(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """Whether a statement is a file's list of names."""
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == LIST for target in statement.targets
    )
