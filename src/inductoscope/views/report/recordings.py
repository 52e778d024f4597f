"""The list of recordings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import MANIFEST
from inductoscope.recording.location import recordings_folder
from inductoscope.recording.reader import read_file
from inductoscope.recording.values import members, parse, real, texts
from inductoscope.views.report.terminal import Printer
from inductoscope.vocabulary.counting import count_of

View = dict[str, Any]

_LARGEST_MANIFEST = 16 << 20


def recordings_view(paths: list[Path]) -> View:
    """All recordings as data, oldest first."""
    return {
        "folder": str(recordings_folder()),
        "recordings": [{"path": str(path), **_manifest(path)} for path in paths],
    }


def _manifest(path: Path) -> View:
    try:
        found = members(parse(read_file(path / MANIFEST, _LARGEST_MANIFEST)))
    except (OSError, ValueError):
        found = {}
    return {"created": real(found.get("created")), "command": list(texts(found.get("command")))}


def print_recordings(printer: Printer, view: View) -> None:
    """All recordings as text."""
    printer.heading(f"{count_of(len(view['recordings']), 'recording')} in {view['folder']}")
    for item in view["recordings"]:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(item["created"]))
        printer.pair(Path(item["path"]).name, f"{when}  {' '.join(item['command'])}", width=34)
