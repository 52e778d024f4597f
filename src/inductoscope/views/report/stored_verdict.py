"""What the doctor concluded about a recorded program, in a few lines."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from inductoscope.doctor.verdict import read_verdict
from inductoscope.model.entities import Recording
from inductoscope.views.report.terminal import Printer
from inductoscope.views.report.trail import print_trail

View = dict[str, Any]


def stored_verdict_view(recording: Recording) -> View | None:
    """The main fields; None if the doctor did not examine this program."""
    found = read_verdict(Path(recording.path))
    if found is None:
        return None
    names = ("verdict", "stage", "confidence", "summary", "partial", "trail")
    data = found.as_data()
    return {name: data[name] for name in names}


def print_stored_verdict(printer: Printer, verdict: View, folder: str) -> None:
    """What the doctor said comes first: it is what the recording was made for."""
    so_far = " (so far: the examination is not complete)" if verdict["partial"] else ""
    printer.heading(f"doctor: {verdict['verdict']}{so_far}")
    printer.line(verdict["summary"], indent=2)
    print_trail(printer, verdict["trail"])
    how = "go on" if verdict["partial"] else "evidence"
    printer.pair(how, f"inductoscope doctor --resume {quote(folder)}")
