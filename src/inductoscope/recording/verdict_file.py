"""The stored verdict of a recording as untyped data; `doctor` writes it and gives it types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import VERDICT
from inductoscope.recording.reader import read_object

# A verdict is a few pages; anything larger is not a verdict.
_LARGEST = 8 << 20


def stored_verdict(folder: Path) -> Mapping[str, Any]:
    """Read the verdict and the texts it refers to as plain data; empty if it is damaged."""
    return read_object(folder / VERDICT, _LARGEST)
