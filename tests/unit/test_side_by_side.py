"""Work on many things on all cores: in order, without leftovers, plain about what went wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from inductoscope.errors import ToolFailure
from inductoscope.processes.side_by_side import several_at_once

_seen: list[str] = []


def _square(number: int) -> tuple[int, int]:
    time.sleep(0.01)  # So that one process cannot have done it all.
    return number * number, os.getpid()


def _what_was_seen(_: int) -> tuple[list[str], int]:
    return _seen, os.getpid()


def _die_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_from_other_processes() -> None:
    with several_at_once(2, 40) as map_:
        found = list(map_(_square, range(40)))
    assert [square for square, _ in found] == [n * n for n in range(40)]
    assert os.getpid() not in {pid for _, pid in found}


def test_one_thing_needs_no_other_process() -> None:
    with several_at_once(None, 1) as map_:
        assert list(map_(_square, [7])) == [(49, os.getpid())]


def test_workers_have_what_was_there_before_they_began(tmp_path: Path) -> None:
    """As copies of this process: nothing of it is sent, so that it can be anything.

    In a program of its own, because test runners may have threads, and then there are no copies.
    """
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from inductoscope.processes.side_by_side import several_at_once\n"
        "seen = []\n"
        "def work(_):\n"
        "    return seen, os.getpid()\n"
        "with several_at_once(2, 8, begin=lambda: seen.append('begun')) as map_:\n"
        "    found = list(map_(work, range(8)))\n"
        "assert all(there == ['begun'] and pid != os.getpid() for there, pid in found), found\n"
        "assert seen == []\n"
    )
    subprocess.run([sys.executable, program], check=True)


def test_where_copies_are_not_safe_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}._seen", [])
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    other.start()
    try:
        with several_at_once(2, 4, begin=partial(_seen.append, "begun")) as map_:
            assert list(map_(_what_was_seen, range(4))) == [(["begun"], os.getpid())] * 4
    finally:
        release.set()
        other.join()


def test_a_killed_worker_is_an_error_that_says_so() -> None:
    with (
        pytest.raises(ToolFailure, match="was killed, perhaps because memory ran out"),
        several_at_once(2, 8) as map_,
    ):
        list(map_(_die_at_three, range(8)))


def test_workers_end_with_whoever_started_them(tmp_path: Path) -> None:
    """Even where that one was killed and could end nothing."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\n"
        "from inductoscope.processes.side_by_side import several_at_once\n"
        "def work(number):\n"
        "    os.write(1, f'{os.getpid()}\\n'.encode())  # One write: workers share the pipe.\n"
        "    time.sleep(600)\n"
        "with several_at_once(2, 8) as map_:\n"
        "    list(map_(work, range(8)))\n"
    )
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        process.kill()
    end = time.monotonic() + 30
    while any(map(_is_running, workers)):
        assert time.monotonic() < end
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "zombie" not in status.read_text()
