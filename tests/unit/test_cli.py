"""The command line itself: what is typed, what comes back, and with which exit code."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import click
import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules import diagnose
from inductoscope.cli import COMMANDS
from inductoscope.errors import InductoscopeError, ToolFailure, UnreadableRecording, UsageError
from inductoscope.model.fold import load
from inductoscope.version import __version__
from support.examples import inductoscope, stored, write_recording
from support.logged import HANG

CHAIN = stored("relu_add_sum")
PACKAGE = Path(__file__).resolve().parents[1] / "data" / "packages" / "small.pt2"


# --- help is instant ------------------------------------------------------------------------------


def modules_after(*words: str) -> set[str]:
    """The top-level modules that a command has imported by the time that it ends."""
    code = (
        "import sys\n"
        f"sys.argv = ['inductoscope', *{list(words)!r}]\n"
        "from inductoscope.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code in (None, 0, 1), end.code\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [("--help",), ("show", "--help"), ("run", "-h"), ("--version",)])
def test_help_imports_neither_torch_nor_rich(words: tuple[str, ...]) -> None:
    found = modules_after(*words)
    assert {"click", "inductoscope"} <= found
    assert not found & {"torch", "triton", "numpy", "rich"}


READING = {
    "show": ("show", CHAIN),
    "show --op": ("show", CHAIN, "--op", "relu", "--json", "-"),
    "show --stage": ("show", CHAIN, "--stage", "passes"),
    "show --list": ("show", "--list"),
    "report": ("report", CHAIN, "--output", "page.html"),
    "diff": ("diff", CHAIN, stored("training_step")),
    "fusion": ("fusion", CHAIN),
    "bounds": ("bounds", CHAIN),
    "export": ("export", CHAIN, "--to", "exported"),
    "explain": ("explain", "lowering"),
    "logs": ("logs", HANG),
    "recordings": ("recordings",),
    "aoti": ("aoti", "--json", "-", PACKAGE),
}


@pytest.mark.parametrize("what", READING)
def test_reading_imports_no_torch(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = modules_after(*map(str, READING[what]))
    assert "inductoscope" in found
    assert not found & {"torch", "triton", "numpy"}


def test_help_names_every_command_and_the_exit_codes(snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("--help")
    assert answer.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in answer.stdout
    assert answer.words == snapshot


def test_no_command_at_all_is_answered_with_help() -> None:
    # Its exit code is click's: 0 before version 8.2, 2 since.
    assert inductoscope("--help").words in inductoscope().words


def test_the_list_of_commands_is_not_cut_off() -> None:
    lines = inductoscope("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    command = importlib.import_module(f"inductoscope.cli.commands.{name}").command
    options = [option for option in command.params if isinstance(option, click.Option)]
    for option in options:
        assert option.help, option.opts
        assert option.help.split("  [default")[0].endswith("."), option.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str) -> None:
    answer = inductoscope(name, "--help")
    assert answer.exit_code == 0
    assert answer.stdout.startswith(f"Usage: inductoscope {name} ")
    assert max(map(len, answer.stdout.splitlines())) <= 80


def test_the_version_is_the_packages() -> None:
    assert inductoscope("--version").words == f"inductoscope, version {__version__}"


def test_python_dash_m_is_the_same_command() -> None:
    command = [sys.executable, "-m", "inductoscope", "show", str(CHAIN), "--compile", "7/7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == inductoscope("show", CHAIN, "--compile", "7/7").stderr


# --- usage errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("shwo",), "No such command 'shwo'. Did you mean 'show'?"),
        (("docter", "train.py"), "No such command 'docter'. Did you mean 'doctor'?"),
        ((__file__, "--epochs", "1"), f"To examine the script: inductoscope doctor {__file__}"),
        (("show", "--stges", "ir"), "No such option '--stges'. Did you mean '--stage'?"),
        (("show", "--op"), "Option '--op' requires an argument."),
        (("show", "a", "b"), "Got unexpected extra argument"),
        (("run",), "Nothing to run. Give a script after the options: train.py"),
        (("run", "missing.py"), "The script missing.py does not exist (looked in "),
        (("run", "-m"), "-m needs an argument, as in: inductoscope run -m NAME."),
        (("run", "no-such-program"), "no-such-program is neither a script in"),
        (
            ("run", "--fersh", "x.py"),
            "No such option: --fersh. Did you mean '--fresh'? Options come",
        ),
        (("doctor", "--cals=3", "x.py"), "No such option: --cals. Did you mean '--calls'?"),
        (("doctor", "-m", "nosuchmodule"), "Python finds no module nosuchmodule to run"),
        (("run", "-m", "json.nosuch", "--quiet"), "Python finds no module json.nosuch to run"),
        (("run", "-m", "xml"), "Python finds no module xml to run"),  # A package without __main__.
        (
            ("run", "--json", "no/out.json", "x.py"),
            "no/out.json cannot be written: there is no folder",
        ),
        (("env", "--python", "no-such-python"), "no-such-python is not an executable program."),
    ],
)
def test_a_command_line_that_cannot_be(
    words: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = inductoscope(*words)
    assert answer.exit_code == 2
    assert expected.rstrip(".") in answer.words
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--stage", "fusoin"), "'fusoin' is not one of 'dynamo', 'breaks', 'guards',"),
        (("--compile", "7/7"), "There is no compile 7/7. There are: 0/0."),
        (("--kernel", "zzz"), "There is no kernel zzz. There are: cpp_fused_add_relu_sum_0."),
        (("--op", "zzz"), "matches zzz. Operations that Dynamo took: relu, add, sum."),
        (("--runnable", "zzz"), "There is no graph called 'zzz'. Choose one of: 0/0 dynamo"),
        (("--op", "relu", "--stage", "ir"), "--stage and --op cannot be combined."),
        (("--kernel", "x", "--source", "y"), "--source and --kernel cannot be combined."),
        (("--form", "ptx"), "--form needs a kernel. Add --kernel NAME."),
        (("--to", "graph.py"), "--to needs a graph to write. Add --runnable GRAPH."),
    ],
)
def test_what_a_recording_does_not_have_is_answered_with_what_it_has(
    words: tuple[str, ...], expected: str
) -> None:
    answer = inductoscope("show", CHAIN, *words)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert expected in answer.words


def test_one_compile_of_several_is_shown_alone_in_every_view() -> None:
    recording = stored("graph_breaks")
    data = inductoscope("show", recording, "--compile", "1/0", "--json", "-").data
    assert [compile_["id"] for compile_ in data["compiles"]] == ["1/0"]
    assert [finding["compile"] for finding in data["findings"]] == ["1/0"]
    words = ("--compile", "1/0", "--runnable", "dynamo", "--to", "-", "--json", "-")
    assert inductoscope("show", recording, *words).data["graph"] == "1/0 dynamo"
    answer = inductoscope("show", recording, "--compile", "1/0", "--kernel", "mul")
    assert "There are: cpp_fused_gt_sum_0." in answer.words


def test_an_error_is_one_line_without_a_traceback() -> None:
    answer = inductoscope("show", "/no/such/recording")
    assert answer.stderr.startswith("inductoscope: /no/such/recording does not exist.")
    assert len(answer.stderr.splitlines()) == 1


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "exit_code"), [(UsageError, 2), (UnreadableRecording, 2), (ToolFailure, 3)]
)
def test_every_error_has_its_exit_code(error: type[InductoscopeError], exit_code: int) -> None:
    assert issubclass(error, InductoscopeError)
    assert error.exit_code == exit_code


def test_all_errors_are_in_the_tree_of_the_module() -> None:
    import inductoscope.errors as module

    for error in InductoscopeError.__subclasses__():
        assert f" {error.__name__} " in (module.__doc__ or "")
        assert f"{error.exit_code}: " in (module.__doc__ or "")


def typed_in_a_shell(words: str) -> tuple[int, str]:
    """The exit code and what is on standard error."""
    command = f"{sys.executable} -m inductoscope {words}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("more", ["", "--json -"])
def test_a_closed_standard_output_changes_no_exit_code(more: str) -> None:
    failed = stored("refused_by_compiler")
    assert typed_in_a_shell(f"show {failed} {more} >&-") == (1, "")


@pytest.mark.parametrize("more", ["", "--json -"])
def test_a_full_disk_is_said_once_and_is_no_success(more: str) -> None:
    said = "inductoscope: the output cannot be written: No space left on device\n"
    assert typed_in_a_shell(f"show {CHAIN} {more} > /dev/full") == (3, said)


# --- run, on programs without torch ---------------------------------------------------------------


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inductoscope", "run", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_program_keeps_its_output_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:]); sys.exit(5)")
    done = run("--output", "recording", "train.py", "--epochs", "1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (5, "['--epochs', '1']\n")
    said = " ".join(done.stderr.split())
    assert "with exit code 5" in said
    findings = diagnose(load(tmp_path / "recording"))
    assert findings
    assert all(finding.title in said for finding in findings)


def test_an_output_that_is_in_use_is_a_usage_error(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('must not run')")
    done = run("--output", ".", "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == snapshot


def test_an_output_that_cannot_be_made_is_a_usage_error(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('must not run')")
    done = run("--output", "train.py/recording", "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == snapshot


def test_the_python_of_another_environment_is_recorded_too(tmp_path: Path) -> None:
    """As README says: inductoscope in one environment, the model in another, which lacks it."""
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    python = tmp_path / "other" / "bin" / "python"
    looks = "import importlib.util; print(importlib.util.find_spec('inductoscope'))"
    assert subprocess.run([python, "-c", looks], capture_output=True, text=True).stdout == "None\n"
    (tmp_path / "train.py").write_text("import sys; print(sys.prefix)")
    done = run("--output", "recording", python, "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'other'}\n")
    (process,) = (p for p in load(tmp_path / "recording").processes if p.pid)
    assert process.argv[-1].endswith("train.py")


@pytest.mark.parametrize("module", ["own", "package", "package.part", "package.broken"])
def test_a_module_of_any_kind_is_left_to_python(module: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "broken.py").write_text("import not_installed")
    for name in ("own.py", "package/__init__.py", "package/__main__.py", "package/part.py"):
        (tmp_path / name).write_text("")
    done = run("--quiet", "--output", "recording", "-m", module, cwd=tmp_path)
    assert done.returncode == (1 if module == "package.broken" else 0)


def test_a_package_runs_once_although_its_module_is_looked_up(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("open('ran', 'a').write('x')")
    (tmp_path / "package" / "train.py").write_text("")
    assert run("--output", "recording", "-m", "package.trian", cwd=tmp_path).returncode == 2
    assert run("--output", "recording", "-m", "package.train", cwd=tmp_path).returncode == 0
    assert (tmp_path / "ran").read_text() == "x"


def test_a_package_that_makes_its_own_modules_is_left_to_python(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.py").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("__path__.append('elsewhere')")
    assert run("--output", "recording", "-m", "package.train", cwd=tmp_path).returncode == 0


def test_show_exits_with_1_if_the_summary_has_a_problem_in_it() -> None:
    assert inductoscope("show", stored("relu_add_sum")).exit_code == 0
    assert inductoscope("show", stored("refused_by_compiler")).exit_code == 1
    # A view of one stage is no check: it was asked for, and is shown.
    assert inductoscope("show", stored("refused_by_compiler"), "--stage", "errors").exit_code == 0


def test_seconds_of_processes_side_by_side_are_said_to_be_theirs_together(tmp_path: Path) -> None:
    """Their sum may exceed the run."""
    lowered = {"kind": "stage", "stage": "lowering", "compile": "0/0", "seconds": 70.0}
    compiled = {"kind": "compile-start", "compile": "0/0", "function": "f"}
    path = write_recording(tmp_path / "recording", compiled, lowered)
    assert "lowering 70.00 recording" in inductoscope("show", path).words
    first = path / "streams" / "1-1.jsonl"
    shutil.copy(first, first.with_name("2-2.jsonl"))
    assert "lowering 140.00 (2 processes together)" in inductoscope("show", path).words
