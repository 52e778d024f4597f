"""The proof: a script is a reproducer if it fails the right way in every fresh process."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.doctor.repro.verify import FreshProcesses, Verification


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch cannot be loaded, which would take most of the time."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "torch.py").write_text("raise ImportError('not here')\n")
    return {"PYTHONPATH": str(tmp_path / "path")}


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("print('the bug'); raise SystemExit(1)", 2),
        ("print('another bug'); raise SystemExit(1)", 0),
        ("print('the bug')", 0),
        ("print('the bug', flush=True); import os; os.abort()", 0),
    ],
    ids=["fails", "fails otherwise", "does not fail", "dies"],
)
def test_a_script_is_a_reproducer_if_it_fails_the_right_way(
    text: str, failed: int, tmp_path: Path, no_torch: dict[str, str]
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(text)
    processes = FreshProcesses(no_torch, tmp_path, times=2)
    found = processes.verify(script, ["the bug"], seconds=60)
    assert (found.failed, found.of, found.is_verified) == (failed, 2, failed == 2)


def test_the_compiler_is_loaded_before_the_script_comes(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text(
        "import sys\n"
        "assert {'torch._dynamo', 'torch._inductor.compile_fx'} <= sys.modules.keys()\n"
        "sys.exit('the bug')\n"
    )
    assert FreshProcesses({}, tmp_path, times=1).verify(script, ["the bug"]).is_verified


def test_a_script_that_never_ends_is_not_verified(tmp_path: Path, no_torch: dict[str, str]) -> None:
    script = tmp_path / "repro.py"
    script.write_text("print('the bug', flush=True); import time; time.sleep(100)")
    # It gets as long once, and twice as long with the machine to itself.
    found = FreshProcesses(no_torch, tmp_path, times=1).verify(script, ["the bug"], seconds=2)
    assert found == Verification(failed=0, of=1, output="")


def test_what_was_never_run_is_not_verified() -> None:
    assert not Verification(failed=0, of=0, output="").is_verified


def test_a_script_that_fails_now_and_then_is_not_verified(
    tmp_path: Path, no_torch: dict[str, str]
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(
        "import os, sys\n"
        "try:\n    os.mkdir('first')\nexcept FileExistsError:\n    sys.exit('the bug')\n"
    )
    found = FreshProcesses(no_torch, tmp_path, times=3).verify(script, ["the bug"])
    assert (found.failed, found.of, found.is_verified) == (2, 3, False)
    assert found.output == "the bug\n"
