"""Writing an export: it replaces files of an earlier export, and never any others.

A manifest in the folder lists each file with its digest: a file is replaced or removed only if it
is listed there and unchanged since. All other files in the folder are listed as `kept`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError, unwritable
from inductoscope.recording.reader import read_object
from inductoscope.recording.values import objects, texts
from inductoscope.version import __version__
from inductoscope.views.report.recordings import megabytes
from inductoscope.views.report.terminal import Printer
from inductoscope.wording import count_of

MANIFEST = "manifest.json"
SCHEMA = 1
# A recording may reference one text many times, and an export writes it each time.
LARGEST = 4 << 30
_MOST_KEPT = 100


@dataclass(frozen=True)
class Written:
    path: str
    what: str
    graph: str
    stage: str
    bytes: int
    sha256: str


def write_all(
    folder: Path, items: Iterable[Item], *, largest: int = LARGEST, **about: Any
) -> tuple[Written, ...]:
    """Write every item and the manifest; UsageError if that would overwrite other files."""
    items = _with_unique_paths(items)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = set(_unchanged_files(folder))
        for path in (*(item.path for item in items), MANIFEST):
            _refuse_foreign(folder, path, earlier)
        _remove(folder, earlier)
        kept = _files_in(folder)
        written: list[Written] = []
        try:
            written.extend(_write_up_to(largest, folder, items))
        finally:
            # The manifest is written even after a failure, so that the next export may overwrite
            # files.
            head = {"schema": SCHEMA, "tool": f"inductoscope {__version__}", **about, "kept": kept}
            text = json.dumps({**head, "files": [*map(vars, written)]}, indent=1) + "\n"
            _create(folder, MANIFEST, text.encode("utf-8"))
    except OSError as error:
        raise unwritable(folder, error) from error
    return tuple(written)


def _with_unique_paths(items: Iterable[Item]) -> list[Item]:
    """Number repeated names, including those that differ only in case."""
    items = list(items)
    # No file may take the name of a folder that another file is in.
    taken = {MANIFEST, *(folder for item in items for folder in _folders(item.path.lower()))}
    last: dict[str, int] = {}
    found = []
    for item in items:
        path, (stem, suffix) = item.path, posixpath.splitext(item.path)
        number = last.get(path.lower(), 1)
        while path.lower() in taken:
            number += 1
            path = f"{stem}_{number}{suffix}"
        last[item.path.lower()] = number
        taken.add(path.lower())
        found.append(Item(path, item.what, item.make, item.graph, item.stage))
    return found


def _folders(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _write_up_to(largest: int, folder: Path, items: Iterable[Item]) -> Iterator[Written]:
    left = largest
    for item in items:
        data = item.make().encode("utf-8", "backslashreplace")
        left -= len(data)
        if left < 0:
            raise ToolFailure(
                f"The export would be larger than {largest >> 20} MiB, far larger than the "
                "recording. Choose fewer forms with --form."
            )
        _create(folder, item.path, data)
        yield Written(item.path, item.what, item.graph, item.stage, len(data), _digest(data))


def kept_files(folder: Path) -> list[str]:
    return list(texts(_manifest(folder).get("kept")))


def _manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of an earlier export; empty if there is none."""
    known = read_object(folder / MANIFEST)
    return known if str(known.get("tool", "")).startswith("inductoscope") else {}


def _unchanged_files(folder: Path) -> Iterator[str]:
    """Yield the unmodified files of an earlier export, and its manifest."""
    known = _manifest(folder)
    if known:
        yield MANIFEST
    for row in objects(known.get("files")):
        path, target = str(row.get("path")), folder / str(row.get("path"))
        is_plain = _lies_in(folder, path) and not target.is_symlink() and target.is_file()
        if is_plain and _digest(target.read_bytes()) == row.get("sha256"):
            yield path


def _remove(folder: Path, paths: set[str]) -> None:
    for path in paths:
        (folder / path).unlink()
        for parent in Path(path).parents[:-1]:
            with contextlib.suppress(OSError):  # The folder is not empty.
                (folder / parent).rmdir()


def _lies_in(folder: Path, path: str) -> bool:
    """Check that an untrusted path from a manifest stays inside the folder."""
    parts = path.split("/")
    if os.path.isabs(path) or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        return False
    parents = ["/".join(parts[:count]) for count in range(1, len(parts))]
    return not any((folder / parent).is_symlink() for parent in parents)


def _files_in(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(path for path in islice(found, _MOST_KEPT) if not (folder / path).is_dir())


def _refuse_foreign(folder: Path, path: str, own: set[str]) -> None:
    target = folder / path
    for parent in target.relative_to(folder).parents[:-1]:
        place = folder / parent
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise UsageError(f"{place} is not a plain folder. Choose another --to.")
    if os.path.lexists(target) and path not in own:
        raise UsageError(
            f"{target} is not part of an export, or has changed since. Choose another --to."
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _create(folder: Path, path: str, data: bytes) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    # Exclusive creation does not follow a link created in the meantime.
    with open(target, "xb") as file:
        file.write(data)


# --- One file of an export ------------------------------------------------------------------------

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+|\.{2,}")
_LONGEST = 80


@dataclass(frozen=True)
class Item:
    """A file of an export: its path, a description, and a function that makes its text."""

    path: str
    what: str
    make: Callable[[], str]
    graph: str = ""
    stage: str = ""


def safe_name(text: str, otherwise: str = "unnamed") -> str:
    """Make a name safe for a file or folder: no path separators or special characters."""
    name = _UNSAFE.sub("_", text).lstrip("._-")[:_LONGEST].rstrip("._-")
    return name or otherwise


# --- What an export wrote: the view of `inductoscope export` --------------------------------------

VIEW_SCHEMA = 1
View = dict[str, Any]

# How to use each form, printed after the export.
_NEXT = {
    "trace.json": "open it in ui.perfetto.dev or chrome://tracing",
    "graphviz": "dot -Tsvg FILE draws one",
    "recording.json": "everything in one file",
    "raw": "the output of each stage, as files",
}


def export_view(recording: str, folder: Path, written: Iterable[Written]) -> View:
    return {
        "schema": VIEW_SCHEMA,
        "recording": recording,
        "folder": str(folder),
        "files": [vars(file) for file in written],
        "kept": kept_files(folder),
    }


def print_export(printer: Printer, view: View) -> None:
    """Print one line per kind of file."""
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
