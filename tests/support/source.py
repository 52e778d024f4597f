"""The source files of the package and their syntax trees, parsed once for all tests."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import inductoscope

ROOT = Path(inductoscope.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file; it is shared, so nobody may change it."""
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of it, as ast.walk gives them."""
    return tuple(ast.walk(tree_of(path)))
