"""One command line run in a child process, with progress reports and full cleanup.

Needs anyio, which the mcp package brings along.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.to_thread

from inductoscope.errors import ToolFailure
from inductoscope.processes.children import GuardedCommand, tool_command, tool_environment
from inductoscope.views.plain_text import visible

_MOST_LINES = 8
# The prefixes of errors from the tool and click.
_BEGINNINGS = ("inductoscope: ", "Error: ")


@dataclass(frozen=True)
class CallEnd:
    exit_code: int
    data: dict[str, Any] | None
    said: str
    printed: str

    @property
    def is_result(self) -> bool:
        """Whether the JSON is the final answer: not if the command was killed while writing it."""
        if self.data is None:
            return False
        return self.exit_code >= 0 or not self.data.get("partial")

    @property
    def problem(self) -> str:
        lines = self.said.strip().splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith(_BEGINNINGS)]
        told = "\n".join(lines[starts[-1] :] if starts else lines[-_MOST_LINES:])
        for beginning in _BEGINNINGS:
            told = told.removeprefix(beginning)
        if self.exit_code >= 0:
            return told or f"The command ended with exit code {self.exit_code} and said nothing."
        with contextlib.suppress(ValueError):
            name = signal.Signals(-self.exit_code).name
            return f"{name} ended the command before it had an answer.\n{told}".strip()
        return told


# A callback with the seconds that a call has taken, and the news.
Say = Callable[[float, str], Awaitable[None]]

# A leaving client sends signals after 2 s; everything started has to end before that.
_GRACE = 1.5
_LOOK_EVERY = 0.1
_TELL_EVERY = 0.5
_MOST_KEPT = 16_384  # bytes of what was printed last
_AT_ONCE = 65_536
_MOST_READS = 64  # of the rest of a pipe: more than its capacity
_LONGEST_MESSAGE = 1_000
_LARGEST_JSON = 64 << 20


async def run_command(
    words: Sequence[str], *, json_path: Path, folder: Path, say: Say | None = None
) -> CallEnd:
    """Run `inductoscope WORDS` to its end. Cancelling the task ends the command first."""
    try:
        command = GuardedCommand(tool_command(words), folder=folder, environment=tool_environment())
    except OSError as error:
        raise ToolFailure(f"The command cannot be started: {error.strerror}.") from error
    printed, said = _Heard(command.process.stdout), _Heard(command.process.stderr)
    code = 0
    try:
        await _follow(command, printed, said, _News(said, json_path, say))
    finally:
        # Shielded from cancellation, since ending the command takes a moment.
        with anyio.CancelScope(shield=True):
            code = await anyio.to_thread.run_sync(partial(command.end, grace=_GRACE))
    if _is_too_large(json_path):
        raise ToolFailure(
            f"The answer has more than {_LARGEST_JSON >> 20} MiB. Ask for less: one graph, "
            "kernel, stage or operation."
        )
    return CallEnd(code, _read(json_path), said.text, printed.text)


async def _follow(command: GuardedCommand, printed: _Heard, said: _Heard, news: _News) -> None:
    async with anyio.create_task_group() as listening:
        listening.start_soon(printed.listen)
        listening.start_soon(said.listen)
        while command.process.poll() is None:
            await anyio.sleep(_LOOK_EVERY)
            await news.tell()
        # Its children may keep the pipes open, so end of file is not awaited.
        listening.cancel_scope.cancel()
    for pipe in (printed, said):
        pipe.take_rest()
    await news.tell(at_once=True)


def _is_too_large(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size > _LARGEST_JSON
    return False


def _read(path: Path) -> dict[str, Any] | None:
    if _is_too_large(path):
        return None
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        return found if isinstance(found, dict) else None
    return None


class _Heard:
    """The output of a pipe: its tail, and the lines not yet reported."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._descriptor = pipe.fileno()
        os.set_blocking(self._descriptor, False)
        self._kept = b""
        self._unsaid = b""

    @property
    def text(self) -> str:
        return visible(self._kept.decode("utf-8", "replace"))

    async def listen(self) -> None:
        """Read the pipe until all writers have closed it."""
        while self._take() != b"":
            await anyio.wait_readable(self._descriptor)

    def take_rest(self) -> None:
        """Read what is left in the pipe without waiting for processes that still write."""
        for _ in range(_MOST_READS):
            if not self._take():
                return

    def _take(self) -> bytes | None:
        """Read one chunk: empty at end of file, None if nothing is available."""
        try:
            data = os.read(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return None
        self._kept = (self._kept + data)[-_MOST_KEPT:]
        self._unsaid = (self._unsaid + data)[-_MOST_KEPT:]
        return data

    def new_lines(self) -> list[str]:
        whole, separator, self._unsaid = self._unsaid.rpartition(b"\n")
        lines = visible(whole.decode("utf-8", "replace")).splitlines() if separator else []
        return [line.strip() for line in lines if line.strip()]


class _News:
    """A periodic report of new output lines, and of new keys in growing JSON."""

    def __init__(self, said: _Heard, json_path: Path, say: Say | None) -> None:
        self._said = said
        self._json_path = json_path
        self._say = say
        self._started = time.monotonic()
        self._told = self._started
        self._version = 0
        self._lines: list[str] = []

    async def tell(self, *, at_once: bool = False) -> None:
        if self._say is None:
            return
        self._lines += [*self._said.new_lines(), *self._known_so_far()]
        now = time.monotonic()
        if self._lines and (at_once or now - self._told >= _TELL_EVERY):
            text = "\n".join(self._lines[-_MOST_LINES:])[-_LONGEST_MESSAGE:]
            self._lines, self._told = [], now
            await self._say(round(now - self._started, 3), text)

    def _known_so_far(self) -> list[str]:
        """Return what `doctor --json` knows so far, if its file has changed."""
        try:
            version = self._json_path.stat().st_mtime_ns
        except OSError:
            return []
        if version == self._version:
            return []
        self._version = version
        found = _read(self._json_path) or {}
        if not found.get("partial"):
            return []
        return [visible(f"so far: {found.get('verdict')}: {found.get('summary')}")]
