"""`inductoscope env`: what it prints and exits with, also where torch is missing or broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from inductoscope.cli.commands.env import command
from inductoscope.torch_facts.log_lines import LogPattern, check_pattern
from inductoscope.views.env.collection import (
    Environment,
    NameCheck,
    Question,
    ask,
    find_cache,
    find_tool,
)
from inductoscope.views.report.environment import environment_view
from support.json_schema import violations

COLLECTION = "inductoscope.views.env.collection"
SUBMITTED = LogPattern("Submitted precompile for choice: %s", "DEBUG")

# --- torches that are missing or broken -----------------------------------------------------------


@pytest.fixture
def broken_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that stands in front of the installed torch; the test writes what it does."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "torch.py"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "raise ModuleNotFoundError(\"No module named 'torch'\")",
            "ModuleNotFoundError: No module named 'torch'",
        ),
        (
            "raise ImportError('libcudart.so.13: cannot open shared object file')",
            "ImportError: libcudart.so.13: cannot open shared object file",
        ),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("x = 1", "AttributeError: module 'torch' has no attribute '__version__'"),
        ("import os; os.abort()", "it ended with signal 6 before it could answer"),
        ("import os; os._exit(7)", "it ended with exit code 7 before it could answer"),
    ],
)
def test_a_torch_that_cannot_be_imported(broken_torch: Path, source: str, problem: str) -> None:
    broken_torch.write_text(source)
    assert ask(sys.executable, Question())["problem"] == problem


def test_a_torch_that_hangs_is_ended_in_time(broken_torch: Path) -> None:
    broken_torch.write_text("import time; time.sleep(600)")
    answer = ask(sys.executable, Question(), seconds=1)
    assert answer == {"problem": "importing torch did not end within 1 s"}


def test_a_torch_that_prints_does_not_spoil_the_answer(broken_torch: Path) -> None:
    broken_torch.write_text("import os; os.write(1, b'hello'); print('hello'); raise OSError('no')")
    answer = ask(sys.executable, Question())
    assert answer["problem"] == "OSError: no"
    assert answer["python"]["executable"] == sys.executable


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("not a program")
    program.chmod(0o755)
    assert ask(str(program), Question())["problem"].startswith("it cannot be started: ")


# --- the command ----------------------------------------------------------------------------------


def run_env(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.fixture
def known(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """The command finds `environment` instead of asking torch once more."""
    monkeypatch.setattr(f"{COLLECTION}.collect_environment", lambda python: environment)
    return environment


def test_all_is_well(known: Environment) -> None:
    result = run_env()
    assert known.torch is not None
    assert result.exit_code == 0
    assert known.torch.version in result.output
    assert f"Private torch names: {len(known.names)} found" in result.output
    assert "Nothing that inductoscope needs is missing." in result.output
    assert "TORCHINDUCTOR_NAN_ASSERTS" not in result.output


def test_flags_are_readable_at_80_columns(known: Environment) -> None:
    result = run_env("--flags")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert all(check.flag.name in result.output for check in known.flags)
    assert "TORCHINDUCTOR_TRITON_CUDAGRAPHS  [unknown to this torch]" in result.output
    assert "use TORCHINDUCTOR_CUDAGRAPHS instead" in result.output


def test_json_on_stdout_is_nothing_but_json(known: Environment) -> None:
    result = run_env("--flags", "--json", "-")
    view = {"schema": 1, **environment_view(known, flags=True)}
    assert json.loads(result.stdout) == json.loads(json.dumps(view))
    assert violations("env", json.loads(result.stdout)) == []


def test_json_in_a_file_comes_with_the_text(known: Environment, tmp_path: Path) -> None:
    target = tmp_path / "env.json"
    result = run_env("--json", str(target))
    assert result.output == run_env().output
    view = {"schema": 1, **environment_view(known, flags=False)}
    assert json.loads(target.read_text("utf-8")) == json.loads(json.dumps(view))


def test_a_missing_name_is_a_finding(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = NameCheck("fusion", "torch.old", found=False, reason="torch has no old", absent=None)
    changed = replace(environment, names=(*environment.names, gone))
    monkeypatch.setattr(f"{COLLECTION}.collect_environment", lambda python: changed)
    result = run_env()
    assert result.exit_code == 1
    assert "Part of the fusion view is off: torch has no old." in result.output


def test_a_missing_triton_is_no_finding(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = NameCheck("triton", "triton.knobs", found=False, reason="none", absent="triton")
    changed = replace(environment, names=(gone,))
    monkeypatch.setattr(f"{COLLECTION}.collect_environment", lambda python: changed)
    result = run_env()
    assert result.exit_code == 0
    assert "triton is not installed" in result.output


def test_a_drifted_log_line_is_a_finding(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    drifted = check_pattern(
        SUBMITTED, 'log.debug("Submitted precompile of choice: %s", c)', version="2.13.0"
    )
    changed = replace(environment, patterns=(drifted,))
    monkeypatch.setattr(f"{COLLECTION}.collect_environment", lambda python: changed)
    result = run_env()
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    assert "is gone; the nearest is 'Submitted precompile of choice: %s' (DEBUG, line 1)" in text


def test_without_torch_the_machine_is_still_described(broken_torch: Path) -> None:
    broken_torch.write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    result = run_env()
    text = " ".join(result.output.split())
    assert result.exit_code == 3
    assert f"torch cannot be imported in {sys.executable}: ModuleNotFoundError" in text.replace(
        "- ", "-"
    )
    assert "Name the Python that runs your script with --python PATH, or install torch" in text
    assert "C++ compiler" in text


def test_without_torch_json_says_what_to_do(broken_torch: Path) -> None:
    broken_torch.write_text("raise ImportError('libcudart.so.13')")
    result = run_env("--json", "-")
    view = json.loads(result.stdout)
    assert result.exit_code == 3
    assert view["torch"] is None
    assert view["problem"]["what"].endswith("ImportError: libcudart.so.13")
    assert "-c 'import torch'" in view["problem"]["next"]


def test_a_python_that_is_not_there_is_a_usage_error() -> None:
    result = run_env("--python", "/no/such/python")
    assert result.exit_code == 2
    assert "/no/such/python is not an executable program." in result.output


def test_the_command_loads_neither_torch_nor_rich() -> None:
    code = (
        "import sys, inductoscope.cli.commands.env\n"
        "print(sorted({'torch', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the machine ----------------------------------------------------------------------------------


def test_a_compiler_may_come_with_options() -> None:
    tool = find_tool(["no-such-compiler", f"{sys.executable} -X dev"])
    assert tool is not None
    assert tool.path == f"{sys.executable} -X dev"
    assert tool.version == f"Python {sys.version.split()[0]}"


def test_a_chosen_cache_folder_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.sep, "mine"))
    cache = find_cache("/tmp/torchinductor_someone")
    assert cache is not None
    assert (cache.path, cache.private) == (os.path.abspath("/mine"), True)


def test_the_default_cache_folder_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    cache = find_cache("/tmp/torchinductor_someone")
    assert cache is not None
    assert (cache.path, cache.private) == ("/tmp/torchinductor_someone", False)
