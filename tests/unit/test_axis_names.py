"""Only an axis' own file names it: whatever others need to know, the axis carries."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import inductoscope

ROOT = Path(inductoscope.__file__).parent
AXES = ROOT / "inside" / "search" / "axes"


def name_of_axis(path: Path) -> str:
    """The name that an axis' file gives it, without importing torch."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    (axis,) = [call for call in calls if getattr(call.func, "id", "") in ("Axis", "setting_axis")]
    return str(ast.literal_eval(axis.args[0]))


def knows_the_doctor(path: Path) -> bool:
    return {ROOT / "doctor", ROOT / "inside" / "doctor", AXES.parent} & {
        *path.parents
    } or "inductoscope.doctor" in path.read_text("utf-8")


NAMES = {name_of_axis(path) for path in AXES.glob("*.py") if path.name != "__init__.py"}
OTHERS = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if AXES not in path.parents and knows_the_doctor(path)
]


def test_there_are_names_to_look_for() -> None:
    assert len(NAMES) > 20
    assert len(OTHERS) > 50


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_file_names_an_axis(path: Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    assert not texts & NAMES
