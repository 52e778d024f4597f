"""The header of every view of a recording for an absent GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.model.target import target_view
from inductoscope.views.report.terminal import WARN, Printer

View = dict[str, Any]
Render = Callable[[Printer, View], None]

# Compiles that are named in a line.
_NAMED = 6


def with_target(recording: Recording, view: View, render: Render) -> tuple[View, Render]:
    """Add the note that nothing ran on a GPU to a view, which then begins with it."""
    about = target_view(recording)
    if about is None:
        return view, render

    def print_all(printer: Printer, view: View) -> None:
        _print_target(printer, view["target"])
        render(printer, view)

    return {**view, "target": about}, print_all


def _print_target(printer: Printer, about: View) -> None:
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
