"""Which command answers what the documents ask that inductoscope was conceived from.

    python docs/coverage_table.py                 checks docs/coverage.json
    python docs/coverage_table.py --seeds DIR     also against the documents themselves

docs/coverage.json has a row for every procedure, view, question and flag in them: the lines, the
item in our own words, the commands that answer it and the tests that show it. `make docs` writes
docs/coverage.md from it. The documents are not part of the repository. With --seeds every line of
theirs must be in a row, a row must not be about several headings, items or code blocks, every flag
must be named in a row of its line, and a document that has changed is noticed by its digest.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

import inductoscope
from inductoscope.cli import COMMANDS
from inductoscope.views.env.flags import FLAGS

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "coverage.json"

# A text asks nothing: front matter, headings, filler. Everything else has to be answered.
KINDS = ("procedure", "view", "question", "flag", "fact", "text")
MISSING, PARTLY = "missing: ", "partly: "
# A note that says this is about something that an answer leaves out.
_LEFT_OUT = re.compile(r"\b(?:is|are) not (?:read|recorded|listed|shown|printed)|does not print\b")

# What the table writes where a user puts a value, as far as a command line has to be a valid one.
_VALUES = {"PID": "12345", "DIR": "out", "STAGE": "kernel", "SETTING": "max_autotune"}
_PYTHON = "python: inductoscope."


@dataclass(frozen=True)
class CoveredItem:
    """Lines of a document, what they ask, and what answers it."""

    first: int
    last: int
    kind: str
    item: str
    commands: tuple[str, ...]
    tests: tuple[str, ...]
    flags: tuple[str, ...]
    note: str

    @property
    def lines(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def answer(self) -> str:
        """yes, partly or missing; empty for a text, which asks nothing."""
        if self.kind == "text":
            return ""
        if self.note.startswith(MISSING):
            return "missing"
        return "partly" if self.note.startswith(PARTLY) else "yes"


@dataclass(frozen=True)
class CoveredDocument:
    """A document by its title and digest, with its rows."""

    name: str
    title: str
    sha256: str
    rows: tuple[CoveredItem, ...]


@cache
def documents(path: Path = TABLE) -> tuple[CoveredDocument, ...]:
    """Contents of the table."""
    return tuple(
        CoveredDocument(
            name=found["name"],
            title=found["title"],
            sha256=found["sha256"],
            rows=tuple(map(_item, found["rows"])),
        )
        for found in json.loads(path.read_text("utf-8"))["documents"]
    )


def _item(row: dict[str, object]) -> CoveredItem:
    def words(key: str) -> tuple[str, ...]:
        found = row.get(key, [])
        assert isinstance(found, list), row
        return tuple(map(str, found))

    first, _, last = str(row["lines"]).partition("-")
    return CoveredItem(
        int(first),
        int(last or first),
        str(row["kind"]),
        str(row["item"]),
        words("commands"),
        words("tests"),
        words("flags"),
        str(row.get("note", "")),
    )


# --- what can be checked without the documents ----------------------------------------------------


def problems(table: Sequence[CoveredDocument]) -> Iterator[str]:
    """Rows that are incomplete, or name a command, test or flag that does not exist."""
    known = {flag.name for flag in FLAGS}
    for document in table:
        for row in document.rows:
            where = f"{document.name}:{row.lines}"
            for problem in _row_problems(row, known):
                yield f"{where}: {problem}"


def _row_problems(row: CoveredItem, known: set[str]) -> Iterator[str]:
    if row.kind not in KINDS:
        yield f"no such kind: {row.kind}"
    if row.answer in ("yes", "partly") and not (row.commands and row.tests):
        yield "has to name a command and a test, or say that it is missing"
    if row.answer in ("", "missing") and (row.commands or row.tests):
        yield "answers nothing, but names a command or a test"
    if row.answer == "yes" and _LEFT_OUT.search(row.note):
        yield f"says what is left out, so its note begins with '{PARTLY}'"
    yield from (f"{found}: no such test" for found in row.tests if not _is_test(found))
    yield from (f"env --flags does not know {name}" for name in row.flags if name not in known)
    for command in row.commands:
        reason = _refusal(command)
        if reason:
            yield f"'{command}' is not a command: {reason}"


def _is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    return function in _functions(ROOT / path)


@cache
def _functions(path: Path) -> frozenset[str]:
    """The test functions of a file, which is parsed and not imported."""
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _refusal(line: str) -> str:
    """Why a command line would be refused; empty if it is accepted."""
    if line.startswith(_PYTHON):
        return "" if line.removeprefix(_PYTHON) in inductoscope.__all__ else "no such function"
    name, *words = (_VALUES.get(word, word) for word in shlex.split(line))
    if name not in COMMANDS:
        return "no such command"
    command = importlib.import_module(f"inductoscope.cli.commands.{name}").command
    assert isinstance(command, click.Command)
    try:
        with command.make_context(name, words):
            return ""
    except click.ClickException as error:
        return error.format_message()


# --- what needs the documents ---------------------------------------------------------------------

_VARIABLE = re.compile(
    r"\b(?:TORCH|TORCHDYNAMO|TORCHINDUCTOR|AOT_INDUCTOR|AOTI|PYTORCH|CUDA)_[A-Z][A-Z0-9_]*\b"
)
_SETTING = re.compile(r"(?<![\w.])config\.([a-z_]\w*(?:\.[a-z_]\w*)*)")
_ARTIFACTS = re.compile(r'TORCH_LOGS="([^"]+)"')
_FENCE = re.compile(r"```(\w*)\s*$")
_UNIT = re.compile(r"\s*[-*] |\s*\d+\. |\|(?!-)|\*\*[^*]+\*\*$|\S.*\?$")
_HEADING = re.compile(r"#{1,6} ")
_COMMENT = re.compile(r"\s*# ")
# A list may begin with a line of its own, and a comment may have two lines.
_MOST = {"heading": 1, "code": 1, "item": 2, "comment": 2}


def flags_named(line: str) -> set[str]:
    """The variables, settings and names for TORCH_LOGS in a line."""
    artifacts = (name for names in _ARTIFACTS.findall(line) for name in names.split(","))
    return {
        *_VARIABLE.findall(line),
        *_SETTING.findall(line),
        *(name.strip().lstrip("+") for name in artifacts),
    }


def units(text: str) -> Iterator[tuple[int, str]]:
    """The number and the kind of each line where something begins.

    In a document that has lost its fences, what looks like a heading is a comment in code.
    """
    fences: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        in_code = any(kind != "markdown" for kind in fences)
        if fence and not fence[1] and fences:
            fences.pop()
        elif fence:
            fences.append(fence[1])
            if fence[1] != "markdown":
                yield number, "code"
        elif in_code and _COMMENT.match(line):
            yield number, "comment"
        elif not in_code and _UNIT.match(line):
            yield number, "item"
        elif not in_code and _HEADING.match(line) and "```" in text:
            yield number, "heading"


def uncovered(document: CoveredDocument, text: str) -> Iterator[str]:
    """Parts of a document that no row is about."""
    if hashlib.sha256(text.encode()).hexdigest() != document.sha256:
        yield f"{document.name}: has changed; read it again, then correct lines and sha256"
        return
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        rows = [row for row in document.rows if row.first <= number <= row.last]
        named = {name for row in rows for name in row.flags}
        if line.strip() and not rows:
            yield f"{document.name}:{number}: in no row: {line.strip()[:60]}"
        for flag in sorted(flags_named(line) - named):
            yield f"{document.name}:{number}: {flag} is not named in the row"
    for row in document.rows:
        yield from _crowded(document, row, text)
        if row.last > len(lines):
            yield f"{document.name}:{row.lines}: the document ends at line {len(lines)}"


def _crowded(document: CoveredDocument, row: CoveredItem, text: str) -> Iterator[str]:
    """A row that is about more than one thing hides one of them."""
    inside = [kind for number, kind in units(text) if row.first <= number <= row.last]
    for kind, most in _MOST.items():
        if row.kind != "text" and inside.count(kind) > most:
            yield f"{document.name}:{row.lines}: has {inside.count(kind)} of: {kind}"


def uncovered_in(folder: Path, table: Sequence[CoveredDocument]) -> Iterator[str]:
    """The same for a folder with all documents, which are told apart by their digests."""
    texts = [path.read_text("utf-8") for path in sorted(folder.glob("*.txt"))]
    digests = {hashlib.sha256(text.encode()).hexdigest(): text for text in texts}
    known = {document.sha256 for document in table}
    for document in table:
        if document.sha256 in digests:
            yield from uncovered(document, digests[document.sha256])
        else:
            yield f"{document.name}: not in {folder}, or changed; read it again"
    for digest, text in digests.items():
        if digest not in known:
            yield f"a document without rows, which begins with: {text.strip()[:60]}"


# --- Markdown -------------------------------------------------------------------------------------


def coverage(name: str) -> str:
    """The rows of one document as a table."""
    (document,) = (found for found in documents() if found.name == name)
    asked = [row for row in document.rows if row.kind != "text"]
    head = ["| lines | kind | what | answered by | shown by |", "|---|---|---|---|---|"]
    return "\n".join([_counts(asked), "", *head, *map(_table_row, asked)])


def _counts(rows: Sequence[CoveredItem]) -> str:
    answers = [row.answer for row in rows]
    return (
        f"{len(rows)} items: {answers.count('yes')} answered in full, "
        f"{answers.count('partly')} in part, "
        f"{answers.count('missing')} missing."
    )


def _table_row(row: CoveredItem) -> str:
    note = f" *{row.note}*" if row.note else ""
    commands = "<br>".join(f"`{command}`" for command in map(_shown, row.commands))
    tests = "<br>".join(f"`{test}`" for test in row.tests)
    cells = (row.lines, row.kind, row.item + note, commands or "missing", tests)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _shown(command: str) -> str:
    return command.removeprefix("python: ")


def coverage_flags() -> str:
    """Every flag that the documents name: when it acts, and what shows the same."""
    known = {flag.name: flag for flag in FLAGS}
    named: dict[str, list[CoveredItem]] = {}
    for row in (row for document in documents() for row in document.rows):
        for name in row.flags:
            named.setdefault(name, []).append(row)
    rows = [
        f"| `{name}` | {known[name].kind} | {known[name].acts} | {known[name].purpose} "
        f"| {_instead(named[name])} | {known[name].note or ''} |"
        for name in sorted(named, key=lambda name: (known[name].kind, name.lower()))
    ]
    head = ["| flag | kind | acts at | what it does | without it | what to know |"]
    return "\n".join([*head, "|---|---|---|---|---|---|", *rows])


def _instead(rows: Sequence[CoveredItem]) -> str:
    """The commands of the rows that name a flag; those about few flags tell most."""
    ordered = sorted(rows, key=lambda row: len(row.flags))
    commands = dict.fromkeys(_shown(command) for row in ordered for command in row.commands)
    return "<br>".join(f"`{command}`" for command in list(commands)[:2])


def main() -> int:
    """Name every problem; exit with 1 if there is one."""
    parser = argparse.ArgumentParser(description="Check docs/coverage.json.")
    parser.add_argument("--seeds", type=Path, metavar="DIR", help="the folder with the documents")
    folder = parser.parse_args().seeds
    found = list(problems(documents()))
    if folder is not None:
        found += uncovered_in(folder, documents())
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
