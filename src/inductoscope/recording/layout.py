"""File names and format version of a recording, and names of signals."""

from __future__ import annotations

import signal
from pathlib import Path

# Increased when older versions could no longer read a recording. New event kinds and fields do not
# increase it: readers ignore what they do not know.
SCHEMA = 1

MANIFEST = "recording.json"
# The doctor's verdict on the run, with the files that it wrote.
VERDICT = "verdict.json"
# What else the doctor writes: the reproducer, further runs.
EXAMINATION = "doctor"
# What `profile` measured, and the results.
PROFILE = "profile"
# The private cache of a run that compiles everything.
CACHE = "cache"
STREAMS = "streams"
PAYLOADS = "payloads"
STREAM_SUFFIX = ".jsonl"
STOPPED_SUFFIX = "-stopped.jsonl"
RESERVE_SUFFIX = ".reserve"

# Reserved by each stream: once freed, the last event fits even on a full disk.
RESERVE_BYTES = 8192


def stream_paths(folder: Path) -> list[Path]:
    """Return the streams of the recording in `folder`, oldest process first."""
    found = (folder / STREAMS).glob("*" + STREAM_SUFFIX)
    return sorted(found, key=lambda path: (path.stem.partition("-")[2].rjust(20), path.stem))


def payload_path(digest: str) -> str:
    """Return the path of a payload relative to the recording; two levels keep folders small."""
    return f"{PAYLOADS}/{digest[:2]}/{digest[2:]}"


# --- Names of signals, as they are shown ----------------------------------------------------------


def signal_name(number: int) -> str:
    """Return a name such as SIGSEGV, or the number of an unknown signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
