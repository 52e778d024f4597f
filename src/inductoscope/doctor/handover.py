"""What an investigation inside the program's process hands over to the doctor outside."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.doctor.instructions import FINDING, PROGRESS


@dataclass
class Found:
    """All that is known about one failure; filled in step by step."""

    compile: str
    failure: dict[str, Any]
    # The process it was seen in, where the program has several.
    process: str = ""
    is_complete: bool = False
    # The backend that failed, if it is not Inductor.
    backend: str = ""
    # What to do, where the machine is to blame and not the compiler.
    advice: str = ""
    # Whether the failure shows again in a fork of the process; all searching rests on that.
    reproduces: bool = False
    location: dict[str, Any] = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)
    # The same as the program calls them.
    calls: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    # Axes that make the failure go away, with the one application that does.
    cures: list[dict[str, Any]] = field(default_factory=list)
    nodes_before: int = 0
    nodes: int = 0
    script: str = ""
    no_script: str = ""
    expected_output: list[str] = field(default_factory=list)
    remedies: list[dict[str, Any]] = field(default_factory=list)
    candidates_tried: int = 0
    notes: list[str] = field(default_factory=list)


def write_found(found: Found, place: Path) -> None:
    """Write what is known so far; a reader sees the old file or the new one."""
    unfinished = place / f".{os.getpid()}-{FINDING}"
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps(asdict(found), default=str), "utf-8")
        os.replace(unfinished, place / FINDING)


def read_found(place: Path) -> Found | None:
    """The finding of a run, if it has one."""
    try:
        data: Mapping[str, Any] = json.loads((place / FINDING).read_text("utf-8"))
        return Found(**data)
    except (OSError, ValueError, TypeError):
        return None


def say(place: Path, text: str) -> None:
    """Tell whoever watches what is being done."""
    with contextlib.suppress(OSError), (place / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"t": time.time(), "text": text}) + "\n")
