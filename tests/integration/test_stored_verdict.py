"""The verdict of an examination that is over: `show` begins with it, and nothing replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.doctor.verdict import Repro, Verdict, keep_verdict, read_verdict
from inductoscope.launch.program import record_ending
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter, describe_launcher
from support.examples import inductoscope

SUMMARY = "The compiled program gives a wrong result at x.py:3, because of aten.tanh.default."


@pytest.fixture
def examined(tmp_path: Path) -> Path:
    """A recording whose program the doctor has ended, with the verdict in it."""
    folder = create_recording(["python", "x.py"], output=tmp_path / "examined")
    stream = StreamWriter(folder, first_event=describe_launcher)
    record_ending(stream, 42, -9, 3.0, by_tool="it made no progress")
    verdict = Verdict("wrong-result", "codegen", SUMMARY, "proven", recording=str(folder))
    verdict.culprit.pass_ = "some_pass"
    verdict.repro = Repro("repro.py", verified=True, failed=3, of=3, nodes=1)
    verdict.add("buf0 is 0.9, in eager 0.8", "compared")
    keep_verdict(verdict, folder)
    return folder


def test_show_begins_with_the_verdict_and_blames_nobody_for_how_the_doctor_ended_it(
    examined: Path,
) -> None:
    answer = inductoscope("show", examined)
    assert answer.exit_code == 1
    said = answer.stdout
    assert said.splitlines()[0] == "doctor: wrong-result"
    assert "aten.tanh.default" in said
    assert "the doctor ended the program after 3.0 s: it made no progress" in said
    assert "SIGKILL" not in said
    assert "no problem found" not in said


def test_an_examination_that_is_finished_is_not_made_again(examined: Path) -> None:
    before = sorted(examined.rglob("*"))
    answer = inductoscope("doctor", "--resume", examined)
    assert answer.exit_code == 1
    assert SUMMARY.split(",")[0] in " ".join(answer.stdout.split())
    assert "failed 3 of 3" in answer.stdout
    assert sorted(examined.rglob("*")) == before


def test_the_verdict_is_read_as_it_was_written(examined: Path) -> None:
    found = read_verdict(examined)
    assert found is not None
    assert (found.confidence, found.culprit.pass_) == ("proven", "some_pass")
    assert found.repro == Repro("repro.py", verified=True, failed=3, of=3, nodes=1)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"verdict": 3}', '{"summary": "x"}'])
def test_a_damaged_verdict_is_no_verdict(examined: Path, text: str) -> None:
    (examined / "verdict.json").write_text(text)
    assert read_verdict(examined) is None
    assert "inductoscope:" in inductoscope("show", examined).stdout
