"""A copy of the program, forked before it used the GPU, in which candidates are tried.

A process that has initialised CUDA cannot be forked any more. So at the last moment before that,
the program is forked once. The copy has torch and the program's own operators loaded; it loads the
compiler and waits. When the program finds a failure, it hands the graph over, and the copy
searches: each candidate runs in a fork of the copy, which initialises CUDA for itself. The program
only waits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.values import size_in_bytes
from inductoscope.inside.memory_budget import has_room_in_main_memory
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.candidate_file import read_candidate, write_candidate
from inductoscope.inside.search.forks import can_fork
from inductoscope.inside.search.program_state import TorchState, current_state
from inductoscope.recording.events import CandidateJudged, ClaimMade, Event, GrowthMeasured, Said
from inductoscope.recording.writer import StreamWriter, describe_launcher

Task = Callable[..., Any]
# Of what is handed over: in the program, in a file, which may be in memory, and in the copy.
_COPIES = 3


class ProgramCopy:
    """The program's connection to its waiting copy."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, task: Task, candidate: Any, *arguments: Any, folder: Path) -> Any:
        """Run `task(candidate, *arguments)` in the copy; the program waits for the result.

        Raises `ToolFailure` if the candidate cannot be handed over, or the copy is gone.
        """
        path = folder / f".candidate-{os.getpid()}.pt"
        size = size_in_bytes(candidate.inputs) if isinstance(candidate, Candidate) else 0
        if not has_room_in_main_memory(_COPIES * size):
            raise ToolFailure(f"the graph's inputs, {size >> 20} MiB, are too large to hand over")
        try:
            write_candidate(candidate, path)
            _send(self._connection, (task, str(path), arguments, current_state()))
            found, error = _received(self._connection)
        except (OSError, EOFError) as problem:
            why = str(problem) or "it has ended"
            raise ToolFailure(f"the copy of the program is gone: {why}") from problem
        finally:
            path.unlink(missing_ok=True)
        if error:
            raise ToolFailure(f"the copy of the program failed: {error}")
        return found


# In the program, the copy and the program's process ID; in the copy, its own process ID.
_copy: ProgramCopy | None = None
_owner = 0
_copy_itself = 0


def program_copy() -> ProgramCopy | None:
    """Return the copy of this process; None if there is none."""
    return _copy if _owner == os.getpid() else None


def run_forking(
    task: Task, candidate: Any, *arguments: Any, folder: Path, otherwise: Any = None
) -> Any:
    """Run a task that forks, here or in the copy of a program that uses a GPU.

    Returns `otherwise` if the copy fails.
    """
    copy = None if can_fork() else program_copy()
    if copy is None:
        return task(candidate, *arguments)
    try:
        return copy.run(task, candidate, *arguments, folder=folder)
    except ToolFailure:
        return otherwise


def take_copy() -> None:
    """Fork the copy, if it is not too late; called before CUDA may be initialised."""
    if _owner == os.getpid():
        return
    if _copy_itself == os.getpid():
        raise RuntimeError("this process is kept for forks, so it must not use the GPU")
    SCOPE.guard(_take_copy)


def take_copy_before_compile() -> None:
    """Fork the copy where there is a GPU: even a compile for the CPU initialises CUDA.

    It is too late for a fork in the middle of a compile.
    """
    if any(map(os.path.exists, FILES_OF_GPUS)):
        take_copy()


# Device files of NVIDIA, AMD and WSL drivers. Asking CUDA would initialise it.
FILES_OF_GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def _take_copy() -> None:
    import torch

    is_late = torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()
    has_cuda = hasattr(torch._C, "_cuda_getDeviceCount")
    if has_cuda and not is_late and SCOPE.active and not SCOPE.is_redirected:
        _fork_between_compiles()


def _fork_between_compiles() -> None:
    """Fork unless a thread is compiling, whose lock would never be released in the copy."""
    lock = getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)
    if lock is None:
        fork_copy()
    elif not lock._is_owned() and lock.acquire(blocking=False):
        try:
            fork_copy(lock.release)
        finally:
            lock.release()


def fork_copy(release: Callable[[], None] = lambda: None) -> None:
    """Fork this process; the copy calls `release`, and waits for tasks."""
    global _copy, _owner
    _owner = os.getpid()
    ours, theirs = Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about forks of threaded processes.
        child = os.fork()
    if child == 0:
        # Fork twice, as the program must not find a child that it did not start.
        if os.fork() == 0:
            release()
            ours.close()
            _be_copy(theirs)
        os._exit(0)
    os.waitpid(child, 0)
    theirs.close()
    _copy = ProgramCopy(ours)


# --- in the copy ----------------------------------------------------------------------------------


_OF_FINDINGS = (ClaimMade, CandidateJudged, GrowthMeasured, Said)


class FindingsAlone:
    """A writer in place of the recording, which records only the copy's findings."""

    stopped: str | None = None

    def __init__(self, folder: Path | None) -> None:
        """Open the stream; without a folder, nothing is recorded."""
        self._stream = StreamWriter(folder, first_event=describe_launcher) if folder else None

    def emit(self, event: Event) -> None:
        """Record an event if it is a finding."""
        if self._stream is not None and isinstance(event, _OF_FINDINGS):
            self._stream.emit(event)

    def payload(self, text: str) -> str:
        return ""

    def close(self) -> None:
        """Do nothing: the stream needs no close."""


def _be_copy(connection: Connection) -> None:
    """Serve tasks until the program is gone; never return into the program."""
    global _copy_itself
    _copy_itself = os.getpid()
    with contextlib.suppress(BaseException):
        _leave_program(connection)
        SCOPE.redirect(FindingsAlone(getattr(SCOPE.writer, "folder", None)))
        from inductoscope.inside.search.compiler_imports import import_compiler

        import_compiler()
        while True:
            task, path, arguments, state = _received(connection)
            _send(connection, _done(task, Path(path), arguments, state))
    os._exit(0)


def _done(task: Task, path: Path, arguments: tuple[Any, ...], state: TorchState) -> tuple[Any, str]:
    try:
        state.adopt()
        with state.entered():
            return task(read_candidate(path), *arguments), ""
    except Exception as error:
        text = "".join(traceback.format_exception(error))[-1500:]
        return None, text


def _leave_program(connection: Connection) -> None:
    """Close the program's open files, so that their other ends see it close them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    keep = connection.fileno()
    os.closerange(3, keep)
    os.closerange(keep + 1, 65536)
    sys.stdin = open(os.devnull)  # noqa: SIM115


def _send(connection: Connection, message: Any) -> None:
    # Connection.send would share memory if torch.multiprocessing is loaded.
    connection.send_bytes(pickle.dumps(message))


def _received(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())
