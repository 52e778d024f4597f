"""`profile` as typed: options that would be ignored are refused before the program runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inductoscope.cli.commands.profile import command
from inductoscope.errors import UsageError
from inductoscope.model.entities import Ending
from inductoscope.profiling import kernel_profile
from inductoscope.views.report.progress import ProgressLine


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--try", "max_autotune", "--compile"], "--try does not heed --compile"),
        (["--try", "max_autotune", "--advise"], "--try does not heed --advise"),
        (["--try", "max_autotune", "--output", "kept"], "--try does not heed --output"),
        (["--advise", "--compile"], "--compile does not heed --advise"),
        (["--compile", "--no-eager"], "--compile does not heed --no-eager"),
        (["--memory", "--measure-machine"], "--memory does not heed --measure-machine"),
        (["--memory", "--compile"], "--compile does not heed --memory"),
        (["--turns", "7"], "--turns is for --try, --autotune and --memory: give that, too"),
        (
            ["--time-limit", "7"],
            "--time-limit is for --try, --advise, --autotune and --memory: give that, too",
        ),
        (["--grow", "8"], "--grow is for --compile: give that, too"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(options: list[str], answer: str) -> None:
    with pytest.raises(UsageError, match=answer):
        command.main([*options, "no_such_program.py"], standalone_mode=False)


def test_two_sizes_show_no_growth(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--compile", "--grow", "2", "bench.py"])
    assert ended.value.code == 2
    assert "x>=3" in capsys.readouterr().err


def test_nothing_is_drawn_on_the_terminal_while_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own output would be overwritten, and the question that it asks."""
    happened: list[str] = []

    def run(*given: Any, **more: Any) -> Ending:
        happened.append("the program runs")
        return Ending(3, None, 1.0)

    def profile(*given: Any, **more: Any) -> kernel_profile.Profile:
        return kernel_profile.NO_PROFILE

    begin = ProgressLine.__enter__
    monkeypatch.setattr(kernel_profile, "run_profiled", run)
    monkeypatch.setattr(kernel_profile, "profile_of", profile)
    monkeypatch.setattr(
        ProgressLine, "__enter__", lambda self: happened.append("progress") or begin(self)
    )
    monkeypatch.setattr("signal.signal", lambda *given: None)
    script = tmp_path / "asks.py"
    script.touch()
    with pytest.raises(SystemExit):
        command.main(["--output", str(tmp_path / "kept"), str(script)])
    assert happened == ["the program runs", "progress"]
