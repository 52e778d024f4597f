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
from collections.abc import Container, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from inductoscope.launch.environment import private_cache

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
TRITONS = "TRITON_CACHE_DIR"

# What a run finds in torch's cache: what the user's run finds, nothing, or what the last run left.
CacheContent = Literal["users", "empty", "left"]
USERS: CacheContent = "users"
EMPTY: CacheContent = "empty"
LEFT: CacheContent = "left"

COPY = "as-the-users"

# The newest files of a larger cache are copied; most belong to other programs.
_MOST_BYTES = 1 << 30
_MOST_FILES = 50_000
# Locks belong to processes; headers are linked to by `private_cache_without_scope`.
_NOT_COPIED = ("locks", "precompiled_headers")

# The folders of torch's caches, by the names of these. One without whose entry torch looks for no
# entry in another stands before that.
TRITON, AUTOTUNING, DYNAMO = "Triton", "autotuning", "Dynamo"
FOLDERS = {
    "code": "??",
    TRITON: "triton",
    AUTOTUNING: "cache",
    "AOTAutograd": "aotautograd",
    "FX graph": "fxgraph",
    DYNAMO: "dynamo",
}


def cache_with(
    content: CacheContent, private: Path, environment: Mapping[str, str], *, without: str = ""
) -> dict[str, str]:
    """Fill a folder inside a private cache with what a run is to find, and return its variables.

    Triton's cache is torch's own, that of the first GPU, or the one that the user has named. The
    files of one cache can be left out.
    """
    copy = private / COPY
    triton = copy / "triton" / "0"
    variables = {VARIABLE: str(copy), TRITONS: str(triton)}
    if content == LEFT and copy.exists():
        return variables
    shutil.rmtree(copy, ignore_errors=True)
    triton.mkdir(parents=True, exist_ok=True)
    if content == USERS:
        compiled = private_cache(private)
        _link_files(Path(compiled[TRITONS]), triton)
        for place in Path(compiled[VARIABLE]).glob("??"):
            _link_files(place, copy / place.name)
        own_triton = environment.get(TRITONS)
        _copy_newest(folder(environment), copy, {without, TRITON} if own_triton else {without})
        if own_triton and without != TRITON:
            _copy_newest(Path(own_triton), triton)
    return variables


def cache_of(path: Path) -> str:
    """Return the name of the cache that a file in torch's folder belongs to."""
    if path.suffix == ".best_config":
        return AUTOTUNING
    return next((name for name in FOLDERS if fnmatch(path.parts[0], FOLDERS[name])), "other")


def caches_with_files(environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the caches of the user that have files, by name, with the folder of each."""
    source = folder(environment)
    found = {cache_of(path.relative_to(source)) for path in _files(source)}
    places = {name: source / FOLDERS[name] for name in FOLDERS if name in found}
    if environment.get(TRITONS):
        places.pop(TRITON, None)
        if any(True for _ in _files(Path(environment[TRITONS]))):
            places[TRITON] = Path(environment[TRITONS])
    return {name: places[name] for name in FOLDERS if name in places}


def _copy_newest(source: Path, copy: Path, without: Container[str] = ()) -> None:
    left = min(_MOST_BYTES, shutil.disk_usage(copy).free // 4)
    for size, path in _newest_first(source)[:_MOST_FILES]:
        if cache_of(path.relative_to(source)) in without:
            continue
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


def _link_files(compiled: Path, copy: Path) -> None:
    """Link to what earlier runs compiled: these files are named by their source code."""
    for path in _files(compiled):
        target = copy / path.relative_to(compiled)
        if path.suffix != ".best_config":
            with contextlib.suppress(OSError):
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, target)


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
