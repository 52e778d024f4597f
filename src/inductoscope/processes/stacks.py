"""Stacks of a process, had without its help where possible.

Three ways, the best that works: py-spy, which reads the memory of the process (it needs the right
to trace it); the process itself, if it runs under `inductoscope run` and answers a signal; and
what the kernel says of each thread. Which it was, and what is missing, is part of the result.
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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.processes import stack_signal
from inductoscope.processes.tree import PROC

_SPY_SECONDS = 4.0
_ANSWER_SECONDS = 1.0
_LONGEST_ANSWER = 1 << 18
_MOST_FRAMES = 400

INSTALL_SPY = "pip install py-spy"


@dataclass(frozen=True)
class Frame:
    """One call on a stack. Native frames have no line."""

    function: str
    file: str
    line: int = 0

    @property
    def name(self) -> str:
        """The function without the class or function around it, which only some sources tell."""
        return self.function.rpartition(".")[2]

    @property
    def text(self) -> str:
        place = f" ({self.file}:{self.line})" if self.line else f" ({self.file})"
        return self.function + (place if self.file else "")


@dataclass(frozen=True)
class ThreadStack:
    """The calls of one thread, innermost first."""

    name: str
    frames: tuple[Frame, ...]
    is_active: bool | None = None


@dataclass(frozen=True)
class Stacks:
    """The stacks of one process, and how they were had."""

    pid: int
    # 'py-spy', 'signal' or 'kernel'.
    source: str
    threads: tuple[ThreadStack, ...]
    # What could not be seen, and how to get it; empty if nothing is missing.
    missing: str = ""

    @property
    def has_python(self) -> bool:
        return self.source != "kernel" and any(thread.frames for thread in self.threads)


def read_stacks(pid: int, *, native: bool = False, is_stopped: bool = False) -> Stacks:
    """The stacks of a process by the best way that works."""
    found, why_not = _by_spy(pid, native=native, is_stopped=is_stopped)
    if found is not None:
        return found
    answered = None if is_stopped else _by_signal(pid)
    if answered is not None:
        return answered
    return Stacks(pid, "kernel", _by_kernel(pid), missing=why_not)


# --- py-spy ---------------------------------------------------------------------------------------


def spy() -> str | None:
    """Where py-spy is: beside this Python, or on PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def _by_spy(pid: int, *, native: bool, is_stopped: bool) -> tuple[Stacks | None, str]:
    program = spy()
    if program is None:
        return None, f"no Python stack: py-spy is not installed ({INSTALL_SPY})"
    # Without a pause the process never notices, but a stack that changes may be misread.
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
        return (
            "the system does not let this user trace the process; run as its owner or as root, or "
            "allow it: sudo sysctl kernel.yama.ptrace_scope=0 (containers: --cap-add SYS_PTRACE)"
        )
    last = [line.strip() for line in text.splitlines() if line.strip()]
    return f"py-spy could not read it: {last[-1] if last else 'no reason given'}"


def _spied_threads(data: Any) -> tuple[ThreadStack, ...]:
    if not isinstance(data, list):
        return ()
    found = []
    for thread in data:
        if isinstance(thread, dict):
            frames = thread.get("frames")
            named = str(thread.get("thread_name") or thread.get("os_thread_id") or "?")
            found.append(
                ThreadStack(
                    name=named,
                    frames=_spied_frames(frames if isinstance(frames, list) else ()),
                    is_active=bool(thread.get("active")),
                )
            )
    return tuple(thread for thread in found if thread.frames)


def _spied_frames(frames: Iterable[Any]) -> tuple[Frame, ...]:
    found = []
    for frame in frames:
        if isinstance(frame, dict):
            line = frame.get("line")
            found.append(
                Frame(
                    function=str(frame.get("name")),
                    file=str(frame.get("filename") or ""),
                    line=line if isinstance(line, int) else 0,
                )
            )
    return tuple(found[:_MOST_FRAMES])


def spied_locals(pid: int, names: frozenset[str]) -> dict[str, str]:
    """Values of the named local variables on any stack; nothing else of them is kept."""
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
    """Ask a process that answers; None if it cannot, or does not in time."""
    number, path = stack_signal.STACK_SIGNAL, answer_file(pid)
    if number is None or path is None or not _catches(pid, number):
        return None
    try:
        start = os.path.getsize(path)
        os.kill(pid, number)
    except OSError:
        return None
    text = _new_text(path, start)
    threads = parse_dump(text)
    return Stacks(pid, "signal", threads, missing="native frames") if threads else None


def answer_file(pid: int) -> str | None:
    """The file that a process would write its stacks into, if it still has it open."""
    with contextlib.suppress(OSError):
        for name in os.listdir(PROC / str(pid) / "fd"):
            with contextlib.suppress(OSError):
                path = os.readlink(PROC / str(pid) / "fd" / name)
                if path.endswith(stack_signal.SUFFIX) and f"/{stack_signal.FOLDER}/" in path:
                    return path
    return None


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: without one, the signal would end it."""
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _new_text(path: str, start: int) -> str:
    """What is written behind `start`, once nothing more comes."""
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


_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[([^\]]*)\])?")
_CALL = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


def parse_dump(text: str) -> tuple[ThreadStack, ...]:
    """The stacks in a text that Python's faulthandler wrote; the main thread is the last."""
    found: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        thread, call = _THREAD.match(line), _CALL.match(line)
        if thread:
            found.append((thread[2] or thread[1], []))
        elif call and found:
            number = int(call[2]) if call[2].isdigit() else 0
            found[-1][1].append(Frame(function=call[3], file=call[1], line=number))
    found.reverse()
    return tuple(
        ThreadStack(name, tuple(frames[:_MOST_FRAMES])) for name, frames in found if frames
    )


# --- the kernel -----------------------------------------------------------------------------------


def _by_kernel(pid: int) -> tuple[ThreadStack, ...]:
    """For each thread where in the kernel it waits; that much anyone may read, as a rule."""
    found = []
    with contextlib.suppress(OSError):
        for thread in sorted(os.listdir(PROC / str(pid) / "task"), key=int)[:64]:
            place = PROC / str(pid) / "task" / thread
            frames = [*_kernel_calls(place), *_wait_channel(place)]
            found.append(ThreadStack(_read(place / "comm") or thread, tuple(frames)))
    return tuple(thread for thread in found if thread.frames)


def _kernel_calls(place: Path) -> list[Frame]:
    lines = (line.split("]", 1)[-1].strip() for line in _read(place / "stack").splitlines())
    return [Frame(line.partition("+")[0], "kernel") for line in lines if line]


def _wait_channel(place: Path) -> list[Frame]:
    name = _read(place / "wchan")
    return [Frame(name, "kernel")] if name not in ("", "0") else []


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", "replace").strip()
    return ""
