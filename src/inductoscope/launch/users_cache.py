"""A private copy of the user's cache of compiled code, for a run that has torch's caches.

Such a run must find the entries that the user's run would find, and must leave them as they are.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from inductoscope.launch.environment import private_cache

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"

# What a run finds in torch's cache: what the user's run finds, nothing, or what the last run left.
CacheContent = Literal["users", "empty", "left"]
USERS: CacheContent = "users"
EMPTY: CacheContent = "empty"
LEFT: CacheContent = "left"

COPY = "as-the-users"

# The newest files of a larger cache are copied; most belong to other programs.
_MOST_BYTES = 1 << 30
# Locks belong to processes; headers are linked to by `private_cache_without_scope`.
_NOT_COPIED = ("locks", "precompiled_headers")


def cache_with(content: CacheContent, private: Path, environment: Mapping[str, str]) -> Path:
    """Return a folder inside a private cache that holds what a run is to find in its cache."""
    copy = private / COPY
    if content == LEFT and copy.exists():
        return copy
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    _link_compiled(Path(private_cache(private)[VARIABLE]), copy)
    if content == USERS:
        _copy_newest(folder(environment), copy)
    return copy


def _copy_newest(source: Path, copy: Path) -> None:
    left = min(_MOST_BYTES, shutil.disk_usage(copy).free // 4)
    for size, path in _newest_first(source):
        left -= size
        if left < 0:
            break
        target = copy / path.relative_to(source)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # A link: copying would write through it.
            shutil.copy2(path, target)
        except OSError:  # The file was deleted meanwhile, or is not readable.
            target.unlink(missing_ok=True)


def _link_compiled(private: Path, copy: Path) -> None:
    """Link to what earlier runs compiled: torch names these files by their source code."""
    for place in private.glob("??"):
        for path in place.iterdir():
            if path.suffix != ".best_config" and path.is_file():
                (copy / place.name).mkdir(exist_ok=True)
                with contextlib.suppress(OSError):
                    os.link(path, copy / place.name / path.name)


def folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the user's cache."""
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid_{os.getuid()}"
    user = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir()) / f"torchinductor_{user}"


def has_files(cache: Path) -> bool:
    return any(True for _ in _files(cache))


def _newest_first(source: Path) -> list[tuple[int, Path]]:
    found = []
    for path in _files(source):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    return [(size, path) for _, size, path in sorted(found, reverse=True)]


def _files(source: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(source):
        if Path(place) == source:
            folders[:] = [name for name in folders if name not in _NOT_COPIED]
        yield from (Path(place, name) for name in names if not name.endswith(".lock"))
