"""Exports of a recording for other programs: one function per form, listed in `FORMS`.

A form yields its files; `folder` writes them safely. A new form is one file and one line.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from inductoscope.model.entities import Recording
from inductoscope.views.export.folder import LARGEST, Item, Written, write_all
from inductoscope.views.export.graphviz import graphviz
from inductoscope.views.export.perfetto import perfetto
from inductoscope.views.export.raw import everything, raw

Form = Callable[[Recording], Iterator[Item]]

FORMS: dict[str, Form] = {
    "perfetto": perfetto,
    "graphviz": graphviz,
    "json": everything,
    "raw": raw,
}


def export(recording: Recording, folder: Path, forms: tuple[str, ...] = ()) -> tuple[Written, ...]:
    """Write the forms, by default all, into a folder; return the files written."""
    chosen = forms or tuple(FORMS)
    items = [item for form in chosen for item in FORMS[form](recording)]
    largest = max(LARGEST, 64 * _size(recording.path))
    return write_all(folder, items, largest=largest, recording=recording.path, forms=list(chosen))


def _size(folder: str) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # A running program may also remove files.
                total += os.lstat(os.path.join(place, name)).st_size
    return total
