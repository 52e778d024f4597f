"""Stacks of a running process, read without its help where possible, and their parser.

There are two ways, and the best that works is taken: py-spy, which reads the memory of the process
and needs the right to trace it; and the process itself, if it is recorded and answers a signal. The
result says which way was used and what is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.processes import stack_signal
from inductoscope.processes.locks import open_files
from inductoscope.processes.status import read_text

_SPY_SECONDS = 4.0
_ANSWER_SECONDS = 1.0
_LONGEST_ANSWER = 1 << 18
_MOST_FRAMES = 400

INSTALL_SPY = "pip install py-spy"


@dataclass(frozen=True)
class Stacks:
    """The stacks of one process, and how they were read."""

    pid: int
    # 'py-spy', 'signal' or 'none'.
    source: str
    threads: tuple[ThreadStack, ...]
    # The missing parts, and how to get them; empty if nothing is missing.
    missing: str = ""

    @property
    def has_python(self) -> bool:
        return any(thread.frames for thread in self.threads)


def read_stacks(pid: int, *, native: bool = False, is_stopped: bool = False) -> Stacks:
    """Read the stacks of a process with the best method that works."""
    found, why_not = _by_spy(pid, native=native, is_stopped=is_stopped)
    if found is not None:
        return found
    answered = None if is_stopped else _by_signal(pid)
    if answered is not None:
        return answered
    return Stacks(pid, "none", (), missing=why_not)


# --- py-spy ---------------------------------------------------------------------------------------


def spy() -> str | None:
    """Find py-spy: beside this Python, or on PATH; None if it is not installed."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def _by_spy(pid: int, *, native: bool, is_stopped: bool) -> tuple[Stacks | None, str]:
    program = spy()
    if program is None:
        return None, f"no Python stack: py-spy is not installed ({INSTALL_SPY})"
    # Without pausing, the process is undisturbed, but a changing stack may be misread.
    ways: list[tuple[str, ...]] = (
        [("--native",)] if native and not is_stopped else [("--nonblocking",)] * 3
    )
    if not is_stopped and not native:
        ways.append(())
    why_not = ""
    for way in ways:
        data, why_not = _call_spy([program, "dump", "--json", *way, "--pid", str(pid)])
        threads = _spied_threads(data)
        if threads:
            return Stacks(pid, "py-spy", threads), ""
        if "ermission" in why_not:
            break
    return None, f"no Python stack: {_spy_failure(why_not)}"


def _call_spy(command: list[str]) -> tuple[Any, str]:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SPY_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None, f"py-spy did not answer within {_SPY_SECONDS:.0f} s"
    except OSError as error:
        return None, f"py-spy cannot be started: {error.strerror}"
    with contextlib.suppress(ValueError):
        return json.loads(done.stdout), ""
    return None, done.stderr.decode("utf-8", "replace")[-1000:]


def _spy_failure(text: str) -> str:
    if "ermission" in text or "ptrace" in text.lower():
        return f"the system does not let this user trace the process; {how_to_trace()}"
    last = [line.strip() for line in text.splitlines() if line.strip()]
    return f"py-spy could not read it: {last[-1] if last else 'no reason given'}"


def how_to_trace() -> str:
    """Say how this user gets permission to trace another process."""
    if os.geteuid() == 0:
        return "root may, but in a container only with --cap-add SYS_PTRACE"
    return (
        "run as its owner or as root, or allow it: sudo sysctl kernel.yama.ptrace_scope=0 "
        "(containers: --cap-add SYS_PTRACE)"
    )


def _spied_threads(data: Any) -> tuple[ThreadStack, ...]:
    return tuple(
        ThreadStack(
            name=str(thread.get("thread_name") or thread.get("os_thread_id") or "?"),
            frames=tuple(map(_spied_frame, thread["frames"][:_MOST_FRAMES])),
            is_active=bool(thread.get("active")),
        )
        for thread in data or ()
        if thread.get("frames")
    )


def _spied_frame(frame: dict[str, Any]) -> StackFrame:
    return StackFrame(str(frame.get("name")), frame.get("filename") or "", frame.get("line") or 0)


def spied_locals(pid: int, names: frozenset[str]) -> dict[str, str]:
    """Return the values of the named local variables on any stack; discard all others."""
    program = spy()
    if program is None:
        return {}
    data, _ = _call_spy([program, "dump", "--json", "-l", "-l", "--nonblocking", "--pid", str(pid)])
    found: dict[str, str] = {}
    for thread in data if isinstance(data, list) else ():
        for frame in thread.get("frames") or ():
            for local in frame.get("locals") or ():
                if local.get("name") in names and local.get("repr"):
                    found.setdefault(str(local["name"]), str(local["repr"]).strip("'\""))
    return found


# --- the process itself ---------------------------------------------------------------------------


def _by_signal(pid: int) -> Stacks | None:
    """Read stacks by signal; None if the process does not handle it, or not in time."""
    path = answer_file(pid)
    if path is None:
        return None
    try:
        start = os.path.getsize(path)
        threads = parse_dump(_new_text(path, start)) if ask_for_stacks(pid) else ()
    except OSError:
        return None
    return Stacks(pid, "signal", threads, missing="native frames") if threads else None


def ask_for_stacks(pid: int) -> bool:
    """Make a process write its stacks into its answer file; False if it has no handler.

    A process is asked only if it handles the signal: without a handler, the signal would kill it.
    """
    number = stack_signal.STACK_SIGNAL
    if number is None or not _handles(pid, number):
        return False
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def answer_file(pid: int) -> str | None:
    """Return the answer file that a process has open for its stacks; None if it has none."""
    folder, suffix = f"/{stack_signal.FOLDER}/", stack_signal.SUFFIX
    return next((p for p in open_files(pid) if p.endswith(suffix) and folder in p), None)


def _handles(pid: int, number: int) -> bool:
    for line in read_text(pid, "status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _new_text(path: str, start: int) -> str:
    """Return the text after offset `start`, once the file stops growing."""
    until, size = time.monotonic() + _ANSWER_SECONDS, start
    while time.monotonic() < until:
        time.sleep(0.05)
        now = os.path.getsize(path)
        if now == size and now > start:
            break
        size = now
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(_LONGEST_ANSWER).decode("utf-8", "replace")


# --- Stacks that Python printed: the only parser of what faulthandler and `py-spy dump` write -----
#
# Thread 0x00007f0a (most recent call first):        Thread 4242 (idle): "MainThread"
#   File "train.py", line 12 in step                     step (train.py:12)

_MOST_FRAMES_OF_DUMP = 400


@dataclass(frozen=True)
class StackFrame:
    """One frame of a stack. Native frames have no line."""

    function: str
    file: str
    line: int = 0

    @property
    def name(self) -> str:
        """The function name without its qualifier, which only some sources give."""
        return self.function.rpartition(".")[2]

    @property
    def text(self) -> str:
        place = f" ({self.file}:{self.line})" if self.line else f" ({self.file})"
        return self.function + (place if self.file else "")


@dataclass(frozen=True)
class ThreadStack:
    """The stack of one thread, innermost frame first."""

    name: str
    frames: tuple[StackFrame, ...]
    is_active: bool | None = None


@dataclass(frozen=True)
class DumpFormat:
    """The regular expressions for one format of stack dumps."""

    # The text after `thread` on a thread's first line, for a quick search.
    begin: str
    thread: re.Pattern[str]
    call: re.Pattern[str]

    def frame(self, line: str) -> StackFrame | None:
        """Parse a line into a frame; None for any other line."""
        found = self.call.match(line)
        if found is None:
            return None
        number = found["line"][:9]
        line_number = int(number) if number.isdecimal() else 0
        return StackFrame(found["function"].rstrip(), found["file"], line_number)


FAULTHANDLER = DumpFormat(
    " (most recent call first):",
    re.compile(r"(?:Current t|T)hread (?P<id>0x[0-9a-f]+)(?: \[(?P<name>[^\]\n]*)\])?$"),
    re.compile(r'  File "(?P<file>[^\n]*)", line (?P<line>\d+|\?\?\?) in (?P<function>[^\r\n]+)'),
)
PY_SPY = DumpFormat(
    '): "MainThread"',
    re.compile(r"Thread (?P<id>0x[0-9A-Fa-f]+|\d+) \([a-z+]+$"),
    re.compile(r"    (?P<function>[^\n]+) \((?P<file>[^()\n]+):(?P<line>\d+)\)"),
)
FORMATS = (FAULTHANDLER, PY_SPY)


def parse_dump(text: str) -> tuple[ThreadStack, ...]:
    """Parse faulthandler's dump of one process; the main thread comes first."""
    found = [thread for _, thread in threads_in(text) if thread.frames]
    return tuple(reversed(found))


def threads_in(text: str) -> Iterator[tuple[str, ThreadStack]]:
    """Yield every thread of a faulthandler dump with its id, in the order written."""
    number, name, frames = "", "", list[StackFrame]()
    for line in [*text.splitlines(), ""]:
        head, begin, _ = line.partition(FAULTHANDLER.begin)
        thread = FAULTHANDLER.thread.match(head) if begin else None
        frame = FAULTHANDLER.frame(line)
        if frame is not None and number:
            frames.append(frame)
            continue
        if number:
            yield number, ThreadStack(name, tuple(frames[:_MOST_FRAMES_OF_DUMP]))
        number, name, frames = "", "", []
        if thread is not None:
            number, name = thread["id"], thread["name"] or thread["id"]
