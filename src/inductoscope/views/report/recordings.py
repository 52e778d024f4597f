"""The list of recordings, and the result of pruning them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size

from inductoscope.model.stored_recordings import StoredRecording
from inductoscope.recording.layout import signal_name
from inductoscope.recording.location import recordings_folder
from inductoscope.views.plain_text import visible
from inductoscope.views.report.terminal import BAD, FAINT, WARN, Printer
from inductoscope.wording import count_of

View = dict[str, Any]

_OUTCOME_WIDTH = 22


def recordings_view(recordings: Sequence[StoredRecording]) -> View:
    """Return all recordings as data, newest first."""
    return {
        "folder": str(recordings_folder()),
        "bytes": sum(recording.size for recording in recordings),
        "recordings": [recording_view(recording) for recording in recordings],
    }


def recording_view(recording: StoredRecording) -> View:
    verdict, ending = recording.verdict, recording.ending
    return {
        "path": str(recording.path),
        "created": recording.created,
        "command": list(recording.command),
        "made_by": recording.made_by,
        "bytes": recording.size,
        "outcome": _outcome(recording),
        "verdict": verdict.verdict if verdict else None,
        "confidence": verdict.confidence if verdict else None,
        "partial": verdict.partial if verdict else None,
        "exit_code": ending.exit_code if ending else None,
        "signal": ending.signal if ending else None,
        "running": bool(recording.running),
        "why_kept": recording.why_kept,
        "not_ours": recording.not_ours,
    }


def _outcome(recording: StoredRecording) -> str:
    """Describe the outcome in a few words: the doctor's verdict, or the program's ending."""
    verdict, ending = recording.verdict, recording.ending
    if recording.running:
        return "still running"
    if verdict is not None:
        return f"{verdict.verdict}, {'so far' if verdict.partial else verdict.confidence}"
    if recording.made_by == "doctor":
        return "no verdict"
    if ending is not None:
        return signal_name(ending.signal) if ending.signal else f"exit code {ending.exit_code}"
    return "recorded" if recording.made_by == "record" else "end not recorded"


# --- terminal -------------------------------------------------------------------------------------


def print_recordings(printer: Printer, view: View) -> None:
    """Print all recordings, in two lines each."""
    found = view["recordings"]
    total = f", {megabytes(view['bytes'])}" if found else ""
    printer.heading(f"{count_of(len(found), 'recording')}{total} in {view['folder']}")
    for item in found:
        print_recording(printer, item)
    if not found:
        printer.line("Make one with 'inductoscope run SCRIPT'.")


def print_recording(printer: Printer, item: View) -> None:
    """Print name, size and outcome of a recording; then its time and command."""
    name = _one_line(Path(item["path"]).name)
    rest = f"{megabytes(item['bytes']):>9}  {_cut(_one_line(item['outcome']), _OUTCOME_WIDTH)}"
    place = printer.width - _OUTCOME_WIDTH - 12
    if cell_len(name) > place:
        printer.code(name, indent=0)
        name = ""
    printer.code(f"{set_cell_size(name, place)} {rest}", indent=0)
    when = f"  {_when(item['created'])}  "
    command = _cut(_one_line(_command(item)), printer.width - len(when))
    printer.code(when + command, style=FAINT, indent=0)
    if item["not_ours"]:
        printer.line(f"prune never deletes it: {item['not_ours']}", indent=2, style=WARN)


def _cut(text: str, width: int) -> str:
    width = max(10, width)
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _command(item: View) -> str:
    words = item["command"]
    if words and Path(words[0]).name.startswith("python"):
        words = [Path(words[0]).name, *words[1:]]
    return f"{item['made_by']} {shlex.join(words)}"


def _one_line(text: str) -> str:
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _when(created: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(created))[-16:].rjust(16)
    except (OverflowError, OSError, ValueError):
        return "?".ljust(16)


def megabytes(size: float) -> str:
    """Format a size on disk in units of 1000, as `prune --size`; memory uses bytes_text."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


# --- deleting -------------------------------------------------------------------------------------


def print_pruned(printer: Printer, view: View) -> None:
    """Print the recordings deleted, those spared with the reason, and how many are left."""
    deleted, would = view["deleted"], view["dry_run"]
    verb = "would delete" if would else "deleted"
    for item in deleted:
        print_recording(printer, item)
    for item in view["spared"]:
        printer.line(f"spared {item['path']}: {item['why']}", style=WARN)
    for item in view["failed"]:
        printer.line(item["error"], style=BAD)
    freed = f", {megabytes(view['freed'])}" if deleted else ""
    left = f"{count_of(view['left'], 'recording')}, {megabytes(view['left_bytes'])}"
    printer.heading(f"{verb} {count_of(len(deleted), 'recording')}{freed}; {left} left")
    if would and deleted:
        printer.line("Nothing was deleted. Repeat the command without --dry-run to delete these.")
