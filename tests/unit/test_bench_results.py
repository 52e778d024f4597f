"""Benchmarks that are run, interrupted and run again, and the page that is written of them."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from bench import peers
from bench.load import QUIET
from bench.machine import UNKNOWN_COMMIT, read_commit, read_machine, read_versions
from bench.measurement import Measurement, write_measurements
from bench.results import (
    BENCHES,
    Places,
    choose,
    name_part,
    read_part,
    read_results,
    run_bench,
    run_to_end,
)
from bench.summary import DOCUMENT, Result, render

READING = Measurement(
    "trace, 2 cores: time", "s", (1.0,), 0.1, "tlparse", (None,), why_no_peer="exit code 101"
)


def result(bench: str, commit: str = "abc", failure: str = "", options: str = "") -> Result:
    return Result(
        bench=bench,
        commit=commit,
        date="2026-11-17",
        machine=read_machine(),
        versions=read_versions(),
        load=QUIET,
        failure=failure,
        measurements=[] if failure else [READING],
        options=options,
    )


# --- which are run --------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_and_what_is_named_is_measured_again() -> None:
    done = {"logs": result("logs"), "cli": result("cli", failure="exit code 3")}
    assert "logs" not in choose([], done, "abc")
    assert "cli" in choose([], done, "abc")
    assert "logs" in choose([], done, "def")
    assert choose(["logs"], done, "abc") == ["logs"]


def test_what_was_run_with_other_options_is_still_to_be_measured() -> None:
    assert "logs" in choose([], {"logs": result("logs", options="--turns=1")}, "abc")


def test_where_no_commit_is_known_nothing_counts_as_done() -> None:
    assert "logs" in choose([], {"logs": result("logs", UNKNOWN_COMMIT)}, UNKNOWN_COMMIT)


def test_a_run_goes_on_only_with_what_is_its_own() -> None:
    names = {
        name_part(*words)
        for words in (
            ("doctor", "abc", []),
            ("doctor", "abc with changes 12", []),
            ("doctor", "abc", ["--turns=1"]),
            ("doctor", "abc", ["--turns=1", "--seed=2"]),
            ("logs", "abc", []),
        )
    }
    assert len(names) == 5
    assert all(Path(name).name == name and " " not in name for name in names)


def test_a_name_that_no_benchmark_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "log"])
    with pytest.raises(SystemExit):
        runpy.run_module("bench", run_name="__main__")
    assert "no benchmark is called log; there are doctor, " in capsys.readouterr().err


# --- the commit -----------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for folder in ("src", "bench", "battery", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("first\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false")
    git(folder, *who, "commit", "--quiet", "--message", "changed")


def test_the_commit_is_that_of_what_is_measured_and_of_what_measures(checkout: Path) -> None:
    first = read_commit(checkout)
    assert first.isalnum()
    (checkout / "docs" / "file").write_text("second\n")
    commit(checkout)
    assert read_commit(checkout) == first
    for folder in ("src", "bench", "battery"):
        before = read_commit(checkout)
        (checkout / folder / "file").write_text("second\n")
        changed = read_commit(checkout)
        assert changed.startswith(f"{before} with changes ")
        (checkout / folder / "file").write_text("third\n")
        assert read_commit(checkout) not in (before, changed)
        commit(checkout)
        assert read_commit(checkout).isalnum()
        assert read_commit(checkout) != before


def test_a_file_that_git_does_not_know_yet_is_a_change(checkout: Path) -> None:
    new = checkout / "src" / "new"
    new.write_text("first\n")
    first = read_commit(checkout)
    assert " with changes " in first
    new.write_text("second\n")
    assert read_commit(checkout) not in (first, first.partition(" ")[0])


def test_without_a_checkout_no_commit_is_known(tmp_path: Path) -> None:
    assert read_commit(tmp_path) == UNKNOWN_COMMIT


# --- running them ---------------------------------------------------------------------------------


def test_only_a_benchmark_that_ends_well_has_a_result(tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    missing = "exit code 0, and no result can be read (FileNotFoundError)"
    assert read_part(part, 0)[0] == missing
    write_measurements([READING], part)
    assert read_part(part, 0) == ("", [READING])
    # An exception that nobody catches, and a signal.
    assert read_part(part, 1) == ("exit code 1", [])
    assert read_part(part, -9) == ("exit code -9", [])
    part.write_text('{"seconds": [1.0]}')
    assert read_part(part, 0)[0] == "exit code 0, and no result can be read (KeyError)"


def test_a_missed_goal_is_a_finished_measurement(tmp_path: Path) -> None:
    """One turn with a tiny recording, and a goal that nobody reaches."""
    part = tmp_path / "part.json"
    code = (
        "import sys\nfrom bench import cli\ncli.GOALS['--help'] = 0.0\n"
        f"sys.argv = ['cli', '--compiles', '1', '--turns', '1', '--json', {str(part)!r}]\n"
        "cli.main()\n"
    )
    assert run_to_end([sys.executable, "-c", code]) == 0
    failure, measurements = read_part(part, 0)
    assert not failure
    assert "missed" in {m.conclude().word for m in measurements}


def test_a_kept_file_that_nobody_can_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unreadable = {**asdict(result("logs")), "measurements": [{"seconds": 1.0}]}
    (tmp_path / "logs.json").write_text(json.dumps(unreadable))
    assert read_results(tmp_path) == {}
    assert "logs.json cannot be read: KeyError: 'ours'" in capsys.readouterr().err


def test_an_interruption_lets_the_benchmark_end_what_it_started(tmp_path: Path) -> None:
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    code = f"""
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path({str(ended)!r}).touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
pathlib.Path({str(ready)!r}).touch()
time.sleep(60)
"""

    def interrupt(*_: object) -> None:
        if not ready.exists():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        run_to_end([sys.executable, "-c", code])
    signal.signal(signal.SIGALRM, before)
    assert ended.exists()


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    # An option that is unknown to it: it fails at once, and that is what is kept.
    places = Places(tmp_path / "results", tmp_path)
    made = run_bench("logs", places, "abc", ["--no-such-option"])
    assert made.failure == "exit code 2"
    assert read_results(places.results) == {"logs": made}


@pytest.mark.parametrize("bench", BENCHES)
def test_a_benchmark_takes_json_and_says_what_it_measures(bench: str) -> None:
    command = [sys.executable, "-m", f"bench.{bench}", "--help"]
    done = subprocess.run(command, cwd=peers.ROOT, capture_output=True, text=True, check=True)
    assert f"usage: python -m bench.{bench} " in done.stdout
    assert "--json JSON" in done.stdout


# --- peers ----------------------------------------------------------------------------------------


def test_tlparse_is_looked_for_where_make_puts_it_then_beside_python_then_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, own, path = (tmp_path / name for name in ("root/.venv/peers/bin", "own", "path"))
    monkeypatch.setattr(peers, "ROOT", tmp_path / "root")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nowhere"))
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", str(path))
    for folder in (made, own, path):
        folder.mkdir(parents=True)
        (folder / "tlparse").touch(mode=0o755)
    for folder in (made, own, path):
        assert peers.find_tlparse() == str(folder / "tlparse")
        shutil.rmtree(folder)
    assert peers.find_tlparse() is None


# --- the page -------------------------------------------------------------------------------------


def test_the_page_says_what_was_measured_where_and_what_follows() -> None:
    page = render(BENCHES, {"logs": result("logs"), "cli": result("cli", failure="exit code 3")})
    assert "commit abc; torch " in page
    assert "| trace, 2 cores: time | 1.00 s | tlparse: exit code 101 |" in page
    assert str(READING.conclude()) in page
    assert "**Failed**: exit code 3" in page
    assert "Not measured yet." in page
    assert str(Path.home()) not in page
    assert os.uname().nodename not in page


def test_a_goal_counts_once_and_what_has_none_does_not_count() -> None:
    met = Measurement("reading", "s", (1.0,), 2.0)
    elsewhere = replace(met, counts=False)
    without = Measurement("size", "MB", (None,), why_failed="no page")
    found = replace(result("logs"), measurements=[met, elsewhere, without])
    page = render(BENCHES, {"logs": found})
    assert "Goals: 1 met, 0 missed, 0 not concluded." in page
    assert "| 2.00 s | **met** (counts elsewhere) |" in page


def test_what_is_not_as_it_was_measured_is_said_and_so_is_a_failure_without_a_goal() -> None:
    failed = Measurement("size", "MB", (None,), why_failed="no page")
    found = replace(result("logs"), measurements=[failed], remark="Figures are rounded.")
    page = render(BENCHES, {"logs": found})
    assert "**Figures are rounded.**" in page
    assert "| size | failed |  |  |  | ours failed: no page |" in page


def test_the_page_in_the_documentation_is_that_of_the_results_that_are_kept() -> None:
    """`python -m bench --summary` writes it anew."""
    results = read_results(Places.results)
    assert results
    assert DOCUMENT.read_text() == render(BENCHES, results)
