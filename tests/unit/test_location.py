"""Where recordings are kept, what they are called, and which one is the last."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.recording.location import (
    all_recordings,
    create_recording,
    last_recording,
    recordings_folder,
)
from support.kept_recordings import as_ordinary_user


def test_recordings_lie_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDUCTOSCOPE_RECORDINGS", "/large/disk")
    assert recordings_folder() == Path("/large/disk")


def test_recordings_lie_with_the_users_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDUCTOSCOPE_RECORDINGS")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert recordings_folder() == Path("/state/inductoscope/recordings")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert recordings_folder() == Path("/home/user/.local/state/inductoscope/recordings")


def test_recordings_of_one_second_are_told_apart_and_keep_their_order() -> None:
    made = [create_recording(["python", f"{name}.py"]) for name in ("zebra", "ant", "zebra", "bee")]
    for age, path in enumerate(made):
        os.utime(path / "recording.json", (age, age))
    if len({path.name[:15] for path in made}) == 1:
        assert all_recordings() == made
    assert len(set(made)) == 4
    assert last_recording() == made[-1]


def test_other_folders_among_them_are_no_recordings() -> None:
    (recordings_folder() / "notes").mkdir(parents=True)
    made = create_recording(["python", "train.py"])
    assert all_recordings() == [made]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--epochs", "1"], "train"),
        (["python", "-m", "package.train"], "package.train"),
        (["torchrun", "--nproc-per-node", "2", "/models/big model.py"], "big_model"),
        (["python", "../../evil/\x1b[31m.py"], "_31m"),
        (["python", "x" * 300 + ".py"], "x" * 40),
        ([], "recording"),
    ],
)
def test_a_recording_is_named_after_what_was_run(command: list[str], name: str) -> None:
    path = create_recording(command)
    assert path.parent == recordings_folder()
    assert path.name[16:] == name


def test_a_manifest_says_what_was_run_where_and_by_which_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = create_recording(["python", "train.py"], output=tmp_path / "new" / "folder", fresh=True)
    manifest = json.loads((path / "recording.json").read_text())
    assert (manifest["schema"], manifest["fresh"]) == (1, True)
    assert manifest["tool"].startswith("inductoscope ")
    assert (manifest["command"], manifest["cwd"]) == (["python", "train.py"], str(tmp_path))


def test_a_command_that_is_no_text_is_kept(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.py")
    path = create_recording(["python", odd], output=tmp_path / "recording")
    assert json.loads((path / "recording.json").read_text())["command"] == ["python", odd]


def test_a_folder_that_is_gone_can_be_recorded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    path = create_recording(["python", "train.py"], output=tmp_path / "recording")
    assert json.loads((path / "recording.json").read_text())["cwd"] == ""


@pytest.mark.parametrize("content", ["file", "full folder"])
def test_an_output_that_is_in_use_is_refused(tmp_path: Path, content: str) -> None:
    output = tmp_path / "output"
    if content == "file":
        output.write_text("mine")
    else:
        (output / "mine").mkdir(parents=True)
    with pytest.raises(UsageError, match="exists and is not an empty folder"):
        create_recording(["python"], output=output)


def test_an_empty_folder_may_be_the_output(tmp_path: Path) -> None:
    assert create_recording(["python"], output=tmp_path).is_dir()


def test_a_folder_that_cannot_be_made_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "recording"
    monkeypatch.setenv("INDUCTOSCOPE_RECORDINGS", str(place))
    with pytest.raises(ToolFailure, match="cannot be created: Not a directory"):
        create_recording(["python"])
    with pytest.raises(UsageError, match="recording cannot be written: Not a directory"):
        create_recording(["python"], output=place)


def test_a_folder_of_recordings_that_may_not_be_written_says_what_to_do(
    public_folder: Path,
) -> None:
    public_folder.chmod(0o555)
    with (
        as_ordinary_user(),
        pytest.raises(ToolFailure, match=r"Permission denied. .*--output or INDUCTOSCOPE_REC"),
    ):
        create_recording(["python", "train.py"])
