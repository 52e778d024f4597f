"""Runs the user's command with the scope inside every Python process that it starts.

The command keeps its standard streams, working directory, arguments and process group: it is an
ordinary child, so a terminal's Ctrl-C reaches it directly. Signals sent to the tool alone are
passed on to it. Its exit status is kept and reported.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.launch.environment import RECORDING_VARIABLE, private_cache, with_scope
from inductoscope.model.process_position import OPTIONS_WITH_VALUE
from inductoscope.recording.events import Exited, Launched
from inductoscope.recording.layout import CACHE
from inductoscope.recording.location import discard_recording
from inductoscope.recording.privacy import without_secrets
from inductoscope.recording.writer import StreamWriter, describe_launcher

if TYPE_CHECKING:
    from inductoscope.model.entities import Ending


_WATCHED = {
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
}
_SENT_BY_KERNEL = 0x80  # si_code of a signal from a terminal; a process sends another.
_LONGEST_WAIT = 1.0
_ABOUT_FIRST_LINE = (
    " If it is a script, its first line has to name a program that exists: #!/usr/bin/env python3"
)

_PYTHON = re.compile(r"python[0-9.]*")

# A function from the program's pid to a context that is active during the run.
Observer = Callable[[int], contextlib.AbstractContextManager[None]]


def resolve_command(words: Sequence[str]) -> list[str]:
    """Return the command to execute for the words after `run`.

    A script (`train.py`), a module (`-m package`) or Python code (`-c`) goes to this Python; any
    other word is a program, which is expected to end in Python processes (torchrun, pytest, …).
    """
    if not words:
        raise UsageError("Nothing to run. Give a script after the options: train.py [ARGS].")
    first = words[0]
    if first in ("-m", "-c"):
        if len(words) < 2:
            raise UsageError(f"{first} needs an argument, as in: inductoscope run {first} NAME.")
        if first == "-m" and _is_missing(words[1]):
            raise UsageError(
                f"Python finds no module {words[1]} to run (looked in {Path.cwd()} and in what "
                f"{sys.executable} has installed)."
            )
        return [sys.executable, *words]
    if first.endswith(".ipynb"):
        raise UsageError(
            f"{first} is a notebook, which Python cannot run. In its cells, use `with "
            "inductoscope.record():` or inductoscope.check(function, *inputs); or make a script of "
            f"it: jupyter nbconvert --to script {first}"
        )
    if first.endswith((".py", ".pyc", ".pyz")) or _is_python_text(Path(first)):
        return [sys.executable, *_existing_script(first, words)]
    return _program(first, words)


def _is_python_text(path: Path) -> bool:
    """Check for a file without the execute bit, which is run by Python whatever its suffix."""
    return path.is_file() and not os.access(path, os.X_OK)


def _existing_script(first: str, words: Sequence[str]) -> Sequence[str]:
    path = Path(first)
    if not path.exists():
        raise UsageError(f"The script {first} does not exist (looked in {Path.cwd()}).")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(f"{first} is a folder without a __main__.py, so Python cannot run it.")
    if not os.access(path, os.R_OK):
        raise UsageError(f"The script {first} cannot be read. Allow it with: chmod u+r {first}")
    return words


def _program(first: str, words: Sequence[str]) -> list[str]:
    if Path(first).is_dir():
        if (Path(first) / "__main__.py").exists():
            return [sys.executable, *words]
        raise UsageError(f"{first} is a folder without a __main__.py, so Python cannot run it.")
    if shutil.which(first) is None:
        raise UsageError(
            f"{first} is neither a script in {Path.cwd()} nor a program on PATH. "
            "To run a module: inductoscope run -m MODULE."
        )
    if _PYTHON.fullmatch(Path(first).name):
        _refuse_missing_script_of_python(words[1:])
    return list(words)


def _refuse_missing_script_of_python(words: Sequence[str]) -> None:
    """Refuse `python missing.py`. Modules are not checked: only that Python knows its own."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        is_short = not option.startswith("--")
        if option in OPTIONS_WITH_VALUE:
            del rest[:1]
        elif option in ("-", "--") or (is_short and set(option) & set("mc")):
            return  # Not a script: standard input, a module or code.
    if rest:
        _existing_script(rest[0], rest)


def environment_for(folder: Path, base: Mapping[str, str], *, fresh: bool) -> dict[str, str]:
    environment = with_scope(dict(base))
    environment[RECORDING_VARIABLE] = str(folder)
    if fresh:
        environment.update(private_cache(folder / CACHE))
    return environment


def run_recorded(
    command: Sequence[str],
    folder: Path,
    *,
    fresh: bool = False,
    observer: Observer | None = None,
    variables: Mapping[str, str] | None = None,
    stdout: int | None = None,
) -> Ending:
    """Run `command` to its end, recorded into `folder`, with further variables if given.

    `stdout` is a descriptor that becomes the program's standard output, instead of the tool's own.
    """
    stream = StreamWriter(folder, first_event=describe_launcher)
    environment = {**environment_for(folder, os.environ, fresh=fresh), **(variables or {})}
    started = time.monotonic()
    # From here on, signals do not end the tool before the program: they are forwarded, or wait.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        child = start_or_discard(folder, lambda: _start(command, environment, mask, stdout))
        stream.emit(Launched(pid=child.pid, command=tuple(without_secrets(command))))
        with observer(child.pid) if observer else contextlib.nullcontext():
            status = _wait(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ending = record_ending(stream, child.pid, status, time.monotonic() - started)
    from inductoscope.launch.tidying import tidy_run

    tidy_run(folder)
    return ending


def start_or_discard(
    folder: Path, start: Callable[[], subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Start the command; discard its recording if the system refuses to start it."""
    try:
        return start()
    except OSError as error:
        discard_recording(folder)
        what_to_do = _ABOUT_FIRST_LINE if error.errno in (errno.ENOENT, errno.ENOEXEC) else ""
        raise ToolFailure(
            f"{error.filename or 'The command'} cannot be started: {error.strerror}.{what_to_do}"
        ) from error


def ending_from(status: int, seconds: float, by_tool: str = "") -> Ending:
    from inductoscope.model.entities import Ending

    return Ending(
        exit_code=128 - status if status < 0 else status,
        signal=-status if status < 0 else None,
        seconds=seconds,
        by_tool=by_tool,
    )


def record_ending(
    stream: StreamWriter, pid: int, status: int, seconds: float, by_tool: str = ""
) -> Ending:
    """Emit the command's ending as the launcher's last event. `status` is Popen.returncode."""
    ending = ending_from(status, seconds, by_tool)
    stream.emit(Exited(pid=pid, **{**vars(ending), "seconds": round(seconds, 3)}))
    stream.close()
    return ending


def _start(
    command: Sequence[str],
    environment: Mapping[str, str],
    mask: set[signal.Signals | int],
    stdout: int | None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=environment,
        stdout=stdout,
        # Inherit descriptors from the shell, as for <(…).
        close_fds=False,
        # The program gets the signal mask that the tool was started with.
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
    )


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child, and forward signals that only the tool received."""
    if not hasattr(signal, "sigtimedwait"):  # On macOS, signals wait until the program ends.
        return child.wait()
    while child.poll() is None:
        arrived = signal.sigtimedwait(_WATCHED, _LONGEST_WAIT)
        if arrived is not None and arrived.si_signo != signal.SIGCHLD:
            _pass_on(child, arrived)
    return child.returncode


def _pass_on(child: subprocess.Popen[bytes], arrived: signal.struct_siginfo) -> None:
    """Forward a signal, unless it came from the terminal, which signals the child as well.

    A signal sent to the whole process group is indistinguishable from one sent to the tool alone,
    and reaches the child twice.
    """
    if arrived.si_code == _SENT_BY_KERNEL:
        return
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(arrived.si_signo)


# A package with one of these words may extend its search path.
_OWN_WAYS = (b"__path__", b"sys.modules", b"meta_path", b"path_hooks")


def _is_missing(module: str) -> bool:
    """Check whether this Python certainly lacks the module of `-m`; if in doubt, it runs.

    Nothing is imported, because importing a package runs its code.
    """
    first, *inner = module.split(".")
    try:
        spec = PathFinder.find_spec(first, [os.getcwd()]) or importlib.util.find_spec(first)
        name = first
        # `-m` runs a package's `__main__`.
        for part in (*inner, "__main__"):
            if spec is None or spec.submodule_search_locations is None:
                break
            if spec.origin and any(way in Path(spec.origin).read_bytes() for way in _OWN_WAYS):
                return False
            name = f"{name}.{part}"
            spec = PathFinder.find_spec(name, spec.submodule_search_locations)
        return spec is None
    except Exception:  # A custom finder failed, or a package is not a plain folder.
        return False
