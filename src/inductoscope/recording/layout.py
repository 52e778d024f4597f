"""Names of the files in a recording, and the version of its format."""

from __future__ import annotations

# Raised when a reader of an older version could no longer make sense of a recording.
# Added event kinds and added fields do not raise it: readers ignore what they do not know.
SCHEMA = 1

MANIFEST = "recording.json"
# What the doctor said of the run, with the texts that it wrote.
VERDICT = "verdict.json"
STREAMS = "streams"
PAYLOADS = "payloads"
STREAM_SUFFIX = ".jsonl"
STOPPED_SUFFIX = "-stopped.jsonl"
RESERVE_SUFFIX = ".reserve"

# Reserved by each stream: once freed, the last event fits even on a full disk.
RESERVE_BYTES = 8192


def payload_path(digest: str) -> str:
    """Where a payload lies, relative to the recording: two levels keep folders small."""
    return f"{PAYLOADS}/{digest[:2]}/{digest[2:]}"
