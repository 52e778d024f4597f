"""The header of every view of a recording for an absent GPU."""

from __future__ import annotations

from typing import Any

from inductoscope.views.report.terminal import WARN, Printer

# Compiles that are named in a line.
_NAMED = 6


def print_target(printer: Printer, about: dict[str, Any]) -> None:
    """Print the note, and what could not be compiled for the device."""
    printer.line(about["note"], style=WARN)
    for item in about["left_out"]:
        printer.line(f"Skipped: {item['compile']}: {item['reason']}.", style=WARN, indent=2)
    alike: dict[str, list[str]] = {}
    for item in about["notes"]:
        alike.setdefault(item["note"], []).append(item["compile"])
    for note, compiles in alike.items():
        printer.line(f"{_listed(compiles)}: {note}.", style=WARN, indent=2)
    printer.line()


def _listed(compiles: list[str]) -> str:
    more = f" and {len(compiles) - _NAMED} more" if len(compiles) > _NAMED else ""
    return f"{', '.join(compiles[:_NAMED])}{more}"
