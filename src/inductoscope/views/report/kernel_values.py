"""Prints what kernels left in their buffers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inductoscope.recording.kernel_values import FOLDER, INDEX, KernelValue
from inductoscope.views.report.terminal import FAINT, HEADING, WARN, Printer
from inductoscope.vocabulary.counting import count_of

_MOST_LINES = 24


def print_values(
    printer: Printer, folder: Path, kernels: str, values: Sequence[KernelValue]
) -> None:
    """A line for each buffer, and where the numbers are."""
    printer.line()
    if not values:
        printer.line(f"No kernel that was called has a name like {kernels!r}.", style=WARN)
        printer.line("'inductoscope show RECORDING' lists the names of all kernels.", indent=2)
        return
    printer.line(f"Values after each kernel: {count_of(len(values), 'buffer')}", style=HEADING)
    kernel = ""
    for value in values[:_MOST_LINES]:
        if (call := f"{value.kernel}, call {value.call}") != kernel:
            kernel = call
            printer.line(kernel, indent=2)
        printer.line(_line(value), indent=4, style=WARN if value.nan or value.infinite else "")
    if len(values) > _MOST_LINES:
        printer.line(f"{len(values) - _MOST_LINES} more", indent=2, style=FAINT)
    first = next((value.file for value in values if value.file), "")
    # Paths are to be copied, so they are not broken.
    printer.whole(f"  All of them: {folder / FOLDER / INDEX}", style=FAINT)
    if first:
        printer.whole(f"  To read one: torch.load({str(folder / first)!r})", style=FAINT)


def _line(value: KernelValue) -> str:
    shape = "x".join(map(str, value.shape)) or "scalar"
    parts = [f"{value.buffer:10} {value.dtype.removeprefix('torch.')} {shape}"]
    if value.why_not:
        parts.append(f"not saved: {value.why_not}")
    if value.smallest is not None and value.largest is not None and value.mean is not None:
        parts.append(f"{value.smallest:.4g} to {value.largest:.4g}, mean {value.mean:.4g}")
    if value.nan:
        parts.append(f"{value.nan} NaN")
    if value.infinite:
        parts.append(f"{value.infinite} infinite")
    return ", ".join(parts)
