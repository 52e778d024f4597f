"""All forms of one filter, and the files they are written to."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.errors import unwritable
from inductoscope.hangs.choices.contrast import ChoiceCondition
from inductoscope.hangs.choices.filters import PATCHED, assignment_for, patch_for, snippet_for
from inductoscope.hangs.choices.quantities import Configuration

SNIPPET_FILE, PATCH_FILE = "filter.py", "filter.patch"


@dataclass(frozen=True)
class ChoiceFilter:
    """Leaves out the choices that a condition holds for."""

    condition: str
    variable: str
    snippet: str
    # Empty if torch is not installed, or has no place for it.
    patch: str = ""


def filter_for(
    condition: ChoiceCondition, stuck: Sequence[Configuration], *, device: str = "cuda"
) -> ChoiceFilter:
    """The filter for a condition; the patch is for the torch that is installed here."""
    return ChoiceFilter(
        condition.text,
        assignment_for(condition, stuck),
        snippet_for(condition),
        patch_for(condition, _installed_source(), device=device or "cuda"),
    )


def _installed_source() -> str:
    """The text of torch's file, without importing it; empty if it does not exist."""
    try:
        spec = importlib.util.find_spec("torch")
        assert spec is not None
        assert spec.origin is not None
        return (Path(spec.origin).parent.parent / PATCHED).read_text("utf-8")
    except (AssertionError, ImportError, OSError, UnicodeDecodeError, ValueError):
        return ""


def write_filter(choice_filter: ChoiceFilter, folder: Path) -> list[Path]:
    """Write snippet and patch; returns what was written."""
    texts = {SNIPPET_FILE: choice_filter.snippet, PATCH_FILE: choice_filter.patch}
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if text:
                (folder / name).write_text(text, "utf-8")
                written.append(folder / name)
    except OSError as error:
        raise unwritable(folder, error) from error
    return written
