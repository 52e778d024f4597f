"""What a program that stands still is at, seen from outside just before it is ended."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductoscope.doctor.instructions import FOLDER
from inductoscope.doctor.verdict import Verdict
from inductoscope.hangs.watch.classify import classify
from inductoscope.hangs.watch.looking import look
from inductoscope.processes.tree import sample_tree

STANDSTILL = "standstill.json"
# Between two looks, to tell what works from what waits.
_SECONDS_BETWEEN = 1.0
_MOST_EVIDENCE = 4


def keep_standstill(pid: int, folder: Path) -> None:
    """Look at the processes of a program, and write down what kind of standstill it is."""
    before = sample_tree(pid)
    time.sleep(_SECONDS_BETWEEN)
    with contextlib.suppress(OSError, ValueError):
        scene = look(pid, before)
        if scene is not None:
            text = json.dumps(asdict(classify(scene)), default=str)
            (folder / FOLDER / STANDSTILL).write_text(text, "utf-8")


def add_standstill(verdict: Verdict, folder: Path) -> None:
    """Tell it as evidence."""
    try:
        found: dict[str, Any] = json.loads((folder / FOLDER / STANDSTILL).read_text("utf-8"))
        told = [str(line) for line in found["evidence"]][:_MOST_EVIDENCE]
        verdict.add(f"{found['title']} ({found['confidence']})", "the processes, seen from outside")
    except (OSError, ValueError, KeyError, TypeError):
        return
    for line in told:
        verdict.add(line)
