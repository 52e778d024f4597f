"""Follows the streams of a recording while the program writes them."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import STREAM_SUFFIX, STREAMS

# Rounds of fusion may go on for ever: they are no sign of getting anywhere.
_NO_PROGRESS = ("fusion-", "fused", "pair")


@dataclass
class Stream:
    """How far one process has come, read from its stream bit by bit."""

    path: Path
    # Stages entered and not left, outermost first.
    stages: list[dict[str, Any]] = field(default_factory=list)
    # Native compiles and choices that have begun and not ended, by what they compile.
    natives: dict[str, dict[str, Any]] = field(default_factory=dict)
    choices: dict[str, float] = field(default_factory=dict)
    # Where the functions are that were compiled, by compile id.
    functions: dict[str, str] = field(default_factory=dict)
    last_node: str = ""
    moved: float = field(default_factory=time.monotonic)
    has_ended: bool = False
    role: str = ""
    rank: str = ""
    _read: int = 0

    @property
    def pid(self) -> int:
        """The process that writes it; 0 where the name says none."""
        text = self.path.name.partition("-")[0]
        return int(text) if text.isdigit() else 0

    def catch_up(self) -> None:
        """Read what was written since."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(newline)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        self._take(str(event.get("kind")), event)

    def _take(self, kind: str, event: dict[str, Any]) -> None:
        if not kind.startswith(_NO_PROGRESS):
            self.moved = time.monotonic()
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, event)

    @property
    def compile(self) -> str:
        """The compile under way."""
        return next((str(s["compile"]) for s in reversed(self.stages) if s.get("compile")), "")


def _begin(stream: Stream, event: dict[str, Any]) -> None:
    stream.stages.append(event)


def _end(stream: Stream, event: dict[str, Any]) -> None:
    """Stages end in order on one thread; those of another thread are found by their name."""
    for number in range(len(stream.stages) - 1, -1, -1):
        if stream.stages[number].get("stage") == event.get("stage"):
            del stream.stages[number]
            return


def _native_key(event: dict[str, Any]) -> str:
    return f"{event.get('tool')} {event.get('kernel')} {event.get('config')} {event.get('source')}"


def _native_begins(stream: Stream, event: dict[str, Any]) -> None:
    stream.natives[_native_key(event)] = event


def _native_ends(stream: Stream, event: dict[str, Any]) -> None:
    stream.natives.pop(_native_key(event), None)


def _choice_begins(stream: Stream, event: dict[str, Any]) -> None:
    stream.choices[str(event.get("choice"))] = time.monotonic()


def _choice_ends(stream: Stream, event: dict[str, Any]) -> None:
    stream.choices.pop(str(event.get("choice")), None)


def _compile_begins(stream: Stream, event: dict[str, Any]) -> None:
    stream.functions[str(event.get("compile"))] = f"{event.get('file')}:{event.get('line')}"


def _lowered(stream: Stream, event: dict[str, Any]) -> None:
    stream.last_node = str(event.get("node"))


def _described(stream: Stream, event: dict[str, Any]) -> None:
    stream.role, stream.rank = str(event.get("role") or ""), str(event.get("rank") or "")


def _ended(stream: Stream, event: dict[str, Any]) -> None:
    stream.stages.clear()
    stream.has_ended = True


_HANDLERS = {
    "process": _described,
    "stage-start": _begin,
    "stage": _end,
    "native-start": _native_begins,
    "native": _native_ends,
    "choice-start": _choice_begins,
    "choice-end": _choice_ends,
    "compile-start": _compile_begins,
    "lowering": _lowered,
    "process-end": _ended,
}


class Streams:
    """All streams of a recording."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / STREAMS
        self._known: dict[Path, Stream] = {}

    def catch_up(self) -> list[Stream]:
        """Every stream of the program, read to its end as of now."""
        for path in self._folder.glob("*" + STREAM_SUFFIX):
            self._known.setdefault(path, Stream(path)).catch_up()
        return [stream for stream in self._known.values() if stream.role != "launcher"]
