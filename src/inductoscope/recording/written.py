"""Reading back a process's own events, with the standard library alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import STREAM_SUFFIX, STREAMS


def written_events(folders: Iterable[Path], kind: str) -> list[dict[str, Any]]:
    """Return the fields of all events of one kind in some recordings, oldest first."""
    mark = f'"kind":"{kind}"'.encode()
    found: list[dict[str, Any]] = []
    for path in (path for each in folders for path in (each / STREAMS).glob("*" + STREAM_SUFFIX)):
        with contextlib.suppress(OSError):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(ValueError):  # The last line may be incomplete.
                    if mark in line[:100]:
                        found.append(json.loads(line))
    return sorted(found, key=lambda fields: float(fields.get("t", 0.0)))
