"""Opens a recording, intact or damaged, and returns its events and payloads.

A recording is untrusted input: it may come from a stranger's bug report. It is parsed as data and
never executed, a digest is checked before it becomes part of a path, no link is followed, and no
file is read that is larger than any run writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from inductoscope.errors import UnreadableRecording
from inductoscope.recording import values
from inductoscope.recording.decoding import parse_line
from inductoscope.recording.events import Entry, Event
from inductoscope.recording.layout import (
    MANIFEST,
    PAYLOADS,
    SCHEMA,
    STOPPED_SUFFIX,
    STREAM_SUFFIX,
    STREAMS,
    payload_path,
    stream_paths,
)

Made = TypeVar("Made")

_DIGEST = re.compile(r"[0-9a-f]{32}")

_LARGEST_FILE = 256 << 20


@dataclass
class RecordingReader:
    """A recording on disk. Reading it collects unreadable parts in `damage`."""

    path: Path
    manifest: dict[str, Any]
    damage: list[Damage] = field(default_factory=list)
    # Payload folders known not to be links: checked once per folder, not per payload.
    _own_folders: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def entries(self) -> Iterator[Entry[Event]]:
        """Yield all events, stream by stream, in the order in which each was written."""
        for path in stream_paths(self.path):
            stream = StreamReader(path)
            yield from stream.read()
            self.damage += stream.damage

    def payload(self, digest: str) -> str | None:
        """Return the text stored under `digest`; None if it is missing or unreadable."""
        data = self.payload_bytes(digest)
        return None if data is None else data.decode("utf-8", "replace")

    def payload_bytes(self, digest: str) -> bytes | None:
        """Read the payload stored under `digest`; None if it is missing or cannot be read."""
        if not _DIGEST.fullmatch(digest):
            return None
        place = payload_path(digest)
        try:
            self._refuse_linked(place.rpartition("/")[0])
            return read_file(f"{self.path}/{place}")
        except FileNotFoundError:
            return None
        except OSError as error:
            self.damage.append(Damage(place, f"cannot be read: {error.strerror}"))
            return None

    def size(self, digest: str) -> int:
        """Return the size in bytes of the payload under `digest`; 0 if it is missing."""
        if not _DIGEST.fullmatch(digest):
            return 0
        try:
            return os.stat(f"{self.path}/{payload_path(digest)}", follow_symlinks=False).st_size
        except OSError:
            return 0

    def _refuse_linked(self, folder: str) -> None:
        if folder not in self._own_folders:
            if os.path.islink(f"{self.path}/{folder}"):
                raise OSError(errno.ELOOP, LINK)
            self._own_folders.add(folder)

    def json_payload(self, digest: str) -> Any:
        """Return the parsed JSON under `digest`; None if it is missing or damaged."""
        return self.decoded_payload(digest, values.parse)

    def decoded_payload(self, digest: str, decode: Callable[[bytes], Made]) -> Made | None:
        """Decode a payload with `decode`; None if it is missing, or damaged (ValueError)."""
        data = self.payload_bytes(digest)
        if data is None:
            return None
        try:
            return decode(data)
        except ValueError:
            self.damage.append(Damage(payload_path(digest), "not whole"))
            return None


def open_recording(path: Path) -> RecordingReader:
    """Open the recording in the folder `path`; UnreadableRecording says why it cannot be opened."""
    path = Path(path).absolute()
    try:
        _refuse_what_is_no_recording(path)
    except OSError as error:
        raise UnreadableRecording(f"{path} cannot be opened: {error.strerror}.") from error
    manifest, damage = _read_manifest(path)
    _refuse_newer_schema(path, manifest)
    return RecordingReader(path=path, manifest=manifest, damage=damage)


def _refuse_what_is_no_recording(path: Path) -> None:
    if not path.exists():
        raise UnreadableRecording(
            f"{path} does not exist. 'inductoscope show --list' lists the recordings."
        )
    if not path.is_dir():
        raise UnreadableRecording(f"{path} is a file; a recording is a folder.")
    if not (path / STREAMS).is_dir() and not (path / MANIFEST).is_file():
        raise UnreadableRecording(
            f"{path} is not a recording: it has neither {MANIFEST} nor {STREAMS}/. "
            "Make one with 'inductoscope run SCRIPT'."
        )
    # A link could bring a file from elsewhere on this machine into pages and exports.
    for folder in (STREAMS, PAYLOADS):
        if (path / folder).is_symlink():
            raise UnreadableRecording(
                f"{path / folder} is {LINK}. Put the folder itself there to read the recording."
            )


def read_file(path: str | Path, largest: int = _LARGEST_FILE) -> bytes:
    """Read a file of a recording; OSError if it is a link, not a regular file, or too large."""
    with open_ordinary(path) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"larger than {largest >> 20} MiB")
        return file.read()


def read_object(path: Path, largest: int = _LARGEST_FILE) -> dict[str, Any]:
    """Read a JSON object from a file of a recording; empty if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        return values.members(values.parse(read_file(path, largest)))
    return {}


def _read_manifest(path: Path) -> tuple[dict[str, Any], list[Damage]]:
    try:
        manifest = values.parse(read_file(path / MANIFEST).decode("utf-8", "replace"))
    except OSError as error:
        return {}, [Damage(MANIFEST, f"cannot be read: {error.strerror}")]
    except ValueError:
        return {}, [Damage(MANIFEST, "cut short or not JSON")]
    if not isinstance(manifest, dict):
        return {}, [Damage(MANIFEST, "not an object")]
    return manifest, []


def _refuse_newer_schema(path: Path, manifest: dict[str, Any]) -> None:
    schema = manifest.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise UnreadableRecording(
            f"{path} was written in format {schema} by {manifest.get('tool', 'a newer version')}; "
            f"this version reads up to {SCHEMA}. Upgrade: pip install --upgrade inductoscope."
        )


# --- Reads one stream, intact or damaged, even while a process is still writing it ----------------
#
# The stream is untrusted: a link is not followed, a pipe is not waited for, and no more of it is
# held in memory than the longest line that a run writes.

_LONGEST_LINE = 64 << 20
LINK = "a link, which is not followed"


@dataclass(frozen=True)
class Damage:
    where: str
    what: str


class StreamReader:
    """A reader of one stream that tracks its offset and the damage found so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A process that has to stop recording notes that in a separate file.
        self.name = path.name.removesuffix(STOPPED_SUFFIX).removesuffix(STREAM_SUFFIX)
        self.damage: list[Damage] = []
        self._position = 0
        self._line = 0
        self._in_long_line = False

    @property
    def pid(self) -> int:
        text = self.name.partition("-")[0]
        return int(text) if text.isdecimal() and text.isascii() else 0

    def read(self) -> Iterator[Entry[Event]]:
        """Yield all entries up to the end of the file; the last line may lack its line break."""
        return self._entries(is_over=True)

    def read_new(self) -> Iterator[Entry[Event]]:
        """Yield entries written since the last call; an incomplete last line is left for later."""
        return self._entries(is_over=False)

    def _entries(self, *, is_over: bool) -> Iterator[Entry[Event]]:
        try:
            file = open_ordinary(self.path)
        except OSError as error:
            self._report(self.path.name, f"cannot be read: {error.strerror}")
            return
        with file:
            file.seek(self._position)
            while line := file.readline(_LONGEST_LINE + 1):
                is_whole = line.endswith(b"\n")
                if not is_whole and not is_over and len(line) <= _LONGEST_LINE:
                    return
                self._position += len(line)
                entry = self._take(line, is_whole=is_whole)
                if entry is not None:
                    yield entry

    def _take(self, line: bytes, *, is_whole: bool) -> Entry[Event] | None:
        if self._in_long_line:
            self._in_long_line = not is_whole
            return None
        self._line += 1
        place = f"{self.path.name}:{self._line}"
        if len(line) > _LONGEST_LINE:
            self._in_long_line = not is_whole
            self._report(place, f"longer than {_LONGEST_LINE >> 20} MiB")
            return None
        if not line.strip():
            return None
        entry = parse_line(self.name, line)
        if entry is None:
            self._report(place, "not a whole event")
        return entry

    def _report(self, where: str, what: str) -> None:
        # Repeated reads of a stream report the same damage once.
        if not self.damage or self.damage[-1] != Damage(where, what):
            self.damage.append(Damage(where, what))


def open_ordinary(path: str | Path) -> IO[bytes]:
    """Open a regular file; OSError if it is a link, or a pipe, which might never end."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, LINK) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not an ordinary file")
    return os.fdopen(descriptor, "rb")
