"""Things that exist once: whoever needs one of them uses it from where it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import inductoscope

ROOT = Path(inductoscope.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def code_of(path: Path) -> ast.Module:
    """The syntax tree without docstrings, which may talk about anything."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def names(tree: ast.Module) -> Iterator[str]:
    """Every name and attribute that is used."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


def texts(tree: ast.Module) -> Iterator[str]:
    """Every string, and the fixed parts of those that are put together."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            value = node.value
            yield value if isinstance(value, str) else value.decode("latin-1")


def places(uses: str, *, in_texts: bool) -> list[str]:
    """The files whose code has a name, or a string, that matches."""
    found = []
    for path in FILES:
        tree = code_of(path)
        if any(re.fullmatch(uses, word) for word in (texts if in_texts else names)(tree)):
            found.append(path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize(
    ("what", "uses", "in_texts", "place"),
    [
        # views/env reads /proc/cpuinfo and the like: nothing about a process.
        ("the state of a process", r"(?:/proc/.*)?/?stat", True, "processes/status.py"),
        ("ending a process group", r"killpg", False, "processes/ending.py"),
        ("the signal that asks for stacks", r"SIGRTMIN", False, "processes/stack_signal.py"),
        (
            "what answers that signal, or a crash",
            r"faulthandler",
            False,
            "processes/stack_signal.py",
        ),
        (
            "the parser of stacks that Python dumped",
            r'.*File "\S+", line \S*[^,\s] in .*',
            True,
            "processes/dumps.py",
        ),
        ("dying with the parent", r"prctl", False, "processes/own_limits.py"),
        ("limits of a child", r"setrlimit", False, "processes/own_limits.py"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_there_is_one(what: str, uses: str, in_texts: bool, place: str) -> None:
    assert places(uses, in_texts=in_texts) == [place], what
