"""A guarded command ends with the call that started it, and with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.processes.children import GuardedCommand
from inductoscope.processes.status import all_pids, is_alive
from inductoscope.processes.tree import environment_of
from support.waiting import wait_until

MARK = "INDUCTOSCOPE_TEST_MARK"

# Leaves a process in a session of its own without a parent, which ignores what asks it to end.
LEAVES_OTHERS = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
middle = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
subprocess.run([sys.executable, "-c", middle])
print("started", file=sys.stderr, flush=True)
{then}
"""


def started(code: str, folder: Path) -> GuardedCommand:
    environment = {**os.environ, MARK: str(folder)}
    return GuardedCommand([sys.executable, "-c", code], folder=folder, environment=environment)


def left(folder: Path) -> list[int]:
    return [pid for pid in all_pids() if environment_of(pid).get(MARK) == str(folder)]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 11)", -11)],
)
def test_it_ends_as_the_command_does(code: str, exit_code: int, tmp_path: Path) -> None:
    command = started(code, tmp_path)
    assert list(command.lines()) == []
    assert command.end(grace=5.0) == exit_code
    assert left(tmp_path) == []


def test_lines_come_as_they_are_written_whatever_else_is_printed(tmp_path: Path) -> None:
    code = (
        "import sys\nfor n in range(3):\n    print('x' * 100_000)\n    print(n, file=sys.stderr)\n"
        "sys.stderr.write('end')"
    )
    command = started(code, tmp_path)
    assert list(command.lines()) == ["0", "1", "2", "end"]
    assert command.end(grace=5.0) == 0


def test_it_works_in_the_folder_and_has_nothing_to_read(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), repr(sys.stdin.read()), file=sys.stderr)"
    command = started(code, tmp_path)
    assert list(command.lines()) == [f"{tmp_path} ''"]
    command.end(grace=5.0)


def test_everything_that_it_started_is_ended(tmp_path: Path) -> None:
    command = started(LEAVES_OTHERS.format(then="time.sleep(600)"), tmp_path)
    assert next(command.lines()) == "started"
    assert len(left(tmp_path)) == 3  # The guard, the command, and what it left behind.
    assert command.end(grace=0.2) < 0
    assert left(tmp_path) == []


@pytest.mark.parametrize("then", ["time.sleep(600)", "print('x' * 10_000_000)"])
def test_nothing_is_left_if_the_parent_is_killed(then: str, tmp_path: Path) -> None:
    """Not even of a command that ends by itself because nobody reads what it prints."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from inductoscope.processes.children import GuardedCommand\n"
        f"command = GuardedCommand([sys.executable, '-c', {LEAVES_OTHERS.format(then=then)!r}],\n"
        "    folder=Path(), environment=os.environ)\n"
        "print(next(command.lines()), flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    environment = {**os.environ, MARK: str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, left(tmp_path))), 20)
    assert [pid for pid in left(tmp_path) if is_alive(pid)] == []
