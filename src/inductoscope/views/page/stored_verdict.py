"""The doctor's verdict, read back from a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.recording.layout import VERDICT
from inductoscope.recording.reader import read_file
from inductoscope.recording.values import members, parse

View = dict[str, Any]

# A verdict is a few pages; anything larger is no verdict.
_LARGEST = 8 << 20


def verdict_view(recording: Recording) -> View | None:
    """What the doctor said of this run; None where it was not asked, or the file is damaged."""
    try:
        found = members(parse(read_file(Path(recording.path) / VERDICT, _LARGEST)))
    except (OSError, ValueError):
        return None
    return _view(found) if found else None


def _view(found: View) -> View:
    names = ("verdict", "stage", "summary", "confidence", "evidence")
    repro = members(found.get("repro"))
    return {
        **{name: found.get(name) for name in names},
        "culprit": {name: value for name, value in members(found.get("culprit")).items() if value},
        "repro": {**repro, "text": str(found.get("repro_text") or "")} if repro else None,
        "workaround": members(found.get("workaround")) or None,
        "issue": str(found.get("issue_text") or ""),
    }
