"""Which exceptions are recorded as what ended a process, a thread or a recorded block. No torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.model.fold import load

# What the start-up hook does when torch is imported.
RECORDED = """
from pathlib import Path
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.uncaught import record_until_exit
from inductoscope.recording.location import create_recording
SCOPE.open(create_recording(["program.py"], output=Path("recording"), fresh=False))
record_until_exit()
"""
WITH_RECORD = """
import inductoscope
def values():
    with inductoscope.record(output="recording"):
        yield 1
"""


def uncaught(folder: Path, text: str, *how: str) -> list[str]:
    """The types of the exceptions that the recording of a program has."""
    (folder / "program.py").write_text(text)
    words = [sys.executable, *(how or ("program.py",))]
    subprocess.run(words, cwd=folder, capture_output=True, check=False)
    recording = load(folder / "recording")
    return [error.type for process in recording.processes for error in process.uncaught]


@pytest.mark.parametrize("how", [("program.py",), ("-m", "program")])
def test_what_leaves_the_program_is_recorded(tmp_path: Path, how: tuple[str, ...]) -> None:
    text = f"{RECORDED}def work():\n    raise ValueError\nwork()\n"
    assert uncaught(tmp_path, text, *how) == ["ValueError"]


def test_what_pytest_or_ipython_caught_and_keeps_is_not(tmp_path: Path) -> None:
    keeps = """
import sys
def call(test):
    try:
        test()
    except Exception as error:
        sys.last_value, sys.last_traceback = error, error.__traceback__
def test():
    raise ValueError
call(test)
sys.exit(1)
"""
    assert uncaught(tmp_path, RECORDED + keeps) == []


CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import not_there'])"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import not_there", "the program failed with ModuleNotFoundError at program.py:1"),
        (CHILD, "the program ended with exit code 0"),
        (f"{CHILD}\nsys.exit(1)", "the program ended with exit code 1"),
    ],
)
def test_a_program_that_fails_before_it_imports_torch(
    tmp_path: Path, text: str, expected: str
) -> None:
    """A child without torch that fails is none of ours: many do by design."""
    (tmp_path / "program.py").write_text(text)
    words = ("run", "--output", "recording", "program.py")
    done = subprocess.run(
        [sys.executable, "-m", "inductoscope", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"inductoscope: {expected}" in done.stderr


@pytest.mark.parametrize(
    ("leave", "expected"),
    [
        ("found = values(); next(found); found.close()", []),
        ("found = values(); next(found); found.throw(asyncio.CancelledError())", []),
        ("found = values(); next(found); found.throw(KeyError())", ["KeyError"]),
    ],
)
def test_a_recorded_block_that_is_not_wanted_any_more_did_not_fail(
    tmp_path: Path, leave: str, expected: list[str]
) -> None:
    assert uncaught(tmp_path, f"import asyncio\n{WITH_RECORD}\n{leave}\n") == expected
