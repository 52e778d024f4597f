"""Stored recordings, recordings written by hand, and the tool as a user calls it. No torch."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from inductoscope.cli import main
from inductoscope.recording.events import Entry, Event

RECORDINGS = Path(__file__).resolve().parents[1] / "data" / "recordings"

# Scripts whose recording is kept here; a folder that has only its script is left out.
NAMES = sorted(path.parent.name for path in RECORDINGS.glob("*/recording"))


def stored(name: str) -> Path:
    """The stored recording of tests/data/recordings/NAME/script.py."""
    return RECORDINGS / name / "recording"


def write_recording(
    folder: Path,
    *events: Mapping[str, Any],
    payloads: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Path:
    """A recording of one process that wrote `events`. Payloads that are no text become JSON."""
    (folder / "streams").mkdir(parents=True)
    (folder / "recording.json").write_text(json.dumps({"schema": 1, **(manifest or {})}))
    lines = (json.dumps({"n": n, "t": float(n), **event}) for n, event in enumerate(events))
    (folder / "streams" / "1-1.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for digest, content in (payloads or {}).items():
        path = folder / "payloads" / digest[:2] / digest[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def entries(*events: Event, stream: str = "1-1") -> list[Entry[Event]]:
    """Events as one process wrote them, a second apart."""
    return [Entry(stream, n, float(n), event) for n, event in enumerate(events)]


@dataclass(frozen=True)
class Answer:
    """Output and exit code of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """Both outputs without line breaks, for sentences that may be wrapped anywhere."""
        return " ".join((self.stdout + self.stderr).split())

    @property
    def data(self) -> Any:
        """JSON printed by `--json -`; a constant such as NaN is no JSON."""
        return json.loads(self.stdout, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def inductoscope(*words: str | Path) -> Answer:
    """Type `inductoscope WORDS`, in this process."""
    out, err = io.StringIO(), io.StringIO()
    exit_code = 0
    with (
        mock.patch.object(sys, "argv", ["inductoscope", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 0
    return Answer(exit_code, out.getvalue(), err.getvalue())
