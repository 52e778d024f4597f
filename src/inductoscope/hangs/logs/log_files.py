"""The files that make up a log: one file, the parts of a rotated log, or all in a folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BufferedReader

from inductoscope.errors import UsageError

STDIN = "-"
_ROTATED = re.compile(r"^(.*?)(?:\.(\d{1,4}))?(?:\.(gz|bz2|xz))?$")
# Files in a folder of logs that are not logs.
_NO_LOGS = (
    *(".py", ".pyc", ".so", ".cpp", ".h", ".o", ".json", ".html", ".png", ".svg"),
    *(".cubin", ".ptx", ".ttir", ".ttgir", ".llir", ".hsaco", ".best_config", ".lock"),
    *(".pt", ".pt2", ".bin", ".pkl", ".safetensors", ".zip", ".whl", ".tar"),
)
LogStream = BufferedReader | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
_OPENERS: tuple[tuple[bytes, Callable[[str], LogStream]], ...] = (
    (b"\x1f\x8b", gzip.GzipFile),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)
# Raised by reading a file that is damaged, cut off, or compressed otherwise than it says.
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Log:
    """A log: its name, and its files from the oldest part to the newest."""

    name: str
    parts: tuple[str, ...]


def find_logs(paths: Sequence[str]) -> list[Log]:
    files: list[str] = []
    for path in paths:
        if path == STDIN:
            files.append(STDIN)
        elif os.path.isdir(path):
            files += _in_folder(path)
        elif os.path.exists(path):
            files.append(path)
        else:
            raise UsageError(f"There is no file {path}. Give the path of a log or of its folder.")
    return _series(list(dict.fromkeys(files)))


def _in_folder(folder: str) -> list[str]:
    files: list[str] = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        wanted = [n for n in sorted(names) if not n.endswith(_NO_LOGS) and n[0] != "."]
        files += [path for n in wanted if _is_file(path := os.path.join(where, n))]
    if not files:
        raise UsageError(f"There is no log in the folder {folder}.")
    return files


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _series(files: list[str]) -> list[Log]:
    """Join the parts of rotated logs. x.1 is one of x; x.0 and x.1 with no x are two logs."""
    parts: dict[str, list[tuple[int, str]]] = {}
    bases = {_split(path)[0] for path in files if path != STDIN and _split(path)[1] < 0}
    for path in files:
        base, number = _split(path) if path != STDIN else (path, -1)
        name = base if base in bases or path == STDIN else path
        parts.setdefault(name, []).append((number, path))
    return [
        Log(name, tuple(path for _, path in sorted(found, reverse=True)))
        for name, found in parts.items()
    ]


def _split(path: str) -> tuple[str, int]:
    match = _ROTATED.match(path)
    assert match is not None
    return match[1], int(match[2]) if match[2] else -1


def decompressor(path: str) -> Callable[[str], LogStream] | None:
    """Return the function that opens a file whose first bytes show that it is compressed."""
    if path == STDIN or not _is_file(path):
        return None
    with open(path, "rb") as file:
        start = file.read(8)
    return next((opener for magic, opener in _OPENERS if start.startswith(magic)), None)


def open_log(path: str) -> LogStream:
    """Open a file for reading, decompressed.

    Read blocks with `read1`: a large `read` of a truncated compressed file would return nothing.
    """
    opener = decompressor(path)
    return open(path, "rb") if opener is None else opener(path)
