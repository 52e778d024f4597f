"""`inductoscope recordings prune`: deletes what it is asked to, whole, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.model.stored_recordings import describe
from inductoscope.recording.location import all_recordings, recordings_folder
from support.examples import Answer, inductoscope, write_recording
from support.kept_recordings import (
    DAY,
    LAUNCHER,
    as_ordinary_user,
    fill,
    keep_recording,
    rename_stream,
)


def prune(*words: str) -> Answer:
    return inductoscope("recordings", "prune", *words)


def left() -> list[str]:
    """Recordings left, oldest first, without dates."""
    return [path.name[16:] for path in all_recordings()]


@pytest.fixture
def four() -> None:
    """Recordings of ten, eight, two and no days ago, of a megabyte each."""
    for name, days_ago in (("ten", 10), ("eight", 8), ("two", 2), ("now", 0)):
        fill(keep_recording(name, days_ago=days_ago), 1_000_000)


# --- what is asked for ----------------------------------------------------------------------------


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--older-than", "7d"), ["two", "now"]),
        (("--older-than", "1w"), ["two", "now"]),
        (("--older-than", "216h"), ["eight", "two", "now"]),
        (("--keep", "1"), ["now"]),
        (("--keep", "0"), []),
        (("--keep", "9"), ["ten", "eight", "two", "now"]),
        (("--size", "2.5MB"), ["two", "now"]),
        (("--size", "0B"), []),
        # Only what is beyond all the limits goes.
        (("--older-than", "7d", "--keep", "3"), ["eight", "two", "now"]),
        (("--older-than", "9d", "--size", "1.5MB"), ["eight", "two", "now"]),
        (("--older-than", "1d", "--keep", "2", "--size", "1MB"), ["two", "now"]),
    ],
)
def test_limits_say_what_goes(words: tuple[str, ...], expected: list[str]) -> None:
    answer = prune(*words)
    assert answer.exit_code == 0, answer.stderr
    assert left() == expected
    count = 4 - len(expected)
    assert f"deleted {count} recording{'' if count == 1 else 's'}" in answer.words


@pytest.mark.usefixtures("four")
def test_a_dry_run_deletes_nothing() -> None:
    answer = prune("--keep", "1", "--dry-run")
    assert len(left()) == 4
    assert "would delete 3 recordings, 3." in answer.words
    assert "Repeat the command without --dry-run to delete these." in answer.words


@pytest.mark.usefixtures("four")
def test_json_names_what_was_deleted_and_what_is_left() -> None:
    data = prune("--older-than", "9d", "--json", "-").data
    assert [Path(item["path"]).name[16:] for item in data["deleted"]] == ["ten"]
    assert (data["schema"], data["left"], data["dry_run"]) == (1, 3, False)
    assert 1_000_000 < data["freed"] < 1_100_000
    assert data["spared"] == data["failed"] == []


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "Nothing says what to delete. Give --older-than, --keep or --size"),
        (("--older-than", "7"), "--older-than 7: that is not a duration. Write 7d, 12h"),
        (("--older-than", "-7d"), "--older-than -7d: that is not a duration."),
        (("--older-than", "seven days"), "that is not a duration"),
        (("--size", "500"), "--size 500: that is not a size. Write 500MB"),
        (("--size", "nanMB"), "--size nanMB: that is not a size."),
        (("--keep", "-1"), "-1 is not in the range x>=0"),
        (("--keep", "few"), "'few' is not a valid integer"),
        (("now",), "Got unexpected extra argument (now)"),
    ],
)
def test_a_mistyped_limit_deletes_nothing(words: tuple[str, ...], expected: str) -> None:
    answer = prune(*words)
    assert answer.exit_code == 2
    assert expected in answer.words
    assert len(left()) == 4


def test_without_a_folder_there_is_nothing_to_delete(snapshot: SnapshotAssertion) -> None:
    answer = prune("--keep", "0")
    assert answer.exit_code == 0
    assert answer.words == snapshot
    assert not recordings_folder().exists()


# --- what is never deleted ------------------------------------------------------------------------


def test_a_recording_whose_program_runs_is_spared() -> None:
    rename_stream(keep_recording("training", LAUNCHER, days_ago=30), os.getpid())
    answer = prune("--keep", "0")
    assert left() == ["training"]
    assert f"process {os.getpid()} is still running" in answer.words


def test_so_is_one_whose_doctor_goes_on_with_a_further_run() -> None:
    recording = keep_recording("training")
    write_recording(recording / "doctor" / "run-1", LAUNCHER)
    rename_stream(recording / "doctor" / "run-1", os.getpid())
    prune("--keep", "0")
    assert left() == ["training"]


def test_one_whose_process_id_belongs_to_a_later_process_is_not_running() -> None:
    recording = keep_recording("training", LAUNCHER)
    [stream] = (recording / "streams").iterdir()
    yesterday = 1_000_000_000 * 10**9
    stream.rename(stream.with_name(f"{os.getpid()}-{yesterday:x}.jsonl"))
    prune("--keep", "0")
    assert left() == []


def test_one_that_may_run_on_another_machine_is_spared_for_a_day() -> None:
    unfinished = keep_recording("training", LAUNCHER, manifest={"machine": "another"})
    keep_recording("finished", manifest={"machine": "another"})
    assert "may still be running on another machine" in prune("--keep", "0").words
    assert left() == ["training"]
    for stream in (unfinished / "streams").iterdir():
        os.utime(stream, (0, 0))
    prune("--keep", "0")
    assert left() == []


@pytest.mark.parametrize(("seconds_ago", "expected"), [(5, ["training"]), (90, [])])
def test_one_that_has_just_been_begun_is_spared(seconds_ago: float, expected: list[str]) -> None:
    recording = keep_recording("training", days_ago=seconds_ago / DAY)
    for stream in (recording / "streams").iterdir():
        stream.unlink()
    answer = prune("--keep", "0")
    assert left() == expected
    assert ("it has just been begun" in answer.words) == bool(expected)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ('{"schema": 1, "tool": "inductosc', "is cut short or not JSON"),
        ('{"schema": 1, "tool": "another tool"}', "was not written by inductoscope"),
        ('{"schema": 99, "tool": "inductoscope 9.0"}', "written by a newer version"),
        ("[]", "was not written by inductoscope"),
        ("", "is cut short or not JSON"),
    ],
)
def test_a_folder_that_is_not_surely_ours_stays(manifest: str, expected: str) -> None:
    theirs = recordings_folder() / "20200101-000000-theirs"
    theirs.mkdir(parents=True)
    (theirs / "recording.json").write_text(manifest)
    (theirs / "thesis.tex").write_text("important")
    answer = prune("--keep", "0")
    assert answer.exit_code == 0
    assert expected in answer.words
    assert (theirs / "thesis.tex").read_text() == "important"


@pytest.mark.usefixtures("four")
def test_what_is_not_ours_takes_the_place_of_none_that_is_kept() -> None:
    theirs = recordings_folder() / "29990101-000000-theirs"
    theirs.mkdir()
    (theirs / "recording.json").write_text("{}")
    prune("--keep", "1")
    assert left() == ["now", "theirs"]


def test_other_files_and_folders_stay() -> None:
    keep_recording("train")
    folder = recordings_folder()
    (folder / "notes.txt").write_text("mine")
    (folder / "data").mkdir()
    (folder / ".deleted-not-by-us").mkdir()
    (folder / ".deleted-not-by-us" / "mine").write_text("mine")
    (folder / "loop").symlink_to(folder / "loop")
    assert prune("--keep", "0").exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        ".deleted-not-by-us", "data", "loop", "notes.txt",
    ]  # fmt: skip


def test_nothing_is_deleted_through_a_link(tmp_path: Path) -> None:
    elsewhere = write_recording(tmp_path / "elsewhere", manifest={"tool": "inductoscope 0.1.0"})
    recording = keep_recording("train")
    (recording / "payloads").symlink_to(elsewhere)
    link = recordings_folder() / "20260101-000000-link"
    link.symlink_to(elsewhere)
    answer = prune("--keep", "0")
    assert link.is_symlink()
    assert describe(link).not_ours in answer.words
    assert not recording.exists()
    assert (elsewhere / "recording.json").exists()
    assert (elsewhere / "streams" / "1-1.jsonl").exists()


def test_a_name_with_spaces_and_line_breaks_is_deleted_like_any_other() -> None:
    keep_recording("my model\n--keep 9; rm -rf .")
    neighbour = recordings_folder() / "my"
    neighbour.mkdir()
    assert prune("--keep", "0").exit_code == 0
    assert list(recordings_folder().iterdir()) == [neighbour]


# --- interruptions and refusals -------------------------------------------------------------------


@pytest.mark.usefixtures("four")
def test_ctrl_c_half_way_leaves_whole_recordings_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = shutil.rmtree
    calls = []

    def interrupted(*args: Any, **options: Any) -> None:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        remove(*args, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    assert prune("--keep", "1").exit_code == 130
    # The oldest went, the next was finished, and nobody touched the others.
    assert left() == ["two", "now"]
    assert len(list(recordings_folder().iterdir())) == 2
    for path in all_recordings():
        assert (path / "payloads" / "large").stat().st_size == 1_000_000


def test_what_a_kill_left_is_no_recording_and_goes_with_the_next_prune() -> None:
    killed = keep_recording("train")
    killed.rename(killed.with_name(".deleted-12-34"))
    assert left() == []
    prune("--keep", "5", "--dry-run")
    assert len(list(recordings_folder().iterdir())) == 1
    prune("--keep", "5")
    assert list(recordings_folder().iterdir()) == []


@pytest.mark.parametrize("which", ["the folder of recordings", "a folder in the recording"])
def test_what_may_not_be_written_stays_whole_and_says_what_to_do(
    which: str, public_folder: Path
) -> None:
    recording = keep_recording("train")
    for path in (public_folder, recording, *recording.rglob("*")):
        path.chmod(0o777)
    closed = public_folder if which == "the folder of recordings" else recording / "streams"
    closed.chmod(0o555)
    files = sorted(recording.rglob("*"))
    with as_ordinary_user():
        answer = prune("--keep", "0", "--json", "-")
    assert answer.exit_code == 3
    [failed] = answer.data["failed"]
    assert f"{recording} cannot be deleted: {closed} is not writable." in failed["error"]
    assert f"Allow it first: chmod u+w {closed}" in failed["error"]
    assert sorted(recording.rglob("*")) == files
    assert answer.data["left"] == 1
