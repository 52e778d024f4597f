"""Runs the user's command with the scope inside every Python process that it starts.

The command keeps its standard streams, working directory, arguments and process group: it is an
ordinary child, so a terminal's Ctrl-C reaches it directly. Signals sent to the tool alone are
passed on to it. Its exit status is kept and reported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.capture import private_cache
from inductoscope.capture.hooks.workers import RECORDING_VARIABLE, with_scope
from inductoscope.capture.scope import describe_process
from inductoscope.errors import ToolFailure, UsageError
from inductoscope.recording.writer import StreamWriter

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SENT_BY_KERNEL = 0x80  # si_code of a signal that a terminal made; a process's has another.
_LONGEST_WAIT = 1.0


@dataclass(frozen=True)
class Ending:
    """How the user's command ended."""

    exit_code: int
    signal: int | None
    seconds: float


def resolve_command(words: Sequence[str]) -> list[str]:
    """What to execute for the words that the user typed after `run`.

    A script (`train.py`), a module (`-m package`) or Python code (`-c`) goes to this Python; any
    other word is a program, which is expected to end in Python processes (torchrun, pytest, …).
    """
    if not words:
        raise UsageError("Nothing to run. Give a script: inductoscope run train.py [ARGS].")
    first = words[0]
    if first in ("-m", "-c"):
        if len(words) < 2:
            raise UsageError(f"{first} needs an argument, as in: inductoscope run {first} NAME.")
        return [sys.executable, *words]
    if first.endswith((".py", ".pyc", ".pyz")) or _is_python_text(Path(first)):
        return [sys.executable, *_existing_script(first, words)]
    return _program(first, words)


def _is_python_text(path: Path) -> bool:
    """A file without the execute bit is meant for Python, whatever it is called."""
    return path.is_file() and not os.access(path, os.X_OK)


def _existing_script(first: str, words: Sequence[str]) -> Sequence[str]:
    path = Path(first)
    if not path.exists():
        raise UsageError(f"The script {first} does not exist (looked in {Path.cwd()}).")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(f"{first} is a folder without a __main__.py, so Python cannot run it.")
    return words


def _program(first: str, words: Sequence[str]) -> list[str]:
    if Path(first).is_dir():
        if (Path(first) / "__main__.py").exists():
            return [sys.executable, *words]
        raise UsageError(f"{first} is a folder without a __main__.py, so Python cannot run it.")
    if shutil.which(first) is None:
        raise UsageError(
            f"{first} is neither a script in {Path.cwd()} nor a program on PATH. "
            "A module is run with: inductoscope run -m MODULE."
        )
    return list(words)


def environment_for(folder: Path, base: Mapping[str, str], *, fresh: bool) -> dict[str, str]:
    """The user's environment with the scope's start-up hook in front of PYTHONPATH."""
    environment = with_scope(dict(base))
    environment[RECORDING_VARIABLE] = str(folder)
    if fresh:
        environment.update(private_cache.environment(folder / "cache"))
    return environment


def run_recorded(command: Sequence[str], folder: Path, *, fresh: bool = False) -> Ending:
    """Run `command` to its end, recorded into `folder`."""
    stream = StreamWriter(folder, first_event=lambda: {"role": "launcher", **describe_process()})
    environment = environment_for(folder, os.environ, fresh=fresh)
    started = time.monotonic()
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise ToolFailure(f"{command[0]} cannot be started: {error.strerror}.") from error
    stream.emit("launched", pid=child.pid, command=list(command))
    status = _wait(child)
    ending = Ending(
        exit_code=128 - status if status < 0 else status,
        signal=-status if status < 0 else None,
        seconds=time.monotonic() - started,
    )
    stream.emit(
        "exited",
        pid=child.pid,
        exit_code=ending.exit_code,
        signal=ending.signal,
        seconds=round(ending.seconds, 3),
    )
    stream.close()
    _drop_headers(folder)
    return ending


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child and hand on to it what was sent to the tool alone."""
    if not hasattr(signal, "sigtimedwait"):
        return _wait_plainly(child)
    # Blocked only now: the child must not inherit the mask.
    watched = {*_PASSED_ON, signal.SIGCHLD}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        while child.poll() is None:
            arrived = signal.sigtimedwait(watched, _LONGEST_WAIT)
            if arrived is not None and arrived.si_signo != signal.SIGCHLD:
                _pass_on(child, arrived)
        return child.returncode
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _pass_on(child: subprocess.Popen[bytes], arrived: signal.struct_siginfo) -> None:
    """A terminal sends Ctrl-C to the child as well; a `kill` reaches the tool alone."""
    if arrived.si_code == _SENT_BY_KERNEL and arrived.si_signo == signal.SIGINT:
        return
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(arrived.si_signo)


def _wait_plainly(child: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue


def _drop_headers(folder: Path) -> None:
    """Precompiled headers are large and of no use to a reader of the recording."""
    shutil.rmtree(folder / "cache" / "precompiled_headers", ignore_errors=True)
