"""What is said of a program that runs for long: how many calls were checked, and when all were."""

from __future__ import annotations

from pathlib import Path

from inductoscope.doctor.outside.checked_so_far import CheckedSoFar
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.checking import CallChecked, CallsUnchecked
from inductoscope.recording.events.process import ProcessStart
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter


def checked(compile_id: str, call: int, verdict: str = "right") -> Event:
    return CallChecked(compile=compile_id, call=call, verdict=verdict, text="2 values")


def test_it_follows_the_recording_while_that_is_written(tmp_path: Path) -> None:
    folder = create_recording(["python", "train.py"], output=tmp_path / "r")
    stream = StreamWriter(folder, first_event=ProcessStart)
    so_far = CheckedSoFar(folder)
    so_far.look()
    assert str(so_far) == "no call of a compiled graph has been checked yet"
    for event in (checked("0/0", 1), checked("0/0", 2), checked("1/0", 1, "within-rounding")):
        stream.emit(event)
    so_far.look()
    assert str(so_far) == "3 calls of 2 compiled graphs checked, all agree"
    stream.emit(CallsUnchecked(compile="0/0"))
    so_far.look()
    assert not so_far.is_complete, "one graph has calls that are still to be checked"
    stream.emit(checked("1/0", 2, "skipped"))
    stream.emit(CallsUnchecked(compile="1/0"))
    so_far.look()
    assert so_far.is_complete
    assert str(so_far) == "4 calls of 2 compiled graphs checked, 1 not compared"
    stream.close()
