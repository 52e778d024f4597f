"""Things that exist once: whoever needs one of them uses it from where it is."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from support.source import FILES, ROOT, nodes_of


@functools.cache
def words_of(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Every name and attribute that a file uses, and every string or fixed part of one.

    Docstrings do not count: they may talk about anything.
    """
    names, texts = set(), set()
    docstrings = {
        id(node.body[0].value)  # type: ignore[attr-defined]
        for node in nodes_of(path)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
    }
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            value = node.value
            if id(node) not in docstrings:
                texts.add(value if isinstance(value, str) else value.decode("latin-1"))
    return frozenset(names), frozenset(texts)


def places(uses: str, *, in_texts: bool) -> list[str]:
    """The files whose code has a name, or a string, that matches."""
    return [
        path.relative_to(ROOT).as_posix()
        for path in FILES
        if any(re.fullmatch(uses, word) for word in words_of(path)[in_texts])
    ]


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
            "processes/stacks.py",
        ),
        ("dying with the parent", r"prctl", False, "processes/limits.py"),
        ("limits of a child", r"setrlimit", False, "processes/limits.py"),
        (
            "what overrules a program's settings, or the sizes that it compiles for",
            r'(?s).*(?:_compile_fx_inner = |\*\*kwargs.*"dynamic").*',
            True,
            "profiling/orders.py",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_there_is_one(what: str, uses: str, in_texts: bool, place: str) -> None:
    assert places(uses, in_texts=in_texts) == [place], what


def test_a_number_has_its_noun_in_singular_or_plural() -> None:
    """`count_of` writes '1 graph' and '2 graphs'; 'graph(s)' is written nowhere."""
    assert places(r"(?s).*[a-z]\(s\).*", in_texts=True) == []


def test_whether_a_gpu_can_be_waited_for_is_asked_in_one_way() -> None:
    found = places(r"is_current_stream_capturing", in_texts=False)
    assert found == ["inside/gpu_use.py"]


def test_durations_are_taken_from_a_clock_that_does_not_jump() -> None:
    """Not even where they are held beside torch.profiler's, which are times of day."""
    day = re.compile(r"\btime\.time(?:_ns)?\(|\bdatetime\.now\(")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in FILES
        if day.search(path.read_text("utf-8"))
        and path.relative_to(ROOT).as_posix().startswith("profiling/")
    ]
    assert found == []
