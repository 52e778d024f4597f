"""Opens a recording, intact or damaged, and returns its events and payloads.

A recording is untrusted input: it may come from a stranger's bug report. It is parsed as data and
never executed, a digest is checked before it becomes part of a path, no link is followed, and no
file is read that is larger than any run writes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from inductoscope.errors import UnreadableRecording
from inductoscope.recording import values
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.reading import Entry
from inductoscope.recording.layout import MANIFEST, PAYLOADS, SCHEMA, STREAMS, payload_path
from inductoscope.recording.stream_reader import (
    LINK,
    Damage,
    StreamReader,
    open_descriptor,
    stream_paths,
)

_DIGEST = re.compile(r"[0-9a-f]{32}")

_LARGEST_FILE = 256 << 20


@dataclass
class RecordingReader:
    """A recording on disk. Reading it fills `damage` with what could not be understood."""

    path: Path
    manifest: dict[str, Any]
    damage: list[Damage] = field(default_factory=list)
    # Folders of payloads that are not links: checked once, not once per payload.
    _own_folders: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def entries(
        self, kinds: Iterable[str] | None = None, undecoded: Collection[str] = ()
    ) -> Iterator[Entry[Event]]:
        """All events, stream by stream, in the order in which each was written.

        Of these `kinds`, if given, which takes a tenth. Lines that may stay `undecoded` take next
        to nothing; see `StreamReader.read`.
        """
        for path in stream_paths(self.path):
            stream = StreamReader(path)
            yield from stream.read(kinds, undecoded)
            self.damage += stream.damage

    def payload(self, digest: str) -> str | None:
        """The text stored under `digest`, or None if it is missing or cannot be read."""
        if not _DIGEST.fullmatch(digest):
            return None
        place = payload_path(digest)
        try:
            self._refuse_linked(place.rpartition("/")[0])
            return _read_text(f"{self.path}/{place}")
        except FileNotFoundError:
            return None
        except OSError as error:
            self.damage.append(Damage(place, f"cannot be read: {error.strerror}"))
            return None

    def size(self, digest: str) -> int:
        """The bytes of what is stored under `digest`; 0 if it is missing."""
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
        """The JSON stored under `digest`, or None if it is missing or damaged."""
        text = self.payload(digest)
        if text is None:
            return None
        try:
            return values.parse(text)
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
    # Otherwise a file from elsewhere on this machine would end up in pages and exports.
    for folder in (STREAMS, PAYLOADS):
        if (path / folder).is_symlink():
            raise UnreadableRecording(
                f"{path / folder} is {LINK}. Put the folder itself there to read the recording."
            )


def read_file(path: str | Path, largest: int = _LARGEST_FILE) -> bytes:
    """A file of a recording; OSError if it is a link, not a regular file, or too large."""
    # Without a file object: a large recording has ten thousand small files.
    descriptor, size = open_descriptor(path)
    try:
        if size > largest:
            raise OSError(errno.EFBIG, f"larger than {_mib(largest)}")
        parts = iter(partial(os.read, descriptor, size + 1), b"")
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _read_text(path: str | Path) -> str:
    return read_file(path).decode("utf-8", "replace")


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


def _read_manifest(path: Path) -> tuple[dict[str, Any], list[Damage]]:
    try:
        manifest = values.parse(_read_text(path / MANIFEST))
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
