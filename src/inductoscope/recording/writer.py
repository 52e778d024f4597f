"""The writer of one process's stream, inside that process.

Guarantees, and how they are kept:
- Each event is one line, handed to the kernel in one `write` to a file opened for appending. A
  `kill -9` therefore loses at most the event being written, and threads need no lock to write.
- No file stays open between events: a program that closes or reuses every descriptor can neither
  break the recording nor have the recording written into one of its files.
- A forked child starts its own stream, named by its process id. It never writes into its
  parent's.
- A write that fails (full disk, folder deleted) ends the recording for this process, silently:
  the program continues. Space reserved at the start lets the last line say so. A folder that was
  deleted is not created again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from inductoscope.recording.events import (
    Event,
    ProcessEnd,
    ProcessStart,
    RecordingStopped,
    written_fields,
)
from inductoscope.recording.layout import (
    PAYLOADS,
    RESERVE_BYTES,
    RESERVE_SUFFIX,
    STOPPED_SUFFIX,
    STREAM_SUFFIX,
    STREAMS,
    payload_path,
)
from inductoscope.recording.privacy import storable, without_secrets

# Unlike a full disk, these errors pass: only the current event is dropped.
_PASSING_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EAGAIN})

_NO_PROCESS = -1

_encode = json.JSONEncoder(
    ensure_ascii=True, separators=(",", ":"), default=str, check_circular=False
).encode

# The lock under which threads start only one stream. A fork may copy it locked.
_beginning = threading.RLock()


def _renew_lock() -> None:
    global _beginning
    _beginning = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class StreamWriter:
    def __init__(self, folder: Path, *, first_event: Callable[[], Event]) -> None:
        """`first_event` describes the process; it is called again in every forked child."""
        self.folder = Path(folder)
        self._first_event = first_event
        self._pid = _NO_PROCESS
        self._path = ""
        self._numbers: Iterator[int] = itertools.count()
        # The wall-clock time of the monotonic clock's zero. Later changes of the system's clock
        # must not alter intervals between events of a stream.
        self._zero = 0.0
        self._known_payloads: set[str] = set()
        self._dropped = 0
        self.stopped: str | None = None

    def emit(self, event: Event) -> None:
        """Append one event. Disk errors never raise."""
        if self._is_ready():
            self._append(event)

    def payload(self, text: str) -> str:
        """Store `text` once and return the digest by which events refer to it."""
        data = text.encode("utf-8", "backslashreplace")
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        if digest not in self._known_payloads and self._is_ready():
            try:
                self._store(digest, data)
            except OSError as error:
                self._give_up(error)
            else:
                self._known_payloads.add(digest)
        return digest

    def _is_ready(self) -> bool:
        """Check that the stream is open; start it at first use, and again after a fork."""
        if self._pid != os.getpid():
            with _beginning:
                if self._pid != os.getpid():
                    self._begin()
        return self._pid == os.getpid() and self.stopped is None

    def _begin(self) -> None:
        if self._pid != _NO_PROCESS:  # This process is a forked child.
            self._pid, self._dropped, self.stopped = _NO_PROCESS, 0, None
        self._numbers = itertools.count()
        self._zero = time.time() - time.monotonic()
        name = f"{os.getpid()}-{time.time_ns():x}"
        self._path = str(self.folder / STREAMS / (name + STREAM_SUFFIX))
        self._last_words = str(self.folder / STREAMS / (name + STOPPED_SUFFIX))
        self._reserve = str(self.folder / STREAMS / (name + RESERVE_SUFFIX))
        try:
            (self.folder / STREAMS).mkdir(exist_ok=True)
            _write_file(self._reserve, b"\n" * RESERVE_BYTES)
        except OSError as error:
            self._give_up(error)
            if self.stopped is None:
                return  # The next event retries.
        else:
            self._append(self._first_event())
        # Set the pid last: from then on, other threads write.
        self._pid = os.getpid()

    def _append(self, event: Event) -> None:
        try:
            _append_line(self._path, self._line(event))
        except OSError as error:
            self._give_up(error)

    def _line(self, event: Event) -> bytes:
        number, time_ = next(self._numbers), round(self._zero + time.monotonic(), 6)
        line = {"n": number, "t": time_, "kind": event.kind, **written_fields(event)}
        return (_encode(line) + "\n").encode()

    def _store(self, digest: str, data: bytes) -> None:
        """Write a payload atomically, by renaming a temporary file."""
        final = self.folder / payload_path(digest)
        if final.exists():
            return
        (self.folder / PAYLOADS).mkdir(exist_ok=True)
        final.parent.mkdir(exist_ok=True)
        unfinished = self.folder / PAYLOADS / f".{os.getpid()}-{threading.get_ident()}-{digest}"
        try:
            _write_file(str(unfinished), data)
            os.replace(unfinished, final)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    def _give_up(self, error: OSError) -> None:
        if error.errno in _PASSING_ERRORS:
            self._dropped += 1
            return
        self.stopped = error.strerror or type(error).__name__
        try:
            os.unlink(self._reserve)
            # The reason goes to a separate file: the stream may end mid-line, or be full.
            _append_line(self._last_words, self._line(RecordingStopped(reason=self.stopped)))
        except OSError:
            pass  # The reader notices a stream that ends without a last event.

    def close(self) -> None:
        """Record that the process ended normally, and free the reserve."""
        if self._pid != os.getpid() or self.stopped is not None:
            return
        self._append(ProcessEnd(dropped=self._dropped))
        with contextlib.suppress(OSError):
            os.unlink(self._reserve)


def _append_line(path: str, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        written = os.write(descriptor, line)
    finally:
        os.close(descriptor)
    if written != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write_file(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def describe_process(role: str = "") -> ProcessStart:
    return ProcessStart(
        role=role,
        pid=os.getpid(),
        parent=os.getppid(),
        argv=tuple(without_secrets(getattr(sys, "orig_argv", sys.argv))),
        executable=sys.executable,
        python=platform.python_version(),
        rank=os.environ.get("RANK", ""),
        environment=storable(os.environ),
        names_threads=True,
    )


def describe_launcher() -> ProcessStart:
    return describe_process(role="launcher")
