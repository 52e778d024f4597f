"""Shell completion: the script that a shell loads, and what it offers for a half-typed line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.torch_facts.stages import SHOWN
from support.examples import inductoscope, stored


def offered(line: str, *, modules: bool = False) -> list[str]:
    """Completions offered to the shell for `line`, whose last word is being typed."""
    words = line.split(" ")
    code = "import sys; from inductoscope.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    if modules:
        code += "print(*{name.partition('.')[0] for name in sys.modules}, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "_INDUCTOSCOPE_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [row.removeprefix("plain,") for row in done.stdout.splitlines()]


@pytest.fixture
def recordings() -> list[str]:
    """Two recordings in the folder that the commands look in."""
    folder = Path(os.environ["INDUCTOSCOPE_RECORDINGS"])
    folder.mkdir()
    names = ["20260101-120000-train", "20260102-120000-bench"]
    for name in names:
        (folder / name).symlink_to(stored("relu_add_sum"))
    return names


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("inductoscope expl", ["explain"]),
        ("inductoscope show --stage lo", ["loop-body"]),
        ("inductoscope show --stage ", list(SHOWN)),
        ("inductoscope run --target hip", ["hip:gfx90a", "hip:gfx942"]),
        ("inductoscope completion ", ["bash", "zsh", "fish"]),
        ("inductoscope doctor tra", ["file,tra"]),
        ("inductoscope show nothing-like-it", ["dir,nothing-like-it"]),
    ],
)
def test_what_is_offered(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


def test_options_and_names_to_explain_are_offered() -> None:
    assert {"--stage", "--source"} <= set(offered("inductoscope show --s"))
    assert {"graph_breaks", "graphs"} & set(offered("inductoscope explain graph"))
    assert "wrong-result" in offered("inductoscope explain wro")


def test_recordings_are_offered_by_name_the_newest_first(recordings: list[str]) -> None:
    assert offered("inductoscope show 2026") == recordings[::-1]
    assert offered("inductoscope diff 20260101") == recordings[:1]


def test_a_recording_is_opened_by_its_name(recordings: list[str]) -> None:
    by_name = inductoscope("show", recordings[0], "--json", "-").data
    by_path = inductoscope("show", stored("relu_add_sum"), "--json", "-").data
    assert [entry["id"] for entry in by_name["compiles"]] == [
        entry["id"] for entry in by_path["compiles"]
    ]


def test_a_folder_here_comes_before_a_recording_of_that_name(
    recordings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / recordings[0]).mkdir()
    answer = inductoscope("show", recordings[0])
    assert answer.exit_code == 2


@pytest.mark.parametrize(
    "line", ["inductoscope show --stage ", "inductoscope explain ", "inductoscope diff "]
)
def test_completing_imports_neither_torch_nor_rich(line: str, recordings: list[str]) -> None:
    found = set(offered(line, modules=True))
    assert "inductoscope" in found
    assert not found & {"torch", "triton", "numpy", "rich"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_to_load(shell: str) -> None:
    answer = inductoscope("completion", shell)
    assert answer.exit_code == 0
    assert f"_INDUCTOSCOPE_COMPLETE={shell}_complete" in answer.stdout


def test_bash_loads_the_script() -> None:
    script = inductoscope("completion", "bash").stdout
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\ncomplete -p inductoscope"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith(" inductoscope\n")
    assert done.stderr == ""
