"""`inductoscope attach` on processes that know nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from inductoscope.cli.commands.attach import command
from inductoscope.errors import ToolFailure, UsageError
from inductoscope.hangs.watch.attaching import attach
from inductoscope.processes import stacks
from support.json_schema import violations

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

SLEEPS = """
import time

def waits_here():
    print("ready", flush=True)
    time.sleep(60)

waits_here()
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python program that waits."""
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS)
    child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.communicate()


def test_a_program_in_code_of_its_own_is_told_by_its_stack(
    sleeper: subprocess.Popen[str], tmp_path: Path
) -> None:
    target = tmp_path / "seen.json"
    done = CliRunner().invoke(command, [str(sleeper.pid), "--seconds", "1", "--json", str(target)])
    assert done.exit_code == 1, done.output
    assert "in its own code: waits_here" in done.output
    seen = json.loads(target.read_text())
    assert violations("attach", seen) == []
    assert (seen["schema"], seen["is_stuck"]) == (1, True)
    assert seen["stall"]["judgement"]["kind"] == "user-code"
    assert sleeper.poll() is None


def test_a_program_that_works_in_short_bursts_moves(tmp_path: Path) -> None:
    """A call that takes microseconds, five times a second, is never seen on the stack."""
    script = "import time\nprint(flush=True)\nwhile True:\n    sum(range(9)); time.sleep(0.2)\n"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        done = CliRunner().invoke(command, [str(child.pid), "--seconds", "3"])
        assert done.exit_code == 0, done.output
        assert "is making progress: its own code pauses and goes on" in done.output
    finally:
        child.kill()
        child.communicate()


def test_without_a_stack_it_says_what_is_missing_and_how_to_get_it(
    sleeper: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "spy", lambda: None)
    done = CliRunner().invoke(command, [str(sleeper.pid), "--seconds", "0.5"])
    assert done.exit_code == 1
    assert "pip install py-spy" in done.output
    assert "The cause of the stall is unknown" in done.output


def test_json_on_standard_output_is_all_there_is(sleeper: subprocess.Popen[str]) -> None:
    words = [
        sys.executable,
        "-c",
        "from inductoscope.cli.commands.attach import command; command()",
    ]
    done = subprocess.run(
        [*words, str(sleeper.pid), "--seconds", "0.5", "--json", "-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["pid"] == sleeper.pid
    assert "watching" in done.stderr


def test_a_process_that_does_not_exist() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with pytest.raises(UsageError, match="There is no process"):
        attach(child.pid, say=print)


@pytest.mark.parametrize("pid", [0, -1])
def test_numbers_that_are_no_process(pid: int) -> None:
    with pytest.raises(UsageError, match="There is no process"):
        attach(pid, say=print)


@pytest.fixture
def no_python() -> Iterator[int]:
    """A process that runs `sleep`."""
    child = subprocess.Popen(["sleep", "60"])
    time.sleep(0.1)
    yield child.pid
    child.kill()
    child.wait()


def test_a_process_of_another_kind_is_named(no_python: int) -> None:
    with pytest.raises(UsageError, match=r"not a Python process: it is sleep \(sleep 60\)"):
        attach(no_python, say=print)


@pytest.mark.parametrize(("user", "advice"), [(0, "--cap-add SYS_PTRACE"), (1000, "or as root")])
def test_a_process_that_cannot_be_read_is_not_taken_for_python(
    no_python: int, user: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "readlink", denied)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(ToolFailure, match="does not look like Python") as failure:
        attach(no_python, say=print)
    assert advice in str(failure.value)
    assert ("or as root" in str(failure.value)) == (user != 0)


def test_a_process_that_is_dead_already() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(UsageError, match="already dead"):
        attach(child.pid, say=print)
    child.wait()


def test_a_process_that_ends_while_it_is_looked_at() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
    try:
        with pytest.raises(UsageError, match="ended while"):
            attach(child.pid, seconds=1.0, say=print)
    finally:
        child.wait()
