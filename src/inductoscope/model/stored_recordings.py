"""Recordings on disk: size, command, outcome, liveness, and pruning.

Recordings are not folded, so that the list stays quick for hundreds of large ones. A damaged or
hostile recording never keeps the others from being listed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.model.entities import Ending, ending_of
from inductoscope.processes.status import read_status
from inductoscope.recording.decoding import parse_line
from inductoscope.recording.events import Event, Exited, ProcessEnd, ProcessStart
from inductoscope.recording.layout import EXAMINATION, MANIFEST, SCHEMA, stream_paths
from inductoscope.recording.location import all_recordings, this_machine
from inductoscope.recording.reader import StreamReader, open_ordinary, read_file
from inductoscope.recording.values import members, parse, real, text, texts
from inductoscope.recording.verdict_file import stored_verdict

_LARGEST_FILE = 16 << 20
# The number of bytes at the end of a stream that hold its last events.
_TAIL = 64 << 10
# A process started this many seconds after its stream has reused the pid. The margin is generous
# since clocks are set while programs run, and sparing a recording is the smaller mistake.
_CLOCKS_DIFFER = 600.0
# No process is visible between the creation of the folder and the first event.
_BEGINNING = 60.0
# Processes on another machine are invisible; without events for this long, they have ended.
_SILENCE = 24 * 3600.0


@dataclass(frozen=True)
class GivenVerdict:
    verdict: str
    confidence: str
    partial: bool


@dataclass(frozen=True)
class StoredRecording:
    path: Path
    # Seconds since 1970.
    created: float
    command: tuple[str, ...]
    # The disk usage in bytes.
    size: int
    # 'run', 'doctor', or 'record' for recordings made from inside a program.
    made_by: str
    verdict: GivenVerdict | None
    ending: Ending | None
    # The pid of a process of the run that is alive on this machine; 0 if there is none.
    running: int
    # Whether the recording is recent, unfinished, and of another machine or container.
    may_run_elsewhere: bool
    # Whether the recording was created a moment ago and is still empty.
    just_begun: bool
    # The reason why the folder is not a recording of ours, which protects it; empty if it is.
    not_ours: str

    @property
    def why_kept(self) -> str:
        """The reason why the recording must not be deleted; empty if it may be."""
        if self.running:
            return f"process {self.running} is still running"
        if self.may_run_elsewhere:
            return "it may still be running on another machine or in a container"
        return self.not_ours or ("it has just been begun" if self.just_begun else "")


def stored_recordings() -> list[StoredRecording]:
    return [describe(path) for path in reversed(all_recordings())]


def describe(path: Path) -> StoredRecording:
    manifest, problem = _manifest(path)
    streams = [_read_stream(stream) for stream in _streams(path)]
    ending = next((stream.ending for stream in streams if stream.ending), None)
    verdict, made_by = _verdict(path), _made_by(path, manifest)
    is_over = {
        "run": ending is not None,
        "doctor": verdict is not None and not verdict.partial,
        "record": all(stream.is_closed for stream in streams),
    }
    is_elsewhere = _is_elsewhere(manifest)
    created = real(manifest.get("created")) or _modified(path / MANIFEST)
    return StoredRecording(
        path=path,
        created=created,
        command=texts(manifest.get("command")),
        size=size_on_disk(path),
        made_by=made_by,
        verdict=verdict,
        ending=ending,
        running=0 if is_elsewhere else next((stream.pid for stream in _running(streams)), 0),
        may_run_elsewhere=is_elsewhere and not is_over[made_by] and not _are_silent(streams),
        just_begun=not streams and time.time() - created < _BEGINNING,
        not_ours=problem,
    )


def running_streams(path: Path) -> frozenset[str] | None:
    """Return the streams whose processes are alive; None if this machine cannot see them."""
    manifest, _ = _manifest(path)
    if _is_elsewhere(manifest) or not manifest.get("machine"):
        return None
    return frozenset(stream.path.stem for stream in _running(map(_read_stream, _streams(path))))


# --- the manifest ---------------------------------------------------------------------------------


def _manifest(path: Path) -> tuple[dict[str, Any], str]:
    if path.is_symlink():
        return _manifest(path.resolve())[0], "it is a link to a recording elsewhere"
    try:
        found = parse(read_file(path / MANIFEST, _LARGEST_FILE))
    except OSError as error:
        return {}, f"its {MANIFEST} cannot be read: {error.strerror}"
    except ValueError:
        return {}, f"its {MANIFEST} is cut short or not JSON"
    manifest = members(found)
    schema = manifest.get("schema")
    if not isinstance(schema, int) or not text(manifest.get("tool")).startswith("inductoscope "):
        return manifest, f"its {MANIFEST} was not written by inductoscope"
    newer = f"it was written by a newer version, {manifest['tool']}" if schema > SCHEMA else ""
    return manifest, newer


def _is_elsewhere(manifest: dict[str, Any]) -> bool:
    machine = text(manifest.get("machine"))
    return bool(machine) and machine != this_machine()


def _verdict(path: Path) -> GivenVerdict | None:
    found = stored_verdict(path)
    if not found:
        return None
    return GivenVerdict(
        verdict=text(found.get("verdict")) or "unknown",
        confidence=text(found.get("confidence")) or "unknown",
        partial=found.get("partial") is True,
    )


def _made_by(path: Path, manifest: dict[str, Any]) -> str:
    if manifest.get("inside") is True:
        return "record"
    return "doctor" if os.path.lexists(path / EXAMINATION) else "run"


def _modified(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


# --- disk usage -----------------------------------------------------------------------------------


def size_on_disk(path: Path) -> int:
    """Return the disk usage of a folder; links are not followed, hard links counted once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for inside in _everything_in(path):
        with contextlib.suppress(OSError):
            found = os.lstat(inside)
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                # st_blocks counts units of 512 bytes, whatever the file system's block size.
                total += found.st_blocks * 512
    return total


def _everything_in(path: Path) -> Iterator[str]:
    yield str(path)
    if not path.is_symlink():
        for folder, folders, files in os.walk(path):
            yield from (os.path.join(folder, name) for name in (*folders, *files))


# --- streams and their processes ------------------------------------------------------------------


@dataclass(frozen=True)
class _StreamEnds:
    """The first and last events of a stream, which suffice for a list."""

    path: Path
    pid: int
    is_launcher: bool
    ending: Ending | None
    is_closed: bool


def _streams(path: Path) -> list[Path]:
    """Return the streams of the run and, for the doctor, of all further runs."""
    with contextlib.suppress(OSError):
        runs = sorted((path / EXAMINATION).glob("run-*"))
        return [stream for folder in (path, *runs) for stream in stream_paths(folder)]
    return []


def _read_stream(path: Path) -> _StreamEnds:
    reader = StreamReader(path)
    first = next((entry.event for entry in reader.read()), None)
    last = _last_events(path)
    ending = next((e for e in reversed(last) if isinstance(e, Exited)), None)
    return _StreamEnds(
        path=path,
        pid=reader.pid,
        is_launcher=isinstance(first, ProcessStart) and first.role == "launcher",
        ending=ending_of(ending) if ending else None,
        is_closed=any(isinstance(event, ProcessEnd) for event in last),
    )


def _last_events(path: Path) -> list[Event]:
    try:
        with open_ordinary(path) as file:
            length = os.fstat(file.fileno()).st_size
            file.seek(max(0, length - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return []
    entries = (parse_line(path.stem, line) for line in lines if line.strip())
    return [entry.event for entry in entries if entry is not None]


def _running(streams: Iterable[_StreamEnds]) -> Iterator[_StreamEnds]:
    """Yield the streams of live processes. The tool closes its stream after its first run."""
    unfinished = (stream for stream in streams if stream.is_launcher or not stream.is_closed)
    return filter(_still_runs, unfinished)


def _are_silent(streams: list[_StreamEnds]) -> bool:
    latest = max((_modified(stream.path) for stream in streams), default=0.0)
    return time.time() - latest > _SILENCE


def _still_runs(stream: _StreamEnds) -> bool:
    """Check whether the writer of a stream is alive and its pid has not been reused."""
    status = read_status(stream.pid) if stream.pid else None
    if status is None or not status.is_alive:
        return False
    since_boot = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    started = time.time() - since_boot + status.started
    began = _beginning(stream.path)
    return not began or started <= began + _CLOCKS_DIFFER


def _beginning(stream: Path) -> float:
    """Parse the start time of a stream, in seconds since 1970, from its name; 0 if absent."""
    try:
        return int(stream.stem.partition("-")[2].partition("-")[0], 16) / 1e9
    except ValueError:
        return 0.0


# --- Which recordings to delete: pure decisions about a list of them ------------------------------

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_NUMBER_AND_UNIT = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True)
class PruningLimits:
    """Retention limits. A recording is deleted only if it exceeds every limit that is given."""

    # The minimum age in seconds.
    older_than: float | None = None
    keep: int | None = None
    # The total size in bytes to stay below.
    size: float | None = None


@dataclass(frozen=True)
class PruningPlan:
    """The recordings to delete, and those to keep: not ours, or possibly still in use."""

    delete: tuple[StoredRecording, ...]
    spared: tuple[StoredRecording, ...]


def plan_pruning(
    recordings: Sequence[StoredRecording], limits: PruningLimits, now: float
) -> PruningPlan:
    """Select the recordings that exceed the limits; `recordings` is sorted newest first.

    Recordings that are not ours count neither for `keep` nor for `size`.
    """
    ours = [recording for recording in recordings if not recording.not_ours]
    totals = itertools.accumulate(recording.size for recording in ours)
    beyond = [
        recording
        for number, (recording, total) in enumerate(zip(ours, totals, strict=True))
        if (limits.older_than is None or now - recording.created > limits.older_than)
        and (limits.keep is None or number >= limits.keep)
        and (limits.size is None or total > limits.size)
    ]
    return PruningPlan(
        delete=tuple(recording for recording in beyond if not recording.why_kept),
        spared=tuple(
            recording
            for recording in recordings
            if recording.not_ours or (recording in beyond and recording.why_kept)
        ),
    )


def read_duration(written: str) -> float:
    return _read(written, _SECONDS, "--older-than", "a duration", "7d, 12h, 30m or 2w")


def read_size(written: str) -> float:
    return _read(written, _BYTES, "--size", "a size", "500MB, 1.5GB or 2GiB")


def _read(written: str, units: dict[str, int], option: str, what: str, examples: str) -> float:
    found = _NUMBER_AND_UNIT.fullmatch(written)
    unit = units.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise UsageError(f"{option} {written}: that is not {what}. Write {examples}.")
    return float(found[1]) * unit


# --- Atomic deletion of a recording, whatever interrupts ------------------------------------------
#
# The folder is renamed first, which happens at once or not at all: from then on nobody takes it
# for a recording. Its manifest goes last, so that what an interruption leaves can still be told
# from a folder of somebody else, and the next deletion removes it.

_PREFIX = ".deleted-"
_EFFECTIVE = os.access in os.supports_effective_ids


def delete_recording(path: Path) -> None:
    """Delete the recording in `path` atomically; raise ToolFailure if that is not possible.

    Once begun, the deletion is finished before a Ctrl-C takes effect.
    """
    for folder in _folders(path):
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=_EFFECTIVE):
            raise ToolFailure(
                f"{path} cannot be deleted: {folder} is not writable. "
                f"Allow it first: chmod u+w {shlex.quote(folder)}"
            )
    gone = path.with_name(f"{_PREFIX}{os.getpid()}-{time.time_ns():x}")
    try:
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "it is a link")
        path.rename(gone)
    except OSError as error:
        raise ToolFailure(
            f"{path} cannot be deleted: {error.strerror}. "
            f"Check that you may write to {path.parent}."
        ) from error
    try:
        finish_deletion(gone)
    except KeyboardInterrupt:
        finish_deletion(gone)
        raise


def leftovers(folder: Path) -> list[Path]:
    """Return the remains of interrupted deletions in `folder`, sorted."""
    found = []
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if _is_leftover(path)]
    return sorted(found)


def _is_leftover(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return (
            path.name.startswith(_PREFIX)
            and not path.is_symlink()
            and ((path / MANIFEST).is_file() or not any(path.iterdir()))
        )
    return False


def _folders(path: Path) -> Iterator[str]:
    """Yield the parent folder, the folder, and all folders below it; links are not followed."""
    yield str(path.parent)
    for folder, _, _ in os.walk(path):
        yield folder


def finish_deletion(gone: Path) -> None:
    """Delete the remaining files of a recording, its manifest last."""
    try:
        for inside in sorted(gone.iterdir(), key=lambda inside: inside.name == MANIFEST):
            if inside.is_dir() and not inside.is_symlink():
                shutil.rmtree(inside)
            else:
                inside.unlink(missing_ok=True)
        gone.rmdir()
    except FileNotFoundError:
        return  # Another process removes the folder concurrently.
    except OSError as error:
        raise ToolFailure(
            f"{gone} cannot be deleted completely: {error.strerror} ({error.filename}). "
            "Delete what is left by hand."
        ) from error
