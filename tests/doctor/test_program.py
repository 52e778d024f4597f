"""Watching a program from outside: when it has stalled, and what it was given to read."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.last_position import last_position
from inductoscope.doctor.runs import Listener, ProgramRun, RunLimits, keep_stdin, run_watched
from inductoscope.errors import ToolFailure
from inductoscope.hangs.watch.stall import StallWatcher, patience_of_doctor
from inductoscope.model.entities import Ending
from inductoscope.processes.tree import sample_tree
from inductoscope.recording.location import create_recording
from support.waiting import wait_until

MONOTONIC = time.monotonic
STAGE = {"kind": "stage-start", "stage": "lowering", "compile": "0/0"}
CALL = {"kind": "graph-call", "compile": "0/0", "call": 1}


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that waits; it has had the time to get there."""
    child = subprocess.Popen(["sleep", "60"])
    stat = Path(f"/proc/{child.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)
    yield child.pid
    child.kill()
    child.wait()


def stream(folder: Path, *events: dict[str, Any], pid: int) -> Path:
    """Output of a process so far."""
    path = folder / "streams" / f"{pid}-1.jsonl"
    lines = [
        json.dumps({"n": n, "t": 0.0, **e}, separators=(",", ":")) for n, e in enumerate(events)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create_recording(["python", "x.py"], output=tmp_path / "out")


def stalls_after(seconds: float, watcher: StallWatcher, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the watcher reports a stall so many seconds from now.

    It looks twice: what a process did in between shows what it is at.
    """
    now = MONOTONIC()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now + seconds * 0.8)
        found = list(watcher.look())
        patch.setattr(time, "monotonic", lambda: now + seconds)
        return bool([*found, *watcher.look()])


@pytest.mark.parametrize(
    ("events", "seconds", "is_stalled"),
    [
        ([STAGE], 15.0, True),
        ([STAGE], 5.0, False),
        ([STAGE, {"kind": "stage", "stage": "lowering"}], 90.0, False),
        ([STAGE, {"kind": "process-end"}], 90.0, False),
        ([CALL], 15.0, False),
        ([CALL], 60.0, True),
        ([CALL, {"kind": "graph-returned"}], 90.0, False),
        ([], 90.0, False),
    ],
    ids=["in a stage", "not long", "left it", "ended", "in a call", "long in it", "left", "idle"],
)
def test_a_process_stalls_inside_the_compiler_or_a_compiled_graph(
    events: list[dict[str, Any]],
    seconds: float,
    is_stalled: bool,
    folder: Path,
    sleeper: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream(folder, *events, pid=sleeper)
    watcher = StallWatcher(folder, patience_of_doctor(10.0))
    assert not stalls_after(0.0, watcher, monkeypatch)
    assert stalls_after(seconds, watcher, monkeypatch) is is_stalled


def test_a_program_that_is_traced_further_has_not_stalled(
    folder: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within five times the usual limit: a loop may be traced for ever."""
    began = MONOTONIC()
    path = stream(folder, {"kind": "stage-start", "stage": "dynamo"}, pid=sleeper)
    watcher = StallWatcher(folder, patience_of_doctor(10.0))

    def stalls_at(seconds: int) -> bool:
        with path.open("a") as file:
            file.write(f'{{"n":1,"t":{seconds}.0,"kind":"tracing"}}\n')
        monkeypatch.setattr(time, "monotonic", lambda: began + seconds)
        return bool(list(watcher.look()))

    assert [second for second in range(75) if stalls_at(second)][:1] == [49]


def test_a_process_that_gets_little_of_a_busy_machine_has_longer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(folder, STAGE, pid=os.getpid())  # It is ready to run, for it runs.
    watcher = StallWatcher(folder, patience_of_doctor(1000.0))
    assert not stalls_after(0.0, watcher, monkeypatch)
    for seconds, is_stalled in ((1500, False), (5000, True)):
        assert stalls_after(seconds, watcher, monkeypatch) is is_stalled


COMPILING = """
import subprocess, sys
spin = "while :; do :; done"
subprocess.run(["bash", "-c", f"exec -a cc1plus bash -c '{spin}'"])
"""


def test_a_process_whose_compiler_gets_little_of_a_busy_machine_has_longer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps itself, but the compiler that it waits for is ready to run."""
    child = subprocess.Popen([sys.executable, "-c", COMPILING], start_new_session=True)
    try:
        assert wait_until(lambda: sample_tree(child.pid).compilers)
        stream(folder, {"kind": "stage-start", "stage": "cpp-compile"}, pid=child.pid)
        watcher = StallWatcher(folder, patience_of_doctor(1000.0))
        assert not stalls_after(0.0, watcher, monkeypatch)
        for seconds, is_stalled in ((1500, False), (5000, True)):
            assert stalls_after(seconds, watcher, monkeypatch) is is_stalled
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_a_process_that_is_gone_has_not_stalled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another's by now, who must not get our signal."""
    child = subprocess.Popen(["true"])
    child.wait()
    stream(folder, STAGE, pid=child.pid)
    watcher = StallWatcher(folder, patience_of_doctor(1.0))
    assert not stalls_after(0.0, watcher, monkeypatch)
    assert not stalls_after(100.0, watcher, monkeypatch)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"stalled": True}, "made no progress"),
        ({"over_time": True}, "did not end in time"),
        ({}, "died of SIGKILL"),
    ],
    ids=["stalled", "over time", "killed"],
)
def test_a_program_that_was_ended_did_not_die_by_itself(
    run: dict[str, bool], said: str, folder: Path
) -> None:
    stream(folder, STAGE, pid=1)
    place = last_position(ProgramRun(Ending(137, 9, 1.0), folder, **run))
    assert place is not None
    assert f"the program {said} in stage lowering of compile 0/0" == place.failure.text


@pytest.mark.parametrize(
    ("run", "is_placed"), [({"over_time": True}, False), ({}, True)], ids=["over time", "killed"]
)
def test_a_program_that_was_ended_while_values_were_judged_did_not_hang(
    run: dict[str, bool], is_placed: bool, folder: Path
) -> None:
    """Compiled code had returned; what kills the process then may still be what it wrote."""
    call = {"kind": "graph-call", "compile": "0/0", "call": 1}
    stream(folder, call, {"kind": "compiled-returned"}, pid=1)
    place = last_position(ProgramRun(Ending(137, 9, 1.0), folder, **run))
    assert (place is not None) == is_placed


def test_what_was_piped_at_first_is_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stdin").write_bytes(b"seven\n")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert keep_stdin(tmp_path) == tmp_path / "stdin"


def test_a_trial_that_is_under_way_when_the_examination_is_over_says_nothing(folder: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ToolFailure, match="not run to its end"):
        run_watched(
            ["sleep", "60"],
            folder,
            Instructions(inside=False),
            cache=folder / "cache",
            stdin=None,
            limits=RunLimits(),
            listener=Listener(lambda text: None, is_over=lambda: True),
        )
    assert time.monotonic() - started < 30
