"""`inductoscope show`: every view as text of 80 columns and as JSON, of recordings by anybody."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from inductoscope import open_recording
from inductoscope.errors import UsageError
from inductoscope.model.fold import load
from inductoscope.recording.location import create_recording
from inductoscope.torch_facts.stages import SHOWN
from inductoscope.views.report.show import ShowSelection, choose_view
from inductoscope.views.report.stage_views import STAGE_VIEWS
from inductoscope.views.report.terminal import Printer
from support.examples import NAMES, Answer, inductoscope, stored, write_recording

# What a user can ask of any recording; a view that a recording cannot give is an error of its own.
VIEWS: dict[str, tuple[str, ...]] = {
    "summary": (),
    **{stage: ("--stage", stage) for stage in SHOWN},
    "one operation": ("--op", "relu"),
    "one line": ("--source", "script.py"),
    "one kernel": ("--kernel", "fused"),
    "one graph": ("--runnable", "0/0 dynamo", "--to", "-"),
}
every_recording = pytest.mark.parametrize("name", NAMES)
every_view = pytest.mark.parametrize("words", VIEWS.values(), ids=VIEWS)


# --- text and JSON say the same -------------------------------------------------------------------


def leaves(value: Any) -> list[str]:
    """All texts in a view's data."""
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value] if isinstance(value, str) else []


def squeezed(text: str) -> str:
    """Without spaces: wrapping may put a line end anywhere, even into a long word."""
    return "".join(text.split())


@every_view
def test_every_view_has_json_with_the_same_facts(words: tuple[str, ...]) -> None:
    text = inductoscope("show", stored("relu_add_sum"), *words)
    data = inductoscope("show", stored("relu_add_sum"), *words, "--json", "-")
    assert (text.exit_code, data.exit_code) == (0, 0)
    shown = squeezed(text.stdout)
    for section in data.data.get("sections", ()):
        for fact in (section["title"], *leaves(section["facts"]), *section["text"].splitlines()):
            assert squeezed(fact) in shown
    for key in ("script", "empty"):
        assert squeezed(data.data.get(key, "")) in shown


def test_json_in_a_file_comes_with_the_text(tmp_path: Path) -> None:
    target = tmp_path / "view.json"
    answer = inductoscope("show", stored("training_step"), "--json", target)
    assert "no problem found" in answer.stdout
    data = inductoscope("show", stored("training_step"), "--json", "-").data
    assert json.loads(target.read_text("utf-8")) == data


def test_the_summary_as_data() -> None:
    data = inductoscope("show", stored("training_step"), "--json", "-").data
    rows = inductoscope("fusion", stored("training_step"), "--json", "-").data["rows"]
    assert (data["schema"], data["ending"]["exit_code"]) == (1, 0)
    totals = data["totals"]
    assert totals["kernels"] == {"C++": 6}
    assert (totals["kernel_calls"], totals["library_calls"]) == (6, 6)
    fused, refused = (len([r for r in rows if r["outcome"] == o]) for o in ("fused", "refused"))
    assert (totals["pairs_fused"], totals["pairs_refused"]) == (fused, refused)
    forward, backward = data["compiles"][0]["graphs"]
    assert (forward["phase"], forward["lowered_nodes"]) == ("forward", 24)
    assert "cpp_fused__softmax_add_2" in forward["kernels"]
    assert (backward["phase"], sum(backward["calls"].values())) == ("backward", 7)


def test_a_refused_recompile_is_counted_apart() -> None:
    data = inductoscope("show", stored("recompiles"), "--json", "-").data
    assert (data["totals"]["recompiles"], data["totals"]["recompiles_refused"]) == (7, 1)
    assert [each["recompile"] for each in data["compiles"]] == [False, *[True] * 7, False]
    assert "7 recompiles (1 more refused)" in inductoscope("show", stored("recompiles")).words
    stage = inductoscope("show", stored("recompiles"), "--stage", "recompiles").words
    assert "0/7 label was recompiled" in stage
    assert "0/8 label was not recompiled" in stage


def test_kernels_of_a_graph_from_a_cache_are_not_generated() -> None:
    data = inductoscope("show", stored("cache_hit"), "--json", "-").data
    assert (data["totals"]["graphs"], data["totals"]["graphs_from_cache"]) == (1, 1)
    shown = inductoscope("show", stored("cache_hit")).words
    assert "kernels none generated for 1 graph from a cache" in shown


def test_a_kernel_has_call_sites() -> None:
    """A wrapper may call a kernel at several places; how often it runs is not in the recording."""
    shown = inductoscope("show", stored("training_step")).words
    assert "kernels 6 C++, 6 library call sites" in shown
    assert "extern_kernels.mm (4 call sites)" in shown


def test_the_findings_as_data() -> None:
    data = inductoscope("show", stored("graph_breaks"), "--json", "-").data
    assert [finding["rule"] for finding in data["findings"]] == ["graph_breaks"] * 2
    assert data["findings"][0]["confidence"] == "proven"


def test_operators_have_their_usual_names_in_text_and_json(tmp_path: Path) -> None:
    message = "no lowering for (<OpOverload(op='aten.cat', overload='default')>, 3)"
    failed = {"kind": "error", "stage": "lowering", "type": "Exception", "message": message}
    folder = write_recording(tmp_path / "r", failed)
    assert "no lowering for (aten.cat.default, 3)" in inductoscope("show", folder).words
    (finding,) = inductoscope("show", folder, "--json", "-").data["findings"]
    assert finding["title"].endswith("no lowering for (aten.cat.default, 3)")


def test_json_that_cannot_be_written_says_so(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("show", stored("recompiles"), "--json", tmp_path / "no" / "view.json")
    assert answer.exit_code == 2
    assert answer.words == snapshot


# --- what each stage shows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stage", "expected"),
    [
        ("relu_add_sum", "dynamo", "%relu = relu(l_x_)"),
        (
            "graph_breaks",
            "breaks",
            "Explanation: Dynamo does not know how to trace builtin operator `print`",
        ),
        ("relu_add_sum", "guards", "TENSOR_MATCH(L['x'])"),
        ("recompiles", "recompiles", "0/3: name == 'call 3'"),
        ("training_step", "aot", "aten._softmax.default 1"),
        ("training_step", "passes", "-%alias = aten.alias.default(div)"),
        ("relu_add_sum", "ir", "tmp1 = ops.relu(tmp0)"),
        ("relu_add_sum", "scheduler", "buf0 float32[10] stride [1] of sum_1 used by OUTPUT"),
        ("training_step", "fusion", "fused op9 + op10 (vertical reduction, 512 bytes saved)"),
        ("training_step", "fusion", "refused op5 + op8 (vertical reduction): no shared data"),
        ("relu_add_sum", "loop-body", "reduction = ops.reduction(torch.float32"),
        ("relu_add_sum", "kernel", "cpp_fused_add_relu_sum_0 (C++)"),
        ("training_step", "memory", "buf5 takes over buf2 (in place)"),
        ("relu_add_sum", "wrapper", "def call("),
        ("refused_by_compiler", "native", "exit code 1"),
        ("h200_autotune", "autotune", "winner triton_mm_14"),
        ("cache_hit", "cache", "0/0 AOTAutograd cache: hit"),
        ("refused_by_compiler", "errors", "InductorError in stage cpp-compile: raised"),
        ("recompiles", "errors", "swallowed, the frame runs in eager"),
    ],
)
def test_a_stage_shows_what_happened_in_it(name: str, stage: str, expected: str) -> None:
    assert expected in inductoscope("show", stored(name), "--stage", stage).words


def test_every_stage_is_shown_by_an_example_above() -> None:
    mark = test_a_stage_shows_what_happened_in_it.pytestmark[0]  # type: ignore[attr-defined]
    assert {stage for _, stage, _ in mark.args[1]} == set(STAGE_VIEWS)


@pytest.mark.parametrize(
    ("name", "stage", "reason"),
    [
        ("relu_add_sum", "breaks", "Nothing happened in stage breaks."),
        ("cache_hit", "kernel", "Stage kernel did not run: the graphs came from a cache."),
        ("cache_hit", "errors", "Nothing happened in stage errors."),
    ],
)
def test_an_empty_stage_says_why(name: str, stage: str, reason: str) -> None:
    assert reason in inductoscope("show", stored(name), "--stage", stage).words


def test_a_stage_that_is_empty_because_its_view_is_off_says_so(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    off = {"kind": "hook-off", "records": "fusion pairs", "missing": ["torch.gone"]}
    start = {"kind": "compile-start", "compile": "0/0"}
    folder = write_recording(tmp_path / "r", off, start)
    shown = inductoscope("show", folder, "--stage", "fusion").words
    assert shown == snapshot


def test_nothing_compiled_says_so_in_every_stage(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "r", {"kind": "process", "pid": 1})
    for stage in SHOWN:
        if stage != "native":
            shown = inductoscope("show", folder, "--stage", stage).words
            assert shown.endswith("Nothing was compiled in this recording.")


def test_one_compile_of_several() -> None:
    shown = inductoscope("show", stored("graph_breaks"), "--stage", "dynamo", "--compile", "1/0")
    titles = re.findall(r"^\d/\d dynamo.*", shown.stdout, re.MULTILINE)
    assert titles == ["1/0 dynamo: torch_dynamo_resume_in_branch_at_8"]


@pytest.mark.parametrize("kernel", ["cpp_fused_gelu_1", "gelu_1"])
def test_one_kernel_by_its_name_or_a_part_of_it(kernel: str, snapshot: SnapshotAssertion) -> None:
    data = inductoscope("show", stored("training_step"), "--kernel", kernel, "--json", "-").data
    (section,) = data["sections"]
    assert section["title"] == snapshot
    assert section["facts"]["operations"] == ["mul_2", "mul_3", "erf", "add_2", "mul_4"]
    assert "erf()" in section["text"]


def test_a_program_reads_a_recording_the_same_way() -> None:
    recording = open_recording(stored("relu_add_sum"))
    shown = inductoscope("show", stored("relu_add_sum"), "--op", "relu").stdout
    assert recording.text(op="relu") == shown
    assert repr(recording) == recording.text() == inductoscope("show", recording.path).stdout
    assert recording.findings == []
    assert [compile_.function for compile_ in recording.model.compiles] == ["chain"]


# --- which recording ------------------------------------------------------------------------------


def test_without_a_path_it_is_the_last_recording() -> None:
    create_recording(["python", "zebra.py"])
    last = create_recording(["python", "ant.py"])
    shown = inductoscope("show")
    assert shown.exit_code == 0
    assert str(last) in squeezed(shown.stdout)


def test_all_recordings_are_listed_with_their_commands() -> None:
    for script in ("first.py", "second.py"):
        create_recording(["python", script])
    shown = inductoscope("show", "--list")
    assert shown.words.startswith("2 recordings, ")
    assert "python first.py" in shown.words
    data = inductoscope("show", "--list", "--json", "-").data
    assert [item["command"][-1] for item in data["recordings"]] == ["second.py", "first.py"]


@pytest.mark.parametrize("created", [1e300, -1e300, 10**30, "yesterday", None, float("nan")])
def test_a_list_with_a_damaged_recording_in_it(created: Any) -> None:
    broken = {"created": created, "command": 3}
    write_recording(Path(os.environ["INDUCTOSCOPE_RECORDINGS"]) / "b\x1b[31mroken", manifest=broken)
    shown = inductoscope("show", "--list")
    assert shown.exit_code == 0
    assert "b\\x1b[31mroken" in shown.stdout


# --- 80 columns -----------------------------------------------------------------------------------


class WrappedOnly(Printer):
    """Leaves out code, which is never wrapped."""

    def code(self, text: str, *, indent: int = 2) -> None:
        """Nothing."""


@every_recording
def test_what_is_wrapped_stays_within_80_columns(name: str) -> None:
    recording = load(stored(name))
    page = io.StringIO()
    for selection in (
        ShowSelection(),
        ShowSelection(source="script.py"),
        *(ShowSelection(stage=stage) for stage in SHOWN),
    ):
        with contextlib.suppress(UsageError):  # Not every script has a line that became something.
            view, render = choose_view(recording, selection)
            render(WrappedOnly(page), view)
    assert max(cell_len(line) for line in page.getvalue().splitlines()) <= 80


def printed(write: Callable[[Printer], None]) -> list[str]:
    page = io.StringIO()
    write(Printer(page))
    return page.getvalue().splitlines()


@pytest.mark.parametrize("length", [1, 30, 60, 79, 80, 500])
def test_long_names_and_long_words_stay_within_80_columns(length: int) -> None:
    lines = printed(lambda page: page.pair("n" * length, "v" * 300))
    lines += printed(lambda page: page.line("w" * 10 * length, indent=7))
    assert max(map(len, lines)) <= 80
    text = squeezed("".join(lines))
    assert (text.count("n"), text.count("v")) == (length, 300)


def test_code_is_never_wrapped() -> None:
    line = "x = " + " + ".join(["value"] * 100)
    assert printed(lambda page: page.code(f"{line}\n  {line}")) == [f"  {line}", f"    {line}"]


# --- hostile recordings ---------------------------------------------------------------------------

HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07 [red]markup[/red] [link=file:///x]l[/link] :smile: \x00\x08\r"
    " \x9b2J \u202egnp.exe\u2066 \u2028 \ud800 <script>alert(1)</script> &amp; %s {x} \\x1b"
)
# Texts by which the reader tells things apart; changed, they would hide what is to be shown.
KEPT = re.compile(
    r"[0-9a-f]{32}|call_\w+|placeholder|output|[a-z]+-[a-z-]+|dynamo|joint|aot|hit|C\+\+"
)


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: v if key == "kind" else poisoned(v) for key, v in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    if isinstance(value, str) and not KEPT.fullmatch(value):
        return value + HOSTILE
    return value


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every stored recording with every text changed by somebody who means harm."""
    root = tmp_path_factory.mktemp("hostile")
    for name in NAMES:
        for source in (path for path in stored(name).rglob("*") if path.is_file()):
            target = root / name / source.relative_to(stored(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            lines = source.read_text("utf-8").splitlines()
            target.write_text("\n".join(map(poisoned_line, lines)), "utf-8", "surrogatepass")
    return {name: root / name for name in NAMES}


def poisoned_line(line: str) -> str:
    try:
        return json.dumps(poisoned(json.loads(line)))
    except ValueError:
        return line + HOSTILE


def is_plain(answer: Answer) -> bool:
    """No control, no mark that reorders, no half of a character, no line end but the usual one."""
    raw = set(answer.stdout + answer.stderr) - {"\n"}
    return not {unicodedata.category(letter) for letter in raw} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@every_recording
def test_a_hostile_recording_is_shown_as_text_and_nothing_else(
    hostile: dict[str, Path], name: str
) -> None:
    answers = [inductoscope("show", hostile[name], *words) for words in VIEWS.values()]
    assert all(is_plain(answer) for answer in answers)
    everything = "".join(answer.stdout for answer in answers)
    for literal in ("\\x1b[31mred", "[red]markup[/red]", "\\u202egnp.exe", "<script>", ":smile:"):
        assert literal in everything


@every_recording
def test_errors_about_a_hostile_recording_are_text_too(hostile: dict[str, Path], name: str) -> None:
    for option in ("--op", "--kernel", "--compile", "--runnable"):
        answer = inductoscope("show", hostile[name], option, "no such thing")
        assert answer.exit_code == 2
        assert is_plain(answer)


@every_recording
def test_json_of_a_hostile_recording_is_json(hostile: dict[str, Path], name: str) -> None:
    for words in VIEWS.values():
        answer = inductoscope("show", hostile[name], *words, "--json", "-")
        if answer.exit_code == 0:
            assert answer.data
            assert answer.stdout.isascii()


def test_a_terminal_gets_no_escape_but_its_colours(
    hostile: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = inductoscope("show", hostile["graph_breaks"]).stdout
    escapes = set(re.findall(r"\x1b[^a-zA-Z]*[a-zA-Z]", shown))
    assert escapes
    assert all(re.fullmatch(r"\x1b\[[\d;]*m", escape) for escape in escapes)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_lacks_characters_gets_them_written_out(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inductoscope", "show", str(stored("refused_by_compiler"))],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"")  # There is a problem in it.
    assert b"was not declared in this scope" in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "inductoscope", "show", str(stored("training_step"))]
    with subprocess.Popen(
        [*command, "--stage", "kernel"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""


def test_a_stage_of_the_compiler_is_shown_in_its_view_and_a_mistyped_one_is_guessed() -> None:
    chain = stored("relu_add_sum")
    shown = inductoscope("show", chain, "--stage", "lowering")
    assert shown.stdout == inductoscope("show", chain, "--stage", "ir").stdout != ""
    mistyped = inductoscope("show", chain, "--stage", "lowring")
    assert mistyped.exit_code == 2
    assert mistyped.words.endswith("Did you mean 'lowering'?")
