"""The verdict in a recording as the file has it; `doctor` writes it and gives it types."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import VERDICT
from inductoscope.recording.reader import read_file
from inductoscope.recording.values import members, parse

# A verdict is a few pages; anything larger is not a verdict.
_LARGEST = 8 << 20


def stored_verdict(folder: Path) -> Mapping[str, Any]:
    """The file as it is, with the texts that the verdict points at; empty if it is damaged."""
    with contextlib.suppress(OSError, ValueError):
        return members(parse(read_file(folder / VERDICT, _LARGEST)))
    return {}
