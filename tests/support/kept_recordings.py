"""Recordings in the user's folder of recordings, written by hand. No torch."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inductoscope.recording.location import recordings_folder, this_machine
from support.examples import inductoscope, write_recording

DAY = 86400.0
# No process has it: Linux gives out numbers below four million.
NOBODY = 2**30

LAUNCHER = {"kind": "process", "pid": NOBODY, "role": "launcher"}
ENDED_WELL = {"kind": "exited", "pid": NOBODY, "exit_code": 0, "seconds": 1.0}
KILLED = {"kind": "exited", "pid": NOBODY, "exit_code": 137, "signal": 9, "seconds": 1.0}


def keep_recording(
    name: str,
    *events: Mapping[str, Any],
    days_ago: float = 0.0,
    manifest: Mapping[str, Any] | None = None,
) -> Path:
    """A recording called `name` that was made some days ago, whose launcher wrote `events`."""
    created = time.time() - days_ago * DAY
    second = time.strftime("%Y%m%d-%H%M%S", time.localtime(created))
    path = write_recording(
        recordings_folder() / f"{second}-{name}",
        LAUNCHER,
        *(events or (ENDED_WELL,)),
        manifest={
            "tool": "inductoscope 0.1.0",
            "created": created,
            "command": ["/usr/bin/python3", f"{name}.py"],
            "machine": this_machine(),
            **(manifest or {}),
        },
    )
    rename_stream(path, NOBODY)
    return path


def rename_stream(recording: Path, pid: int) -> None:
    """Let the only stream of a recording be one that process `pid` has just begun."""
    [stream] = (recording / "streams").iterdir()
    stream.rename(stream.with_name(f"{pid}-{time.time_ns():x}.jsonl"))


def give_verdict(recording: Path, **verdict: Any) -> None:
    """Let the doctor have examined the recording's program."""
    (recording / "doctor").mkdir()
    (recording / "verdict.json").write_text(json.dumps(verdict))


def fill(recording: Path, size: int) -> None:
    """Let the recording take about `size` bytes."""
    (recording / "payloads").mkdir(exist_ok=True)
    (recording / "payloads" / "large").write_bytes(os.urandom(size))


@contextlib.contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Permissions count: root, who may do anything, acts as somebody else for a while."""
    is_root = os.geteuid() == 0
    if is_root:
        inductoscope("recordings")  # What is imported later might not be readable.
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
