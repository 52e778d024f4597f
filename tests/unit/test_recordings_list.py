"""`inductoscope recordings list`, which is also `show --list`: what is kept, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from inductoscope.model.stored_recordings import describe
from inductoscope.recording.location import all_recordings, recordings_folder
from support.examples import inductoscope, write_recording
from support.kept_recordings import (
    ENDED_WELL,
    KILLED,
    LAUNCHER,
    as_ordinary_user,
    fill,
    give_verdict,
    keep_recording,
    rename_stream,
)


def outcomes() -> list[str]:
    data = inductoscope("recordings", "list", "--json", "-").data
    return [item["outcome"] for item in data["recordings"]]


def test_each_has_its_size_outcome_date_and_command_and_the_newest_is_first() -> None:
    keep_recording("old", days_ago=2)
    fill(keep_recording("new", KILLED), 2_000_000)
    answer = inductoscope("recordings", "list")
    assert answer.exit_code == 0
    assert answer.words.startswith("2 recordings, 2.0 MB in ")
    first, second, third, fourth = answer.stdout.splitlines()[-4:]
    assert first.split()[1:] == ["2.0", "MB", "SIGKILL"]
    assert first.split()[0].endswith("-new")
    assert second.endswith("run python3 new.py")
    assert third.endswith("kB  exit code 0")
    assert fourth.split()[0].count("-") == 2


def test_show_list_and_recordings_alone_are_the_same_list() -> None:
    keep_recording("train")
    expected = inductoscope("recordings", "list").stdout
    assert inductoscope("show", "--list").stdout == expected
    assert inductoscope("recordings").stdout == expected
    data = inductoscope("recordings", "list", "--json", "-").data
    assert inductoscope("recordings", "--json", "-").data == data


def test_json_for_the_wrong_command_is_not_lost(snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("recordings", "--json", "-", "prune", "--keep", "3")
    assert answer.exit_code == 2
    assert answer.words == snapshot


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: keep_recording("train", ENDED_WELL), "exit code 0"),
        (lambda: keep_recording("train", {**ENDED_WELL, "exit_code": 3}), "exit code 3"),
        (lambda: keep_recording("train", KILLED), "SIGKILL"),
        (lambda: keep_recording("train", LAUNCHER), "end not recorded"),
        (
            lambda: keep_recording("x", {"kind": "process-end"}, manifest={"inside": True}),
            "recorded",
        ),
        (lambda: (keep_recording("train") / "doctor").mkdir(), "no verdict"),
        (
            lambda: give_verdict(keep_recording("x"), verdict="wrong-result", confidence="proven"),
            "wrong-result, proven",
        ),
        (
            lambda: give_verdict(keep_recording("x"), verdict="unknown", partial=True),
            "unknown, so far",
        ),
        (lambda: rename_stream(keep_recording("train", LAUNCHER), os.getpid()), "still running"),
    ],
)
def test_the_outcome_says_how_it_ended(made: Callable[[], Any], expected: str) -> None:
    made()
    assert outcomes() == [expected]
    assert expected in inductoscope("recordings").stdout


def test_what_the_doctor_ended_is_known_as_such() -> None:
    ending = describe(keep_recording("train", {**KILLED, "by_tool": "the time limit"})).ending
    assert ending is not None
    assert ending.by_tool == "the time limit"


def test_a_verdict_larger_than_any_is_read_by_no_command() -> None:
    recording = keep_recording("train")
    give_verdict(recording, verdict="clean", confidence="proven", issue_text="x" * (9 << 20))
    assert outcomes() == ["no verdict"]
    assert "doctor:" not in inductoscope("show", recording).stdout


def test_the_doctor_is_told_from_run() -> None:
    give_verdict(keep_recording("train"), verdict="clean", confidence="proven")
    assert "doctor python3 train.py" in inductoscope("recordings").stdout


def test_no_recording_says_how_to_make_one() -> None:
    answer = inductoscope("recordings")
    assert answer.exit_code == 0
    assert answer.words.startswith("0 recordings in ")
    assert "Make one with 'inductoscope run SCRIPT'." in answer.words


@pytest.mark.parametrize(
    "name", ["x" * 40, "with  spaces", "two\nlines", "\x1b[31mred", "模型" * 12, "-rf"]
)
def test_80_columns_are_enough_whatever_the_name_and_the_command(name: str) -> None:
    keep_recording(name, manifest={"command": ["python", "train.py", name * 5]})
    answer = inductoscope("recordings")
    assert max(map(cell_len, answer.stdout.splitlines())) <= 80
    assert "run python" in answer.stdout.splitlines()[-1]
    assert "\x1b" not in answer.stdout


# --- what others put there ------------------------------------------------------------------------


def test_half_a_manifest_is_listed_with_what_is_wrong() -> None:
    path = keep_recording("train")
    manifest = path / "recording.json"
    manifest.write_text(manifest.read_text()[:40])
    keep_recording("sound")
    answer = inductoscope("recordings")
    assert answer.exit_code == 0
    assert "recording.json is cut short or not JSON" in answer.words
    assert "python3 sound.py" in answer.words


def test_files_and_folders_of_others_are_not_listed(tmp_path: Path) -> None:
    made = keep_recording("train")
    folder = recordings_folder()
    (folder / "notes.txt").write_text("mine")
    (folder / "data").mkdir()
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "folder").symlink_to(folder)
    (folder / "nowhere").symlink_to(tmp_path / "nowhere")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "recording.json").write_text("{}")
    assert all_recordings() == [made]
    assert outcomes() == ["exit code 0"]


def test_links_inside_a_recording_are_not_followed(tmp_path: Path) -> None:
    path = keep_recording("train")
    (tmp_path / "large").write_bytes(bytes(5_000_000))
    (path / "payloads").symlink_to(tmp_path)
    (path / "doctor").symlink_to(path)
    (path / "streams" / "1-2.jsonl").symlink_to("1-2.jsonl")
    [item] = inductoscope("recordings", "list", "--json", "-").data["recordings"]
    assert item["bytes"] < 100_000


def test_a_link_to_a_recording_elsewhere_is_listed_as_one(tmp_path: Path) -> None:
    recordings_folder().mkdir()
    elsewhere = write_recording(tmp_path / "elsewhere", manifest={"tool": "inductoscope 0.1.0"})
    (recordings_folder() / "20260101-000000-link").symlink_to(elsewhere)
    assert "it is a link to a recording elsewhere" in inductoscope("recordings").words


def test_a_file_in_place_of_the_folder_says_what_to_do() -> None:
    recordings_folder().write_text("in the way")
    for words in (
        ("recordings",),
        ("show", "--list"),
        ("show",),
        ("recordings", "prune", "--keep", "1"),
    ):
        answer = inductoscope(*words)
        assert answer.exit_code == 2
        assert "cannot be read: Not a directory. Name another one with" in answer.words


def test_a_folder_that_may_not_be_read_does_not_hide_the_others(public_folder: Path) -> None:
    keep_recording("sound")
    keep_recording("closed").chmod(0)
    with as_ordinary_user():
        answer = inductoscope("recordings")
    assert answer.exit_code == 0
    assert "python3 sound.py" in answer.words


def test_a_folder_of_recordings_that_may_not_be_read_says_what_to_do(public_folder: Path) -> None:
    public_folder.chmod(0)
    with as_ordinary_user():
        answer = inductoscope("recordings")
    assert answer.exit_code == 2
    assert f"{public_folder}, cannot be read: Permission denied." in answer.words
    assert "Name another one with INDUCTOSCOPE_RECORDINGS." in answer.words


@pytest.mark.parametrize("created", [1e14, -1e14, 0, "soon"])
def test_a_date_that_cannot_be_is_shown_somehow(created: Any) -> None:
    keep_recording("train", manifest={"created": created})
    answer = inductoscope("recordings")
    assert answer.exit_code == 0
    assert max(map(len, answer.stdout.splitlines())) <= 80
