"""Which of the program's runs a verdict shows the output of: the one that it is based on."""

from __future__ import annotations

import sys
from pathlib import Path

from inductoscope.doctor.alarm import Alarm, write_alarm
from inductoscope.doctor.examination import Doctor, Request
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.runs import Listener, RunLimits, Runs
from inductoscope.recording.location import create_recording
from support.program_cases import COMMAND, COMPILED, End, WrittenRuns


def test_a_run_that_fails_only_because_graphs_were_not_kept_is_not_shown(tmp_path: Path) -> None:
    """Torch refuses a second backward pass through a graph that was compiled for one."""
    refused = "This backward function was compiled with non-empty donated buffers"
    written = WrittenRuns({COMPILED: [End(1, refused), End(1, "loss is nan")]})
    folder, said = create_recording(COMMAND, output=tmp_path / "out"), []
    runs = Runs(COMMAND, folder, RunLimits(), Listener(said.append), written)
    first = runs.first(Instructions())
    assert first.output == "loss is nan"
    assert Path(runs.output).read_text() == "loss is nan"
    assert said[-1] == f"it prints to {runs.output}"


def test_with_a_kept_call_the_run_up_to_that_is_shown(tmp_path: Path) -> None:
    kept = tmp_path / "kept-1-1"
    kept.mkdir()
    alarm = Alarm("0/0", "output 0", "scale", 1e-3, 1e-8, 2e-8, 4000, 40, 1e-6)
    write_alarm(alarm, kept)
    script = tmp_path / "train.py"
    script.write_text("print('step 1')")
    command = [sys.executable, str(script)]
    folder = create_recording(command, output=tmp_path / "out")
    verdict = Doctor(Request(command, folder, kept=kept), lambda text: None).examine()
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "likely")
    assert Path(verdict.output).read_text() == "step 1\n"
