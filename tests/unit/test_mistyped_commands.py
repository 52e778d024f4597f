"""A command that cannot be started leaves no recording behind, so `show` opens the one before."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.recording.location import (
    all_recordings,
    create_recording,
    discard_recording,
    last_recording,
)
from support.examples import inductoscope, write_recording


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", ["run", "doctor"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("trian.py",), "The script trian.py does not exist"),
        (("python3", "trian.py"), "The script trian.py does not exist"),
        (("python3", "-u", "-W", "ignore", "trian.py"), "The script trian.py does not exist"),
        (("torchrnu", "train.py"), "torchrnu is neither a script in"),
        (("--fersh", "train.py"), "No such option: --fersh"),
    ],
)
def test_what_is_mistyped_does_not_become_the_last_recording(
    command: str, words: tuple[str, ...], expected: str
) -> None:
    before = create_recording(["python", "train.py"])
    answer = inductoscope(command, *words)
    assert answer.exit_code == 2
    assert expected in answer.words
    assert all_recordings() == [before]


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_a_program_that_the_system_refuses_leaves_nothing(command: str, tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    before = create_recording(["python", "train.py"])
    answer = inductoscope(command, program)
    assert answer.exit_code == 3
    assert f"{program} cannot be started: No such file or directory." in answer.words
    assert "its first line has to name a program that exists" in answer.words
    assert list(before.parent.iterdir()) == [before]
    assert last_recording() == before


def test_only_what_may_be_a_script_is_told_about_its_first_line() -> None:
    answer = inductoscope("run", "/bin/true", "x" * 300_000)
    assert answer.exit_code == 3
    assert answer.words.endswith("/bin/true cannot be started: Argument list too long.")


def test_a_folder_that_the_user_chose_is_left_empty(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("#!/no/such/interpreter\n")
    (tmp_path / "train").chmod(0o755)
    chosen = tmp_path / "recording"
    chosen.mkdir()
    assert inductoscope("run", "--output", chosen, "./train").exit_code == 3
    assert list(chosen.iterdir()) == []


def test_what_has_been_recorded_is_never_taken_back(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "recording", {"kind": "process", "pid": 1})
    discard_recording(recording)
    assert (recording / "recording.json").exists()


def test_a_kept_call_that_is_none_makes_no_recording(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('must not run')")
    answer = inductoscope("doctor", "--kept", tmp_path, "train.py")
    assert answer.exit_code == 2
    assert answer.words == snapshot
    assert all_recordings() == []


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "print('trian.py')"),
        ("-X", "utf8", "train.py"),
        ("-Wignore", "-u", "train.py", "trian.py"),
        ("-m", "json.tool", "--help"),
    ],
)
def test_options_of_python_are_not_taken_for_its_script(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    assert inductoscope("run", "--quiet", "python3", *words).exit_code == 0
