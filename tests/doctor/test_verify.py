"""The proof: a script is a reproducer if it fails the right way in every fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inductoscope.doctor.fresh_processes import FreshProcesses, Verification
from inductoscope.errors import ToolFailure
from inductoscope.processes.status import is_alive
from support.waiting import wait_until

Script = Callable[[str], Path]


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch cannot be loaded, which would take most of the time."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "torch.py").write_text("raise ImportError('not here')\n")
    return {"PYTHONPATH": str(tmp_path / "path")}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a script."""

    def write(text: str) -> Path:
        path = tmp_path / "scripts" / "repro.py"
        path.parent.mkdir()
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("print('the bug'); raise SystemExit(1)", 2),
        ("print('another bug'); raise SystemExit(1)", 0),
        ("print('the bug')", 0),
        ("print('the bug', flush=True); import os; os.abort()", 0),
    ],
    ids=["fails", "fails otherwise", "does not fail", "dies"],
)
def test_a_script_is_a_reproducer_if_it_fails_the_right_way(
    text: str, failed: int, script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    processes = FreshProcesses(no_torch, tmp_path, times=2)
    found = processes.verify(script(text), ["the bug"], seconds=60)
    assert (found.failed, found.of, found.is_verified) == (failed, 2, failed == 2)


def test_a_script_that_never_ends_is_not_verified(
    script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    endless = script("print('the bug', flush=True); import time; time.sleep(100)")
    # It gets as long once, and twice as long with the machine to itself.
    found = FreshProcesses(no_torch, tmp_path, times=1).verify(endless, ["the bug"], seconds=1)
    assert found == Verification(failed=0, of=1, output="")


def test_what_was_never_run_is_not_verified() -> None:
    assert not Verification(failed=0, of=0, output="").is_verified


def test_a_script_that_fails_now_and_then_is_not_verified(
    script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    unsteady = script(
        "import os, sys\n"
        "try:\n    os.mkdir('first')\nexcept FileExistsError:\n    sys.exit('the bug')\n"
    )
    found = FreshProcesses(no_torch, tmp_path, times=3).verify(unsteady, ["the bug"])
    assert (found.failed, found.of, found.is_verified) == (2, 3, False)
    assert found.output == "the bug\n"


def test_scripts_that_time_something_do_not_run_at_once(
    script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    alone = script(
        "import os, sys, time\n"
        "os.mkdir('running')\n"  # Fails where another run is under way.
        "time.sleep(0.3)\n"
        "os.rmdir('running')\n"
        "sys.exit('the bug')\n"
    )
    processes = FreshProcesses(no_torch, tmp_path, times=3)
    assert processes.verify(alone, ["the bug"], is_timed=True).is_verified


# --- one process that loads torch, and forks ------------------------------------------------------


def test_the_compiler_is_loaded_once_before_the_script_comes(
    script: Script, tmp_path: Path
) -> None:
    loaded = script(
        "import os, sys, torch\n"
        "assert {'torch._dynamo', 'torch._inductor.codegen.cpp'} <= sys.modules.keys()\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert 'PYTORCH_NVML_BASED_CUDA_CHECK' not in os.environ\n"
        "assert 'inductoscope' not in sys.modules\n"
        "if os.fork() == 0: os._exit(torch.ones(100000).sum() != 100000)\n"
        "assert os.wait()[1] == 0\n"
        "sys.exit(f'the bug, below {os.getppid()}')\n"
    )
    found = FreshProcesses({}, tmp_path, times=2).verify(loaded, ["the bug"])
    assert found.is_verified, found.output


# What a script can see of the process that it runs in, and what it leaves at its end.
_LOOKING_ROUND = """
import __main__, atexit, inspect, os, pickle, signal, sys, threading, time

class Thing: pass

def report(*what): print(*what, file=sys.stderr)

atexit.register(report, "at exit")
threading.Thread(target=lambda: (threading.main_thread().join(), report("a thread"))).start()
report(__name__, __file__, __doc__, __spec__, __package__, sorted(vars(__main__)))
report(sys.argv, sys.orig_argv, sys.path, os.getcwd(), inspect.getsource(Thing))
report(type(pickle.loads(pickle.dumps(Thing()))) is Thing, Thing.__module__)
report(repr(sys.stdin.read()), os.readlink("/proc/self/fd/0"), sorted(os.environ))
report([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)])
report(threading.active_count(), os.getpgid(0) == os.getpid(), [*globals()].index("Thing"))
report(hasattr(sys, "ps1"), sys.flags, "annotations" in globals())
report(sorted(os.listdir("/proc/self/fd")))
print("the bug")
"""


@pytest.mark.parametrize(
    "end",
    [
        "1 / 0",
        "sys.exit('bye')",
        "sys.exit(7)",
        "sys.exit(None)",
        "os._exit(3)",
        "os.abort()",
        "raise KeyboardInterrupt",
        "sys.excepthook = lambda *what: report('own', what[0]); None.nothing",
        "def :",
        "",
    ],
)
def test_a_fork_is_like_a_script_that_python_was_started_with(
    end: str, script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    path = script(_LOOKING_ROUND + end)
    processes = FreshProcesses(no_torch, tmp_path, times=1)
    forked, *_ = processes._in_forks(path, 60, at_once=1)
    fresh = processes._alone(path, 60)
    assert forked[0] == fresh[0]
    if end != "raise KeyboardInterrupt":  # Its traceback has the server's frames too.
        assert forked[1] == fresh[1]


def test_a_process_that_cannot_be_forked_is_replaced_by_new_ones(
    script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    """A torch that starts a thread, or the GPU's driver, when it is loaded."""
    (tmp_path / "path" / "torch.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n"
    )
    path = script("import sys; sys.exit(f'the bug {len(sys._current_frames())}')")
    found = FreshProcesses(no_torch, tmp_path, times=2).verify(path, ["the bug 1"])
    assert (found.failed, found.of) == (2, 2)


def test_a_server_that_dies_is_replaced_by_new_processes(
    script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    (tmp_path / "path" / "torch.py").write_text("import os; os.abort()\n")
    path = script("import sys; sys.exit('the bug')")
    assert FreshProcesses(no_torch, tmp_path, times=2).verify(path, ["the bug"]).is_verified


_STARTS_ANOTHER = """
import os, subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
open("started", "w").write(f"{os.getpid()} {other.pid}\\n")
"""


def _started(folder: Path) -> list[int]:
    text = wait_until(lambda: (folder / "started").exists() and (folder / "started").read_text())
    return [int(word) for word in str(text).split()]


@pytest.mark.parametrize("end", ["sys.exit('the bug')", "time.sleep(100)"], ids=["ends", "hangs"])
def test_nothing_that_a_script_started_is_left(
    end: str, script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    path = script(_STARTS_ANOTHER + end)
    runs = FreshProcesses(no_torch, tmp_path, times=1)._in_forks(path, 2, at_once=1)
    assert [code for code, _ in runs] == [1 if "bug" in end else None]
    assert wait_until(lambda: not any(map(is_alive, _started(tmp_path))), 10)


def test_closing_ends_the_runs_and_starts_no_more(
    script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    path = script(_STARTS_ANOTHER + "time.sleep(100)")
    processes = FreshProcesses(no_torch, tmp_path, times=1)
    with ThreadPoolExecutor(1) as beside:
        verification = beside.submit(processes.verify, path, ["the bug"])
        pids = _started(tmp_path)
        processes.close()
        with pytest.raises(ToolFailure):
            verification.result(60)
    assert wait_until(lambda: not any(map(is_alive, pids)), 10)


def test_forks_die_with_whoever_asked_for_them(
    script: Script, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    path = script(_STARTS_ANOTHER + "time.sleep(100)")
    asking = (
        "import pathlib, sys; from inductoscope.doctor.fresh_processes import FreshProcesses as F\n"
        f"F({no_torch!r}, pathlib.Path({str(tmp_path)!r})).verify(pathlib.Path(sys.argv[1]), [])"
    )
    doctor = subprocess.Popen([sys.executable, "-c", asking, str(path)])
    forked, other = _started(tmp_path)
    doctor.kill()
    doctor.wait()
    assert wait_until(lambda: not is_alive(forked), 10)
    subprocess.run(["kill", "-9", str(other)], check=False)
