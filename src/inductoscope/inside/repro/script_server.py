"""Runs in a child process: loads torch and its compiler, then runs one script in forks.

A request names the script, the number of runs, how many run in parallel, and the time limit. The
answer has exit code and output of each run, with null as the exit code of a run that timed out;
the answer is null if this process cannot be forked.

Loading takes longer than most scripts, so it happens once, before the script is known. To the
script each fork looks like `python SCRIPT`. Unlike processes that are started one by one, forks
share their address space layout and hash seed.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import types
import warnings
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

from inductoscope.inside import private_cache
from inductoscope.inside.search.compiler_imports import import_compiler
from inductoscope.processes.ending import end_fork
from inductoscope.processes.limits import die_with_parent

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel

_LOOK_EVERY = 0.02
# torch asks the driver's management library whether there is a GPU, rather than start the driver,
# which would not survive a fork.
_ASK_WITHOUT_STARTING = "PYTORCH_NVML_BASED_CUDA_CHECK"
_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED


def serve(channel: Channel) -> None:
    """Load torch, serve one request, end. In a fork, run the script."""
    _load()
    request = next(channel.requests, None)
    if request is None:
        return
    if not _can_fork():
        channel.say("runs", runs=None)
        return
    output = _serve(request, channel)
    if output is not None:
        channel.close()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        _run(request["script"])


# --- the server -----------------------------------------------------------------------------------


def _load() -> None:
    """Load everything a script may need; a failed import of torch is for the script to show."""
    is_own = _ASK_WITHOUT_STARTING not in os.environ
    os.environ.setdefault(_ASK_WITHOUT_STARTING, "1")
    gc.disable()  # Imports create ever more objects to scan, and no garbage.
    with contextlib.suppress(BaseException), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_compiler()
        private_cache.learn_answers()
    gc.freeze()
    if is_own:
        del os.environ[_ASK_WITHOUT_STARTING]


def _can_fork() -> bool:
    """Check whether forks behave like new processes: no other threads, no CUDA context."""
    if threading.active_count() > 1:
        return False
    torch = sys.modules.get("torch")
    return torch is None or not (torch.cuda.is_initialized() or _has_started_driver())


def _has_started_driver() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return False  # The driver library is not even loaded.
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALIZED)


def _serve(request: dict[str, Any], channel: Channel) -> int | None:
    """Fork, wait and answer; in each fork, return the file descriptor for its output."""
    outputs: dict[int, int] = {}
    runs: list[tuple[int | None, str]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        while len(runs) < request["times"]:
            for _ in range(min(request["at_once"], request["times"] - len(runs))):
                output = os.memfd_create("output")
                fork = os.fork()
                if fork == 0:
                    outputs.clear()  # The fork must not kill its siblings.
                    die_with_parent()
                    os.setpgid(0, 0)
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    return output
                outputs[fork] = output
            runs += _ended(outputs, time.monotonic() + request["seconds"])
        channel.say("runs", runs=runs)
        return None
    finally:
        for fork in outputs:
            end_fork(fork)


def _ended(outputs: dict[int, int], until: float) -> list[tuple[int | None, str]]:
    """Wait for the forks, and kill those that exceed the time limit; empties `outputs`."""
    is_over = {fork: _is_over(fork, until) for fork in outputs}
    runs = []
    for fork, output in list(outputs.items()):
        status = end_fork(fork)
        del outputs[fork]
        code = os.waitstatus_to_exitcode(status) if is_over[fork] else None
        runs.append((code, _text(output)))
    return runs


def _is_over(fork: int, until: float) -> bool:
    """Wait for a fork to end, without reaping it, so that its process ID is not reused."""
    while os.waitid(os.P_PID, fork, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _text(output: int) -> str:
    with open(output, "rb") as file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


# --- a fork ---------------------------------------------------------------------------------------


def _run(script: str) -> None:
    """Run the script and exit as `python SCRIPT` does."""
    gc.enable()
    for name in [name for name in sys.modules if name.partition(".")[0] == "inductoscope"]:
        del sys.modules[name]  # The script finds the modules of this tool unloaded.
    atexit.register(_end_quietly)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # Otherwise all forks would draw the same numbers.
    sys.argv = [script]
    sys.orig_argv = [sys.executable, script]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(script))
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=script,
        __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", script),
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = module
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except Exception as error:
        if error.__traceback__ is not None:
            error.__traceback__ = error.__traceback__.tb_next  # The traceback starts at the script.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    sys.exit()


def _end_quietly() -> None:
    """Keep the exit of a fork from freeing what was loaded before it, which takes a second.

    Modules are then torn down in an unusual order, so finalizers may fail for missing modules.
    """
    sys.unraisablehook = lambda _: None
