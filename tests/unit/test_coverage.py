"""docs/coverage.json: what documents ask about debugging Inductor, and what answers it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from coverage_table import (
    CoveredDocument,
    CoveredItem,
    documents,
    flags_named,
    problems,
    uncovered,
    uncovered_in,
)
from syrupy.assertion import SnapshotAssertion

ROOT = Path(__file__).resolve().parents[2]
# Beside a checkout, where they are at hand; they are not part of the repository.
SEEDS = ROOT.parent / "shared" / "seeds"

ROW = CoveredItem(
    first=1,
    last=3,
    kind="view",
    item="the generated code",
    commands=("show --stage kernel",),
    tests=("tests/unit/test_coverage.py::test_the_whole_table_holds",),
    flags=("output_code",),
    note="",
)


def in_a_document(*rows: CoveredItem, text: str = "") -> CoveredDocument:
    return CoveredDocument("made", "Made up", hashlib.sha256(text.encode()).hexdigest(), rows)


# --- the table itself -----------------------------------------------------------------------------


def test_the_whole_table_holds() -> None:
    assert list(problems(documents())) == []
    assert [document.name for document in documents()] == ["hang", "trace", "guide", "aoti"]


def test_what_nothing_answers_is_called_missing(snapshot: SnapshotAssertion) -> None:
    nothing = replace(ROW, commands=(), tests=(), note="missing: nothing does")
    assert nothing.answer == "missing"
    assert list(problems([in_a_document(nothing)])) == []
    (found,) = problems([in_a_document(replace(nothing, note=""))])
    assert found == snapshot


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tests": ("tests/unit/test_coverage.py::test_gone",)}, "no such test"),
        ({"tests": ("tests/unit/test_gone.py::test_gone",)}, "no such test"),
        ({"tests": ()}, "has to name a command and a test"),
        ({"note": "The score is shown; the formula is not recorded."}, "begins with 'partly: '"),
        ({"commands": ("shwo --stage kernel",)}, "is not a command: no such command"),
        ({"commands": ("show --stages kernel",)}, "is not a command: No such option"),
        ({"commands": ("show --stage kernels",)}, "is not a command"),
        ({"commands": ("python: inductoscope.prove",)}, "no such function"),
        ({"flags": ("TORCH_LOGZ",)}, "env --flags does not know TORCH_LOGZ"),
        ({"kind": "view of it"}, "no such kind"),
        ({"note": "missing: nothing does"}, "answers nothing, but names a command"),
    ],
)
def test_a_row_that_claims_too_much_is_noticed(change: dict[str, object], problem: str) -> None:
    assert list(problems([in_a_document(ROW)])) == []
    (found,) = problems([in_a_document(replace(ROW, **change))])  # type: ignore[arg-type]
    assert found.startswith("made:1-3: ")
    assert problem in found


# --- held against the documents -------------------------------------------------------------------

TEXT = """## See the code

Set `TORCH_LOGS="output_code"` first.

- is it fast?
- is it right?
- is it small?
"""


def test_a_document_whose_lines_are_all_in_rows() -> None:
    rows = (
        replace(ROW, last=3, flags=("TORCH_LOGS", "output_code")),
        replace(ROW, first=5, last=6),
        replace(ROW, first=7, last=7),
    )
    assert list(uncovered(in_a_document(*rows, text=TEXT), TEXT)) == []


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ((replace(ROW, flags=("TORCH_LOGS", "output_code")),), "made:5: in no row: - is it fast?"),
        ((replace(ROW, last=6), replace(ROW, first=7, last=7)), "made:3: TORCH_LOGS is not named"),
        ((replace(ROW, last=7),), "made:1-7: has 3 of: item"),
        ((replace(ROW, last=9),), "made:1-9: the document ends at line 7"),
    ],
)
def test_what_no_row_is_about_is_noticed(rows: tuple[CoveredItem, ...], problem: str) -> None:
    found = list(uncovered(in_a_document(*rows, text=TEXT), TEXT))
    assert any(one.startswith(problem) for one in found), found


def test_a_document_that_has_changed_has_to_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "made.txt").write_text(TEXT + "\nIs it new?\n")
    found = list(uncovered_in(tmp_path, [in_a_document(replace(ROW, last=7), text=TEXT)]))
    assert found[0].startswith("made: not in ")
    assert found[1] == "a document without rows, which begins with: " + TEXT.strip()[:60]


def test_flags_are_found_however_they_are_set() -> None:
    assert flags_named('TORCH_LOGS="+inductor,fusion" python x.py') == {
        *("TORCH_LOGS", "inductor", "fusion")
    }
    assert flags_named("config.triton.cudagraphs = False") == {"triton.cudagraphs"}
    assert flags_named("import torch._inductor.config as config") == set()


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not at hand")
def test_every_line_of_the_documents_is_in_a_row() -> None:
    assert list(uncovered_in(SEEDS, documents())) == []
