"""Objects that are made without their `__init__`: nobody else would miss a field."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from inductoscope.recording.decoding import read_event
from inductoscope.recording.events import KINDS
from support.source import FILES, ROOT, nodes_of


def calls_in(path: Path) -> Iterator[ast.Call]:
    """Calls of `filled` that name their fields."""
    for call in nodes_of(path):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("filled", "values.filled"):
            yield from [call] if call.keywords and all(word.arg for word in call.keywords) else []


CALLS = [
    (path, call)
    for path in FILES
    if "filled(" in path.read_text("utf-8")
    for call in calls_in(path)
]


def test_the_calls_are_found() -> None:
    assert len(CALLS) >= 10


@pytest.mark.parametrize(
    ("path", "call"), CALLS, ids=[f"{path.stem}:{call.lineno}" for path, call in CALLS]
)
def test_every_field_is_filled(path: Path, call: ast.Call) -> None:
    dotted = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    kind = getattr(importlib.import_module(dotted), ast.unparse(call.args[0]))
    assert {word.arg for word in call.keywords} == {field.name for field in fields(kind)}
    assert not hasattr(kind, "__post_init__")


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_without_anything_has_all_its_fields(kind: str) -> None:
    event = read_event(kind, {})
    assert vars(event).keys() == {field.name for field in fields(KINDS[kind])}
