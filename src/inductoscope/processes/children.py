"""Child processes: starting and limiting them, reading their events, and cleaning up.

A child calls one function below `inductoscope.inside`: see `inside/child.py` for what it is given
and how it answers. Each leads a process group of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from inductoscope.errors import ToolFailure
from inductoscope.processes.ending import end_child, end_started, processes_below
from inductoscope.processes.limits import die_with_parent

if TYPE_CHECKING:
    from inductoscope.processes.tree import Observation

ChildEvent = dict[str, Any]
Stream = int | IO[bytes]

_CHILD = str(Path(__file__).resolve().parents[1] / "inside" / "child.py")
_LOOK_EVERY = 0.25  # seconds
_AT_ONCE = 1 << 16
_MOST_OUTPUT = 200_000  # bytes kept of what the child printed
_OUTPUT = "output.txt"
# For code outside of the tool: an isolated Python without the user's packages.
_ISOLATED = (sys.executable, "-I", "-S")


# No limit, for processes whose address space exceeds their memory, as with a GPU.
NO_LIMIT = float("inf")


@dataclass(frozen=True)
class ChildLimits:
    seconds: float = 60.0
    start_seconds: float = 300.0  # until the child reports that it is ready
    memory_gib: float = 16.0
    file_bytes: int = 4 << 30
    cores: int = 1  # that a program may keep busy throughout

    @property
    def resources(self) -> dict[str, int]:
        """The arguments of `limit_resources`."""
        memory = {"memory": int(self.memory_gib * 2**30)} if self.memory_gib != NO_LIMIT else {}
        return {**memory, "file_size": self.file_bytes}


@dataclass(frozen=True)
class ChildCall:
    """A call in a child process: a "module:name" function, its arguments and process setup."""

    function: str
    given: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: Path | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    python: Sequence[str] = (sys.executable,)
    # Whether the whole group is ended with the parent; else the function sees to that itself.
    ends_group: bool = True


class Child:
    """A running child, which receives requests and sends events."""

    def __init__(
        self, call: ChildCall, *, stdin: Stream = subprocess.DEVNULL, stdout: Stream, stderr: Stream
    ) -> None:
        reading, self._requests = os.pipe()
        self._events, writing = os.pipe()
        self._rest = b""
        self._arrived: deque[ChildEvent] = deque()
        try:
            self.process = subprocess.Popen(
                [*call.python, _CHILD, str(reading), str(writing)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(reading, writing),
                start_new_session=True,
                cwd=call.folder,
                env=dict(call.environment),
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(reading)
            os.close(writing)
        self.send(
            {
                "function": call.function,
                "given": call.given,
                "limits": call.resources,
                "ends_group": call.ends_group,
            }
        )

    def send(self, request: Any) -> None:
        """Send a request. A dead child is not an error here: it never answers."""
        data = memoryview(json.dumps(request, default=str).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._requests, data) :]

    def wait(self, seconds: float) -> Iterator[ChildEvent]:
        """Yield the events that have arrived; wait at most `seconds` for the first."""
        self._read(0.0 if self._arrived else seconds)
        while self._arrived:
            yield self._arrived.popleft()

    def _read(self, seconds: float) -> None:
        while select.select([self._events], [], [], seconds)[0]:
            data = os.read(self._events, _AT_ONCE)
            if not data:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(min(seconds, 0.05))
                return
            *whole, self._rest = (self._rest + data).split(b"\n")
            for line in whole:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        self._arrived.append(event)
            seconds = 0

    def answer(self, event: str, seconds: float) -> ChildEvent:
        """Return the next event of this name; ToolFailure if it does not come in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ended = self.process.poll() is not None
            for found in self.wait(_LOOK_EVERY):
                if found["event"] == event:
                    return found
            if ended:
                raise ToolFailure(f"the process has ended with exit code {self.process.returncode}")
        raise ToolFailure(f"the process did not answer within {seconds:g} s")

    def end(self, *, grace: float = 0.0) -> int:
        """End the child's process group and return the child's exit code."""
        code = end_child(self.process, grace=grace)
        self._close()
        return code

    def _close(self) -> None:
        for pipe in (self._requests, self._events):
            with contextlib.suppress(OSError):
                os.close(pipe)


# --- a call that is followed to its end -----------------------------------------------------------


@dataclass(frozen=True)
class ChildResult:
    """The exit code of a child, and the events that it reported."""

    events: tuple[ChildEvent, ...]
    output: str
    exit_code: int | None  # None: the child was stopped at its time limit
    # The activity of the child and its descendants at the timeout.
    observed: Observation | None = None
    stopped_at: float = 0.0

    def find(self, event: str) -> ChildEvent | None:
        return next((found for found in self.events if found.get("event") == event), None)

    @property
    def signal(self) -> str:
        """The name of the signal that ended the child; empty if none did."""
        if self.exit_code is None or self.exit_code >= 0:
            return ""
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.exit_code).name
        return f"signal {-self.exit_code}"

    @property
    def problem(self) -> str:
        """The reason why the call did not complete; empty if it did."""
        error = self.find("error")
        if error is not None:
            return f"{error.get('kind')}: {error.get('message')}"
        if self.exit_code is None:
            return "its time was up"
        if self.signal:
            return f"{self.signal} killed it. {self.output[-2000:]}".strip()
        if self.exit_code:
            return f"exit code {self.exit_code}. {self.output[-2000:]}".strip()
        return ""


def run_child(
    call: ChildCall,
    limits: ChildLimits,
    on_event: Callable[[ChildEvent], None] = lambda event: None,
) -> ChildResult:
    """Run a call in a child until it ends or times out; a separate limit holds until it is ready.
    Its output goes to a file in its folder, which is temporary if none is given.
    """
    if call.folder is None:
        with tempfile.TemporaryDirectory(prefix="inductoscope-child-") as folder:
            return run_child(replace(call, folder=Path(folder)), limits, on_event)
    with open(call.folder / _OUTPUT, "wb") as output:
        limited = replace(call, resources=limits.resources)
        child = Child(limited, stdout=output, stderr=subprocess.STDOUT)
    try:
        return _follow(child, limits, call.folder, on_event)
    finally:
        child.end()


def _follow(
    child: Child, limits: ChildLimits, folder: Path, on_event: Callable[[ChildEvent], None]
) -> ChildResult:
    events: list[ChildEvent] = []
    deadline = time.monotonic() + limits.start_seconds
    observed: Observation | None = None
    while child.process.poll() is None:
        for event in child.wait(_LOOK_EVERY):
            events.append(event)
            on_event(event)
            if event["event"] == "ready":
                deadline = time.monotonic() + limits.seconds
        if time.monotonic() >= deadline and child.process.poll() is None:
            from inductoscope.processes.tree import observe_group

            observed = observe_group(child.process.pid)
            break
    stopped_at = time.monotonic()
    exit_code = child.process.poll()
    for event in child.wait(0):
        events.append(event)
        on_event(event)
    output = end_of_file(folder / _OUTPUT, _MOST_OUTPUT)
    return ChildResult(tuple(events), output, exit_code, observed, stopped_at)


def end_of_file(path: Path, most: int) -> str:
    """Read the last `most` bytes of a file as text; empty if it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read().decode("utf-8", "replace")
    return ""


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

    Returns its exit code, or None if it timed out. `given` is the file for its standard input.
    """
    call = ChildCall(
        "inductoscope.inside.programs:become",
        {"command": list(command)},
        environment,
        folder,
        {**limits.resources, "cpu_seconds": max(1, int(limits.seconds * limits.cores))},
        _ISOLATED,
        ends_group=False,
    )
    with (
        open(folder / given, "rb") as read,
        open(folder / "stdout", "wb") as out,
        open(folder / "stderr", "wb") as err,
    ):
        child = Child(call, stdin=read, stdout=out, stderr=err)
        try:
            return child.process.wait(timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            child.end()


def start_group(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: Stream,
    stdout: Stream,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group, without limits; it dies with this process."""
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


class GuardedCommand:
    """A command whose processes are all ended, however the call that started it ends.

    This holds if the call is cancelled, and if this process is killed. Standard output and standard
    error are pipes.
    """

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]
    ) -> None:
        # A guard process in between ends the command's processes itself.
        call = ChildCall(
            "inductoscope.inside.programs:guard",
            {"command": list(command)},
            environment,
            folder,
            python=_ISOLATED,
            ends_group=False,
        )
        self._child = Child(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.process = self._child.process

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard error until the command ends; drop its standard output.

        Processes that the command leaves behind may keep the pipes open; they are not waited for.
        """
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        said, rest = self.process.stderr.fileno(), b""
        open_pipes = {said, self.process.stdout.fileno()}
        while open_pipes:
            ended = self.process.poll() is not None
            ready = select.select(open_pipes, [], [], 0.0 if ended else _LOOK_EVERY)[0]
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
        """End all remaining processes; return the exit code. A running command gets the grace."""
        running = self.process.poll() is None
        left = processes_below(self.process.pid)
        code = self._child.end(grace=grace if running else 0.0)
        end_started(left, grace=grace)
        return code


# --- the tool's own command line ------------------------------------------------------------------

# Not `-m inductoscope`, which would import from the working directory, which is the user's.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; "
    "from inductoscope.cli import main; main()"
)
# Variables that force colours on pipes, as Jupyter sets them.
_COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def tool_command(words: Sequence[str]) -> list[str]:
    """Return the command line of `inductoscope WORDS` under this Python."""
    return [sys.executable, "-c", _START, *words]


def tool_environment() -> dict[str, str]:
    """Return the tool's environment without forced colours: its output is parsed line by line."""
    return {name: value for name, value in os.environ.items() if name not in _COLOURS}


def with_absolute_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Make PYTHONPATH absolute, for a child with another working directory."""
    found = dict(environment)
    if found.get("PYTHONPATH"):
        # An empty entry means the working directory.
        places = map(os.path.abspath, found["PYTHONPATH"].split(os.pathsep))
        found["PYTHONPATH"] = os.pathsep.join(places)
    return found
