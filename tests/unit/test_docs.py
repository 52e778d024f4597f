"""README.md and docs/: generated parts are up to date, links lead somewhere, commands work."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules import diagnose
from inductoscope.cli import COMMANDS
from inductoscope.model.fold import load
from inductoscope.torch_facts.fusion_reasons import REASONS
from inductoscope.views.explain import topics
from support.examples import NAMES, RECORDINGS, inductoscope, stored

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
GUIDES = ROOT / "docs" / "guides"
LOGS = ROOT / "tests" / "data" / "recorded_logs"

# What the docs write where a user puts a value.
PLACEHOLDERS = {"PID": "12345", "FOLDER": ".", "DIR": "out"}
# Fast, and without torch: they are run. The others are only parsed.
RUN = {"show", "explain", "fusion", "diff", "export", "logs", "skill", "completion"}
# These compile, so they are only parsed; so is what needs a file of the reader's.
SLOW = {"--target", "--try", "--follow", "--executor", "asm", "FILE", "FILE|FOLDER|-", "DIR"}


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- generated parts ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_parts_are_up_to_date(path: Path) -> None:
    text = path.read_text("utf-8")
    assert load_generator().regenerated(text) == text, "run 'make docs'"


def test_the_options_of_every_command_are_in_the_docs_once() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCUMENTS)
    shown = re.findall(r"<!-- generated: options (\w+) -->", text)
    # Their only option is --help.
    assert sorted(shown) == sorted(set(COMMANDS) - {"completion", "skill"})


# --- links and length -----------------------------------------------------------------------------


def headings(path: Path) -> set[str]:
    """The anchors of a document, as hosting services make them."""
    found = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in found}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(path: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", path.read_text("utf-8")):
        if not link.startswith("http"):
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            assert target.exists(), link
            assert not anchor or anchor in headings(target), link


PACKAGE = ROOT / "src" / "inductoscope"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(path: Path) -> None:
    """Relative to the repository or the package; names in capitals are up to the reader."""
    rooms = "|".join(room.name for room in PACKAGE.iterdir() if room.is_dir())
    named = re.findall(
        rf"`((?:src|tests|docs|bench|web|examples|{rooms})/[^`\s:]+)(?:::\w+)?`", path.read_text()
    )
    for name in named:
        if not re.search(r"[A-Z]{3}", Path(name).stem):
            found = [*ROOT.glob(name), *PACKAGE.glob(name), *PACKAGE.glob(f"{name}.py")]
            assert found, name


def test_the_readme_says_first_how_to_install_it(snapshot: SnapshotAssertion) -> None:
    first = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:25])
    assert first == snapshot
    # Beside one's own model, without touching its environment.


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1000


# --- commands -------------------------------------------------------------------------------------


def shown_commands(text: str) -> Iterator[str]:
    """Every `inductoscope ...` that a document tells its readers to type."""
    for block in re.findall(r"((?:^    .*\n)+)", text, re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            typed = re.sub(r"^\s*(?:\$ |sudo |eval \"\$\()?", "", line)
            if typed.startswith("inductoscope "):
                yield re.sub(r"(?:\s+(?:#|&$|\||>)|\)\").*", "", " ".join(typed.split()))
    yield from re.findall(r"`(inductoscope [^`\n]+)`", text)


EXAMPLES = sorted(
    {
        command
        for path in DOCUMENTS
        # Those of guides have been run on their own scripts: see test_guides.py.
        if path.name != "battery.md" and path.parent != GUIDES
        for command in shown_commands(path.read_text("utf-8"))
    }
)


def words_of(example: str) -> list[str]:
    # A template of words in brackets is not an example to type.
    words = shlex.split(example)[1:]
    return [PLACEHOLDERS.get(word, word) for word in words]


def test_there_are_examples_of_every_command() -> None:
    assert {words_of(example)[0] for example in EXAMPLES} >= set(COMMANDS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_command_line_that_the_tool_accepts(example: str) -> None:
    name, *words = words_of(example)
    if name.startswith("-"):
        assert inductoscope(name, *words).exit_code == 0
        return
    command = importlib.import_module(f"inductoscope.cli.commands.{name}").command
    assert isinstance(command, click.Command)
    with command.make_context(name, words):
        pass


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the examples name: logs, recordings called before and after."""
    monkeypatch.chdir(tmp_path)
    for name in ("log.txt", "inductor_log.txt"):
        with gzip.open(LOGS / "h200_autotune_hang.log.gz") as packed:
            (tmp_path / name).write_bytes(packed.read())
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "traces").symlink_to(ROOT / "tests" / "data" / "recorded_ranks")
    (tmp_path / "before").symlink_to(stored("relu_add_sum"))
    (tmp_path / "after").symlink_to(stored("h200_seed"))
    return tmp_path


def is_run(example: str) -> bool:
    words = shlex.split(example)[1:]
    return words[0] in RUN and not SLOW & set(words)


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("example", [example for example in EXAMPLES if is_run(example)])
def test_an_example_works_on_a_stored_recording(example: str) -> None:
    """The last recording may be any of those in tests/data/recordings: one has what is named."""
    answers = []
    for name in NAMES:
        folder = Path(os.environ["INDUCTOSCOPE_RECORDINGS"])
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        (folder / "20260101-000000-first").symlink_to(RECORDINGS / "recompiles" / "recording")
        (folder / "20260102-000000-last").symlink_to(stored(name))
        words = [str(stored(name)) if word == "RECORDING" else word for word in words_of(example)]
        answers.append(inductoscope(*words))
        if answers[-1].exit_code in (0, 1):
            return
    pytest.fail("\n".join(answer.stderr for answer in answers))


# --- the voice ------------------------------------------------------------------------------------

# Turns of phrase that read as if translated, and what to write instead.
TRANSLATED = {
    r"(?<!there) (?:is|are) no (?!longer|more|faster)": "is not a",
    r"\bstands still\b": "stalls",
    r"\b(in|out)side of\b": "inside, outside",
    r"\bof (?:its|their|your) own\b": "its own",
    r"\banew\b": "again",
    r"\bway (?:past|round)\b": "workaround",
    r"\bsign of life\b": "progress",
    r"\bgo(?:es)? round\b": "loops",
    r"[a-z]\(s\)": "count_of(number, noun)",
}


def prose() -> Iterator[tuple[str, str]]:
    """The documents, help, explanations, reasons and findings, with their names."""
    for path in DOCUMENTS:
        yield path.name, path.read_text("utf-8")
    for name in COMMANDS:
        yield f"{name} --help", inductoscope(name, "--help").stdout
    for name in sorted({topic.name for topic in topics()}):
        yield f"explain {name}", inductoscope("explain", name).stdout
    yield "skill", inductoscope("skill").stdout
    for reason in REASONS:
        yield f"fusion: {reason.pattern}", f"{reason.words} {reason.change}"
    for name in NAMES:
        for finding in diagnose(load(stored(name))):
            yield f"{finding.rule} in {name}", f"{finding.title}. {finding.advice}"


def test_everything_to_read_is_written_in_plain_english() -> None:
    for where, text in prose():
        for phrase, better in TRANSLATED.items():
            found = re.search(phrase, " ".join(text.split()), re.IGNORECASE)
            assert found is None, f"{where}: '{found[0] if found else ''}', better: '{better}'"
