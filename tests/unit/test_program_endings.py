"""Why a run under the doctor is over: what `show` says later, and what is concluded from it.

The programs are real and end really; what the doctor's part inside them would record or leave
behind, they write themselves, so that nothing has to be compiled.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor import runs
from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.finding import PROGRAM, Claim, finding_in
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.runs import Listener, ProgramRun, RunLimits, run_watched
from inductoscope.model.fold import load
from inductoscope.recording.events import ProcessStart
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter
from inductoscope.views.report.summary import summary_view

# A process that has found something writes that, and that it investigates; then it ends.
FINDS = """
import os, sys
from pathlib import Path
from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.finding import PROGRAM, Claim
from inductoscope.doctor.instructions import STOPPED
from inductoscope.recording.events import ProcessStart
from inductoscope.recording.writer import StreamWriter

def find():
    stream = StreamWriter(Path(sys.argv[1]), first_event=ProcessStart)
    stream.emit(Claim(Failure(WRONG, "output 0 is 2, in eager 1"), PROGRAM).as_event())
    os._exit(STOPPED)
"""
WAITS = "\nimport time\ntime.sleep(100)"


def ran(source: str, tmp_path: Path, limits: RunLimits | None = None) -> ProgramRun:
    script = tmp_path / "x.py"
    script.write_text(textwrap.dedent(source))
    folder = tmp_path / "out"
    command = [sys.executable, str(script), str(folder)]
    return run_watched(
        command,
        create_recording(command, output=folder),
        Instructions(),
        cache=tmp_path / "cache",
        stdin=None,
        limits=limits or RunLimits(seconds=60.0),
        listener=Listener(lambda text: None),
    )


def state(run: ProgramRun) -> str:
    """The ending that `show` reports."""
    return str(summary_view(load(run.folder), [])["state"])


def test_a_program_that_ends_by_itself(tmp_path: Path) -> None:
    run = ran("print('done')", tmp_path)
    assert run.ended_well
    assert run.ending.by_tool == ""
    assert run.output == "done\n"


def test_a_process_that_has_found_something_ends_the_program(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    run = ran(FINDS + "find()", tmp_path)
    assert run.ending.by_tool == snapshot
    assert state(run).endswith(run.ending.by_tool)
    assert run.finding is not None
    assert run.finding == finding_in(run.folder)


def test_the_same_exit_code_is_the_programs_own_if_nothing_was_found(tmp_path: Path) -> None:
    run = ran("import sys\nsys.exit(75)", tmp_path)
    assert run.failed
    assert run.ending.by_tool == ""
    assert "the program ended with exit code 75" in state(run)


def test_processes_that_wait_for_the_one_that_found_something_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the other ranks of distributed training do."""
    monkeypatch.setattr(runs, "_TIME_TO_END", 0.5)
    run = ran(FINDS + "if os.fork() == 0:\n    find()\nos.wait()" + WAITS, tmp_path)
    assert run.ending.signal == 9
    assert run.ending.by_tool
    assert state(run).endswith(run.ending.by_tool)


def test_a_claim_made_just_before_the_program_is_ended_is_in_its_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look comes after the end; here the claim is made between the two."""
    end = runs.end_with_descendants

    def claim_and_end(child: subprocess.Popen[Any]) -> int:
        stream = StreamWriter(tmp_path / "out", first_event=ProcessStart)
        stream.emit(Claim(Failure(WRONG, "output 0 is 2"), PROGRAM).as_event())
        return end(child)

    monkeypatch.setattr(runs, "end_with_descendants", claim_and_end)
    run = ran(WAITS, tmp_path, RunLimits(seconds=0.5))
    assert run.over_time
    assert run.finding is not None
    assert run.finding == finding_in(run.folder)


def test_stop_ends_a_program_once_all_calls_that_are_checked_were_made(tmp_path: Path) -> None:
    checks = """
    import sys
    from pathlib import Path
    from inductoscope.recording.events import Check, CallsUnchecked
    from inductoscope.recording.events import ProcessStart
    from inductoscope.recording.writer import StreamWriter

    stream = StreamWriter(Path(sys.argv[1]), first_event=ProcessStart)
    for call in range(3):
        stream.emit(Check(compile="0/0", call=call, verdict="right", text="2 values"))
    stream.emit(CallsUnchecked(compile="0/0"))
    """
    source = textwrap.dedent(checks) + WAITS
    run = ran(source, tmp_path, RunLimits(seconds=60.0, stops_after_calls=True))
    assert run.calls_done
    assert run.was_ended
    assert not run.failed
    assert state(run).endswith("all calls that were to be checked had been made")


def test_a_limit_ends_a_program_and_is_called_a_limit(tmp_path: Path) -> None:
    run = ran(WAITS, tmp_path, RunLimits(seconds=0.5, stops_after_calls=True))
    assert run.over_time
    assert not run.calls_done
    assert state(run).endswith("it reached the time limit")
