"""Long `make` targets have to start: every script that it calls says what it does."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from bench.results import BENCHES

ROOT = Path(__file__).resolve().parents[2]
_CALLED = re.compile(r"\$\(BIN\)/python (-m )?((?:bench|battery)\S*)")
SCRIPTS = sorted(set(_CALLED.findall((ROOT / "Makefile").read_text())))


def test_the_makefile_calls_benchmarks_and_batteries() -> None:
    assert len(SCRIPTS) >= 9


def test_every_benchmark_has_a_target() -> None:
    (listed,) = re.findall(r"^BENCHES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tuple(listed.split()) == BENCHES


@pytest.mark.parametrize(("module", "name"), SCRIPTS, ids=[name for _, name in SCRIPTS])
def test_a_script_that_make_calls_starts(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.syspath_prepend(str(ROOT))
    run, what = (runpy.run_module, name) if module else (runpy.run_path, str(ROOT / name))
    with pytest.raises(SystemExit) as ended:
        run(what, run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


@pytest.mark.parametrize("folder", ["bench/programs", "bench/slow/programs"])
def test_nothing_beside_a_program_hides_a_module_of_python(folder: str) -> None:
    """A script's folder comes first on its path: a profile.py in it broke every import of torch."""
    names = {path.stem for path in (ROOT / folder).glob("*.py")}
    assert names
    assert not names & sys.stdlib_module_names
