"""Why a program stalled, as seen from outside just before it was ended."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductoscope.doctor.instructions import FOLDER
from inductoscope.doctor.verdict import Verdict
from inductoscope.hangs.watch.stall import Stall

DIAGNOSIS = "stall.json"
_MOST_EVIDENCE = 4


def keep_diagnosis(stall: Stall, folder: Path) -> None:
    """Write down why a program stalled, before it is ended."""
    with contextlib.suppress(OSError, ValueError):
        text = json.dumps(asdict(stall.judgement), default=str)
        (folder / FOLDER / DIAGNOSIS).write_text(text, "utf-8")


def add_diagnosis(verdict: Verdict, folder: Path) -> None:
    """Add it to the evidence."""
    try:
        found: dict[str, Any] = json.loads((folder / FOLDER / DIAGNOSIS).read_text("utf-8"))
        lines = [str(line) for line in found["evidence"]][:_MOST_EVIDENCE]
        verdict.add(f"{found['title']} ({found['confidence']})", "the processes, seen from outside")
    except (OSError, ValueError, KeyError, TypeError):
        return
    for line in lines:
        verdict.add(line)
