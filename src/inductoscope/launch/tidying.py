"""Removal of files that no command reads once the program has ended.

Compiled code is by far the largest part of a recording: one precompiled header takes 150 MB. Views
show sources and machine code from the recording's payloads, so only those sources of a private
cache stay that an event or the doctor names: a user may want to look there. AOTInductor's output
stays whole: without a path of its own, the program was told that its package is there.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from inductoscope.launch.environment import HEADERS, TEMPORARY
from inductoscope.launch.users_cache import COPY
from inductoscope.processes.status import read_status
from inductoscope.recording.layout import (
    CACHE,
    EXAMINATION,
    PAYLOADS,
    RESERVE_SUFFIX,
    STREAM_SUFFIX,
    STREAMS,
    VERDICT,
)

_SOURCES = (".py", ".cpp", ".h", ".cu", ".hip")
# The output files of AOTInductor; weights, kernels and metadata are beside them.
_PACKAGES = (".pt2", ".wrapper.so")
# The pattern of a cache file's path in a text.
_IN_CACHE = re.compile(rb"/cache/((?:inductor|triton)/[\w./+-]+)")
# Files passed between processes, which remain if one is killed.
_HANDED_OVER = (".eager-*.pt", ".candidate-*.pt")


def tidy_run(folder: Path) -> None:
    """Remove compiled code and the space reserved by dead processes, after `run`."""
    alive = False
    for stream in (folder / STREAMS).glob("*"):
        pid = stream.name.partition("-")[0]
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        if read_status(int(pid)) is not None:
            alive = True
        elif stream.name.endswith(RESERVE_SUFFIX):
            stream.unlink(missing_ok=True)
    if alive:
        remove_headers(folder)  # A background process still needs its cache.
    else:
        _keep_sources(folder)


def tidy_examination(folder: Path) -> None:
    """Clean up after a complete examination, which is read, but not resumed any more."""
    _keep_sources(folder)
    place = folder / EXAMINATION
    with contextlib.suppress(OSError):
        (place / "stdin").unlink(missing_ok=True)
    for pattern in _HANDED_OVER:
        for path in place.rglob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
    for run in place.glob("run-*"):
        _share_payloads(folder, run)


def remove_headers(folder: Path) -> None:
    """Remove precompiled headers, which torch regenerates on demand."""
    if not (folder / CACHE).is_symlink():
        for name in (TEMPORARY, HEADERS, COPY):
            shutil.rmtree(folder / CACHE / name, ignore_errors=True)


def _keep_sources(folder: Path) -> None:
    """Remove everything from the private cache but referenced sources and packages."""
    cache = folder / CACHE
    if cache.is_symlink() or not cache.is_dir():
        return
    remove_headers(folder)
    named = {cache / name for name in _named_sources(folder)}
    sources = {path for path in named if path.name.endswith(_SOURCES)}
    packages = {path.parent for path in sources if _holds_package(path.parent)}
    for place, folders, files in os.walk(cache, topdown=False):
        for path in (Path(place, name) for name in files):
            if path not in sources and path.parent not in packages:
                with contextlib.suppress(OSError):
                    path.unlink()
        for inner in folders:
            with contextlib.suppress(OSError):  # The folder is not empty, or a link.
                os.rmdir(os.path.join(place, inner))
    with contextlib.suppress(OSError):
        cache.rmdir()


def _holds_package(place: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(name.endswith(_PACKAGES) for name in os.listdir(place))
    return False


def _named_sources(folder: Path) -> Iterator[str]:
    """Yield the cache files that an event, the verdict or a text of the doctor refers to."""
    from inductoscope.recording.reader import open_ordinary

    runs = (folder, *(folder / EXAMINATION).glob("run-*"))
    streams = (path for run in runs for path in (run / STREAMS).glob(f"*{STREAM_SUFFIX}"))
    for text in (*streams, folder / VERDICT, *(folder / EXAMINATION).glob("*.*")):
        with contextlib.suppress(OSError), open_ordinary(text) as lines:
            for line in lines:
                yield from (os.fsdecode(found) for found in _IN_CACHE.findall(line))


def _share_payloads(folder: Path, run: Path) -> None:
    """Hard-link equal payloads of two runs, most of which are identical."""
    for path in (run / PAYLOADS).glob("*/*"):
        first = folder / path.relative_to(run)
        shared = path.with_name(f"{path.name}.shared")
        with contextlib.suppress(OSError):
            if not first.is_symlink() and filecmp.cmp(first, path, shallow=False):
                os.link(first, shared)
                shared.replace(path)
