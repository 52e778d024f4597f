"""Runs a child in a process group of its own, under limits, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from inductoscope.processes.ending import end_child
from inductoscope.processes.limits import die_with_parent
from inductoscope.processes.tree import (
    Observation,
    end_what_is_left,
    observe_group,
    processes_below,
)

ChildEvent = dict[str, Any]

_LOOK_EVERY = 0.25  # seconds
_MOST_OUTPUT = 200_000  # characters kept of what the child printed
# The place of all that imports torch.
INSIDE = Path(__file__).parents[1] / "inside"
_BOUNDED = str(INSIDE / "child.py")


@dataclass(frozen=True)
class ChildLimits:
    """What one child may take."""

    seconds: float = 60.0
    start_seconds: float = 300.0  # until Triton, and torch where needed, are imported
    memory_gib: float = 16.0
    file_bytes: int = 4 << 30
    cores: int = 1  # that a program may keep busy all the time

    def as_json(self, **more: int) -> str:
        """For `bounded.py`."""
        memory = int(self.memory_gib * 2**30)
        return json.dumps({"memory": memory, "file_size": self.file_bytes, **more})


# --- a program ------------------------------------------------------------------------------------


def run_program(
    command: Sequence[str],
    limits: ChildLimits,
    folder: Path,
    *,
    environment: Mapping[str, str],
    given: str = os.devnull,
) -> int | None:
    """Run a program in `folder`; its output goes to the files stdout and stderr there.

    Returns its exit code, or None if its time was up. `given` is the file that it reads.
    """
    bounds = limits.as_json(cpu_seconds=int(limits.seconds * limits.cores))
    with (
        open(folder / given, "rb") as read,
        open(folder / "stdout", "wb") as out,
        open(folder / "stderr", "wb") as err,
    ):
        # The limits are set in a process of its own, which is safe beside threads.
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", _BOUNDED, bounds, "program", *command],
            cwd=folder,
            env=dict(environment),
            stdin=read,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            return child.wait(timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_child(child)


# --- a Python file that reports what it does ------------------------------------------------------


@dataclass(frozen=True)
class ChildProgram:
    """What to run: a Python file, its arguments, and settings of the environment."""

    file: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ChildResult:
    """How a child ended, and what it reported."""

    events: tuple[ChildEvent, ...]
    output: str
    exit_code: int | None  # None: it was stopped because its time was up
    # What it and its children did when its time was up.
    observed: Observation | None = None
    stopped_at: float = 0.0

    @property
    def signal(self) -> str:
        """The name of the signal that ended it, if one did."""
        if self.exit_code is None or self.exit_code >= 0:
            return ""
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.exit_code).name
        return f"signal {-self.exit_code}"


def run_child(
    program: ChildProgram,
    limits: ChildLimits,
    folder: Path,
    on_event: Callable[[ChildEvent], None],
) -> ChildResult:
    """Run it until it ends or its time is up. Its whole process group is ended in any case."""
    reading, writing = os.pipe()
    words = (str(program.file), *program.arguments, str(writing))
    with open(folder / "output.txt", "wb") as output:
        child = subprocess.Popen(
            [sys.executable, _BOUNDED, limits.as_json(), "file", *words],
            stdin=subprocess.PIPE,  # Ends when this process does; see bounded.py.
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            start_new_session=True,
            cwd=folder,
            env={**os.environ, **program.environment},
        )
    os.close(writing)
    try:
        return _follow(child, _Lines(reading), limits, folder, on_event)
    finally:
        end_child(child)
        os.close(reading)


def _follow(
    child: subprocess.Popen[bytes],
    lines: _Lines,
    limits: ChildLimits,
    folder: Path,
    on_event: Callable[[ChildEvent], None],
) -> ChildResult:
    events: list[ChildEvent] = []
    deadline = time.monotonic() + limits.start_seconds
    observed: Observation | None = None
    while True:
        for event in lines.wait(_LOOK_EVERY):
            events.append(event)
            on_event(event)
            if event.get("event") == "start" and event.get("stage") == "preparation":
                deadline = time.monotonic() + limits.seconds
        if child.poll() is not None:
            break
        if time.monotonic() >= deadline:
            observed = observe_group(child.pid)
            break
    stopped_at = time.monotonic()
    exit_code = child.poll()
    events += lines.wait(0)
    return ChildResult(tuple(events), _output(folder), exit_code, observed, stopped_at)


def _output(folder: Path) -> str:
    with contextlib.suppress(OSError), open(folder / "output.txt", "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _MOST_OUTPUT))
        return file.read().decode("utf-8", "replace")
    return ""


class _Lines:
    """Events from a pipe, as they arrive."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._rest = b""
        self._ended = False

    def wait(self, seconds: float) -> Iterator[ChildEvent]:
        """What has arrived; waits for at most this long."""
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


# --- the user's program, and scripts made for it --------------------------------------------------


def start_group(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child that leads a process group and dies with this process; it has no limits."""
    return subprocess.Popen(
        command,
        env=dict(environment),
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


# --- A command in a process group of its own that ends with the call that started it --------------
#
# However the call ends, nothing of the command is left: not if it is cancelled, and not if this
# process is killed.

_GUARD_LOOKS_EVERY = 0.25  # seconds
_AT_ONCE = 65_536
_GUARD_SCRIPT = str(INSIDE / "child.py")


class GuardedCommand:
    """Starts a command with both outputs in pipes and nothing to read."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]
    ) -> None:
        reading, self._held = os.pipe()
        try:
            # A process between them does what must be done in it: see guard.py.
            self.child = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    _GUARD_SCRIPT,
                    "{}",
                    "guarded",
                    str(reading),
                    *command,
                ],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(reading,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._held)
            raise
        finally:
            os.close(reading)

    def lines(self) -> Iterator[str]:
        """What it writes to standard error, line by line, until it ends. Other output is dropped.

        Processes that it leaves behind may still have the pipes open: they are not waited for.
        """
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        said, rest = self.child.stderr.fileno(), b""
        open_pipes = {said, self.child.stdout.fileno()}
        while open_pipes:
            ended = self.child.poll() is not None
            ready = select.select(open_pipes, [], [], 0.0 if ended else _GUARD_LOOKS_EVERY)[0]
            if ended and not ready:
                break
            for pipe in ready:
                data = os.read(pipe, _AT_ONCE)
                if not data:
                    open_pipes.discard(pipe)
                elif pipe == said:
                    *whole, rest = (rest + data).split(b"\n")
                    yield from (line.decode("utf-8", "replace") for line in whole)
        if rest:
            yield rest.decode("utf-8", "replace")

    def end(self, *, grace: float) -> int:
        """End what is left of it, and return its exit code. While it runs it gets the grace."""
        running = self.child.poll() is None
        left = processes_below(self.child.pid)
        code = end_child(self.child, grace=grace if running else 0.0)
        end_what_is_left(left, grace=grace)
        os.close(self._held)
        return code


# --- The tool's own command line, to be run in a child process ------------------------------------

# Not `-m inductoscope`: that would import from the folder it is started in, which is the user's.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; "
    "from inductoscope.cli import main; main()"
)


# They say that a pipe is a terminal, as Jupyter does of what its kernels print.
_COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def tool_environment() -> dict[str, str]:
    """The environment for it: what it prints is read line by line, not shown on a terminal."""
    return {name: value for name, value in os.environ.items() if name not in _COLOURS}


def tool_command(words: Sequence[str]) -> list[str]:
    """`inductoscope WORDS`, by the Python that runs this."""
    return [sys.executable, "-c", _START, *words]


# --- Where Python looks for modules, for a process that is started in another folder --------------

_PATH = "PYTHONPATH"


def with_absolute_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with every folder of PYTHONPATH as it is named from here."""
    found = dict(environment)
    if found.get(_PATH):
        # An empty one is the folder that Python is started in.
        found[_PATH] = os.pathsep.join(map(os.path.abspath, found[_PATH].split(os.pathsep)))
    return found
