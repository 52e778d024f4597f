"""docs/guides: what they show was printed by the commands and scripts that they show."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import guide_pages
import pytest
from guide_pages import SCRIPTS, guides, kept, neutral_lines, scripts_of, shown_lines, stale

ROOT = Path(__file__).resolve().parents[2]
every_guide = pytest.mark.parametrize("name", guides())

OUTPUT = ("crash: it fails", "", "  stage codegen", "  op add", "", "Workaround", "  eager")


@every_guide
def test_a_guide_shows_what_its_present_scripts_and_commands_printed(name: str) -> None:
    assert stale(name) == [], "run 'make guides'"


@every_guide
def test_a_guide_is_in_the_navigation_and_in_the_index(name: str) -> None:
    assert f"guides/{name}.md\n" in (ROOT / "mkdocs.yml").read_text("utf-8")
    assert f"]({name}.md)" in (ROOT / "docs" / "guides" / "index.md").read_text("utf-8")


def test_every_symptom_has_a_guide() -> None:
    assert set(guides()) == {
        *("hang", "wrong-result", "nan", "crash", "illegal-access", "slow", "recompiles", "fusion")
    }


def test_every_script_is_part_of_a_guide() -> None:
    shown = {name for path in guides().values() for name in scripts_of(path.read_text("utf-8"))}
    assert shown == {path.name for path in SCRIPTS.glob("*.py")}


@every_guide
def test_no_path_of_the_machine_is_in_what_a_guide_shows(name: str) -> None:
    for one in kept(name).values():
        text = "\n".join(one.output)
        assert re.findall(r"(?:/home|/root|/work|/Users|/tmp/(?!torchinductor_))\S*", text) == []


def test_a_script_that_has_changed_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    monkeypatch.setattr(guide_pages, "SCRIPTS", tmp_path / "scripts")
    assert stale("nan") == []
    (tmp_path / "scripts" / "lighthouse.py").write_text("print('another program')\n")
    assert stale("nan") == list(kept("nan"))
    assert stale("crash") == []


# --- what is shown of an output -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ("all", list(OUTPUT)),
        ("1", ["crash: it fails", "[... 4 more lines]"]),
        ("1,Workaround", ["crash: it fails", "[... 2 more lines]", "Workaround", "  eager"]),
        ("op_", ["[... 2 more lines]", "  op add", "[... 2 more lines]"]),
    ],
)
def test_paragraphs_are_shown_and_the_rest_is_counted(parts: str, expected: list[str]) -> None:
    assert shown_lines(OUTPUT, parts) == expected


def test_a_paragraph_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no part of the output is 'Reproducer'"):
        shown_lines(OUTPUT, "1,Reproducer")


def test_progress_and_paths_are_left_out(tmp_path: Path) -> None:
    printed = f"[  1.2 s] running the program\nrecording  {tmp_path}/recordings/one   \n"
    assert list(neutral_lines(printed, tmp_path)) == ["recording  .../recordings/one"]
