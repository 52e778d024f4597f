"""What an export wrote: the view of `inductoscope export`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from inductoscope.views.export.folder import MANIFEST, Written, kept_files
from inductoscope.views.report.recordings import megabytes
from inductoscope.views.report.terminal import Printer
from inductoscope.vocabulary.counting import count_of

SCHEMA = 1
View = dict[str, Any]

# What to do with each form, told where it was written.
_NEXT = {
    "trace.json": "open it in ui.perfetto.dev or chrome://tracing",
    "graphviz": "dot -Tsvg FILE draws one",
    "recording.json": "everything in one file",
    "raw": "the output of each stage, as files",
}


def export_view(recording: str, folder: Path, written: Iterable[Written]) -> View:
    """What was written, as data."""
    return {
        "schema": SCHEMA,
        "recording": recording,
        "folder": str(folder),
        "files": [vars(file) for file in written],
        "kept": kept_files(folder),
    }


def print_export(printer: Printer, view: View) -> None:
    """One line per kind of file."""
    groups: dict[str, list[View]] = {}
    for file in view["files"]:
        groups.setdefault(file["path"].partition("/")[0], []).append(file)
    printer.heading(f"{count_of(len(view['files']), 'file')} in {view['folder']}")
    for name, files in groups.items():
        size = megabytes(sum(file["bytes"] for file in files))
        count = f"{len(files)} files, " if len(files) > 1 else ""
        printer.pair(name, f"{count}{size}: {_NEXT.get(name, '')}", width=16)
    printer.pair(MANIFEST, "what each file is", width=16)
    if view["kept"]:
        named = ", ".join(view["kept"][:8])
        printer.pair("left alone", f"{len(view['kept'])} not of this export: {named}", width=16)
