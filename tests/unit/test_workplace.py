"""Programs in a workplace leave neither files nor processes, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A command that leaves another behind, with a session of its own; and a file that grows.
WORKING = """
import subprocess, sys, tempfile, time
from battery.workplace import workplace
with workplace("kept-tidy") as folder:
    left = "sh -c 'echo $$ > {noted}.part; mv {noted}.part {noted}; exec sleep 600' &"
    subprocess.run(["setsid", "sh", "-c", left], check=True)
    with tempfile.TemporaryDirectory() as inner:
        print(folder, inner, flush=True)
        {ending}
"""


def start(noted: Path, ending: str) -> tuple[subprocess.Popen[str], list[Path]]:
    """A program, and the folders that it works in, once it has left a process behind."""
    code = WORKING.format(noted=noted, ending=ending)
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    folders = [Path(name) for name in child.stdout.readline().split()]
    while not noted.exists():
        time.sleep(0.02)
    return child, folders


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def assert_nothing_is_left(noted: Path, folders: list[Path]) -> None:
    assert len(folders) == 2
    assert folders[1].parent == folders[0]
    assert not folders[0].exists()
    assert not runs(int(noted.read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_of_it(number: signal.Signals, tmp_path: Path) -> None:
    child, folders = start(tmp_path / "noted", "time.sleep(600)")
    child.send_signal(number)
    # The terminal sends its signal to all, and whoever started us passes on another.
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) in (128 + number, 128 + signal.SIGTERM)
    assert_nothing_is_left(tmp_path / "noted", folders)


def test_a_command_that_runs_ends_too(tmp_path: Path) -> None:
    command = 'subprocess.Popen(["sleep", "600"]).wait()'
    child, folders = start(tmp_path / "noted", command)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) == 128 + signal.SIGTERM
    assert_nothing_is_left(tmp_path / "noted", folders)


@pytest.mark.parametrize(("ending", "code"), [("pass", 0), ("1 / 0", 1)])
def test_nothing_is_left_by_what_ends_or_fails(ending: str, code: int, tmp_path: Path) -> None:
    child, folders = start(tmp_path / "noted", f"time.sleep(0.3); {ending}")
    assert child.wait(timeout=60) == code
    assert_nothing_is_left(tmp_path / "noted", folders)


def test_a_folder_that_is_to_be_kept_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    code = (
        "import pathlib\nfrom battery.workplace import workplace\n"
        f"with workplace('x', pathlib.Path({str(kept)!r})) as folder:\n"
        "    folder.mkdir()\n    (folder / 'result').touch()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert (kept / "result").exists()


DECIDING = "signal.signal(signal.SIGTERM, "


@pytest.mark.parametrize("folder", ["bench", "battery"])
def test_nobody_else_decides_how_a_signal_ends_a_benchmark(folder: str) -> None:
    files = {path for path in (ROOT / folder).rglob("*.py") if DECIDING in path.read_text()}
    # That passes on what it gets to the command that it measures.
    assert files <= {ROOT / "battery" / "models" / "measure.py"}
