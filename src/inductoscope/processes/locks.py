"""File locks: who holds one, who waits for it, and lock files that nobody holds.

torch takes its locks in a loop, with a pause between two tries, so the kernel knows of no waiter.
A waiter shows in its stack, or by opening the lock file again and again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inductoscope.processes.status import PROC, all_pids

_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")
# Waiters retry every few hundredths of a second.
_TRIES_OF_A_WAITER = 2


@dataclass(frozen=True)
class FileLock:
    """A lock on a file, as the kernel knows it."""

    path: str
    holder: int
    # Processes that the kernel blocks until the lock is free.
    waiters: tuple[int, ...] = ()
    # The number of opens during the observation; the holder opens the file once.
    tries: int = 0

    @property
    def is_wanted(self) -> bool:
        return bool(self.waiters) or self.tries >= _TRIES_OF_A_WAITER


def held_locks() -> list[FileLock]:
    """Return all file locks visible to this user, with paths where known."""
    try:
        lines = (PROC / "locks").read_text().splitlines()
    except OSError:
        return []
    holders: dict[tuple[str, str], tuple[int, list[int]]] = {}
    for line in lines:
        words = line.split()
        waits = "->" in words
        words = [word for word in words if word != "->"]
        if len(words) < 6 or words[1] not in ("FLOCK", "POSIX", "OFDLCK"):
            continue
        key, pid = (words[0], words[5]), int(words[4])
        if waits and key in holders:
            holders[key][1].append(pid)
        elif not waits:
            holders[key] = (pid, [])
    return [
        FileLock(path=_path_of(pid, where), holder=pid, waiters=tuple(waiters))
        for (_, where), (pid, waiters) in holders.items()
        if pid > 0
    ]


def _path_of(pid: int, where: str) -> str:
    """Return the path of an inode among the files that a process has open; empty if none."""
    number = int(where.rpartition(":")[2])
    for path in open_files(pid):
        with contextlib.suppress(OSError):
            if os.stat(path).st_ino == number:
                return path
    return ""


def open_files(pid: int) -> Iterator[str]:
    """Yield the paths of the regular files that a process has open."""
    with contextlib.suppress(OSError):
        for name in os.listdir(PROC / str(pid) / "fd"):
            with contextlib.suppress(OSError):
                path = os.readlink(PROC / str(pid) / "fd" / name)
                if path.startswith("/") and not path.startswith(("/dev/", "/proc/")):
                    yield path


def who_has_open(path: str) -> list[int]:
    """Return the pids that have a file open, as far as this user can see."""
    return [pid for pid in all_pids() if path in open_files(pid)]


def count_tries(paths: Iterable[str], seconds: float) -> dict[str, int]:
    """Count how often each file is opened within `seconds`, with inotify."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError:  # Only Linux has inotify.
        return {}
    if descriptor < 0:
        return {}
    try:
        watched = {}
        for path in paths:
            number = library.inotify_add_watch(descriptor, os.fsencode(path), _IN_OPEN)
            if number >= 0:
                watched[number] = path
        return _count(descriptor, watched, seconds)
    finally:
        os.close(descriptor)


def _count(descriptor: int, watched: dict[int, str], seconds: float) -> dict[str, int]:
    counts: dict[str, int] = {}
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            break
        data = os.read(descriptor, 1 << 16)
        position = 0
        while position + _EVENT.size <= len(data):
            number, _, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size + length
            if number in watched:
                counts[watched[number]] = counts.get(watched[number], 0) + 1
    return counts
