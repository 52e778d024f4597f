"""Runs a Python file in a process group of its own, under limits, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.processes.groups import Process, end_group, look_at_group

Event = dict[str, Any]

_LOOK_EVERY = 0.25  # seconds
_MOST_OUTPUT = 200_000  # characters kept of what the child printed


@dataclass(frozen=True)
class Limits:
    """What one child may take."""

    seconds: float = 60.0
    start_seconds: float = 300.0  # until Triton, and torch where needed, are imported
    memory_gib: float = 16.0

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * 2**30)


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it had said."""

    events: tuple[Event, ...]
    output: str
    exit_code: int | None  # None: it was stopped because its time was up
    group: tuple[Process, ...] = ()  # what it and its children did when its time was up
    stopped_at: float = 0.0

    @property
    def signal(self) -> str:
        """The name of the signal that ended it, if one did."""
        if self.exit_code is None or self.exit_code >= 0:
            return ""
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.exit_code).name
        return f"signal {-self.exit_code}"


@dataclass(frozen=True)
class Order:
    """What to run: a Python file, its arguments, and settings of the environment."""

    program: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def run_child(
    order: Order, limits: Limits, folder: Path, on_event: Callable[[Event], None]
) -> Ended:
    """Run it to its end or to the end of its time. Its whole process group is ended in any case."""
    reading, writing = os.pipe()
    with open(folder / "output.txt", "wb") as output:
        child = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("bounded.py")),
                str(limits.memory_bytes),
                str(order.program),
                *order.arguments,
                str(writing),
            ],
            stdin=subprocess.PIPE,  # Ends when this process does; see bounded.py.
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            start_new_session=True,
            cwd=folder,
            env={**os.environ, **order.environment},
        )
    os.close(writing)
    try:
        return _follow(child, _Lines(reading), limits, folder, on_event)
    finally:
        end_group(child.pid)
        child.wait()
        os.close(reading)
        if child.stdin is not None:
            child.stdin.close()


def _follow(
    child: subprocess.Popen[bytes],
    lines: _Lines,
    limits: Limits,
    folder: Path,
    on_event: Callable[[Event], None],
) -> Ended:
    events: list[Event] = []
    deadline = time.monotonic() + limits.start_seconds
    group: tuple[Process, ...] = ()
    while True:
        for event in lines.wait(_LOOK_EVERY):
            events.append(event)
            on_event(event)
            if event.get("event") == "start" and event.get("stage") == "preparation":
                deadline = time.monotonic() + limits.seconds
        if child.poll() is not None:
            break
        if time.monotonic() >= deadline:
            group = tuple(look_at_group(child.pid))
            break
    stopped_at = time.monotonic()
    exit_code = child.poll()
    events += lines.wait(0)
    return Ended(tuple(events), _output(folder), exit_code, group, stopped_at)


def _output(folder: Path) -> str:
    with contextlib.suppress(OSError), open(folder / "output.txt", "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _MOST_OUTPUT))
        return file.read().decode("utf-8", "replace")
    return ""


class _Lines:
    """Events from a pipe, as they come."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._rest = b""
        self._ended = False

    def wait(self, seconds: float) -> Iterator[Event]:
        """What has come; waits for it for at most this long."""
        if self._ended:
            time.sleep(min(seconds, 0.05))
            return
        while select.select([self._reading], [], [], seconds)[0]:
            data = os.read(self._reading, 65536)
            if not data:
                self._ended = True
                return
            *whole, self._rest = (self._rest + data).split(b"\n")
            for line in whole:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event
            seconds = 0
