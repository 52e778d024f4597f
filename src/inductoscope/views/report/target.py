"""What every view of a recording for a device that is not there begins with."""

from __future__ import annotations

from typing import Any

from inductoscope.views.report.terminal import WARN, Printer


def print_target(printer: Printer, about: dict[str, Any]) -> None:
    """The note, and what could not be compiled for the device."""
    printer.line(about["note"], style=WARN)
    for item in about["left_out"]:
        printer.line(f"Skipped: {item['compile']}: {item['reason']}.", style=WARN, indent=2)
    for item in about["notes"]:
        printer.line(f"{item['compile']}: {item['note']}.", style=WARN, indent=2)
    printer.line()
