"""Only the table of axes names one: whatever others need to know, the axis carries."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import inductoscope

ROOT = Path(inductoscope.__file__).parent
AXES = ROOT / "inside" / "search" / "axes.py"


def names_of_axes() -> set[str]:
    """The names in the table, without importing torch."""
    nodes = ast.walk(ast.parse(AXES.read_text("utf-8")))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    axes = [call for call in calls if getattr(call.func, "id", "") == "Axis"]
    return {str(ast.literal_eval(axis.args[0])) for axis in axes if axis.args}


def knows_the_doctor(path: Path) -> bool:
    return {ROOT / "doctor", ROOT / "inside" / "doctor", AXES.parent} & {
        *path.parents
    } or "inductoscope.doctor" in path.read_text("utf-8")


NAMES = names_of_axes()
OTHERS = [path for path in sorted(ROOT.rglob("*.py")) if path != AXES and knows_the_doctor(path)]


def test_there_are_names_to_look_for() -> None:
    assert len(NAMES) > 20
    assert len(OTHERS) > 50


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_file_names_an_axis(path: Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    assert not texts & NAMES
