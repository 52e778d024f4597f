"""A sample of the programs whose truth is known comes out right; `make cases` runs all scripts.

The sample of the stored scripts changes with the date, so that all of them are run in time:
INDUCTOSCOPE_SAMPLE_DATE=2026-11-16 brings a day's sample back.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from battery.fault import Fault
from battery.generate import generate
from battery.judge import judge
from battery.table import list_misses
from battery.trial import run_doctor

from support.programs import ONE_PROOF
from support.samples import stored_sample

pytestmark = pytest.mark.usefixtures("python_as_it_is")

# Quick ones, each of a kind that no test beside this file has; all of them are `make battery`.
SAMPLE = ("lowering-cumsum-crash", "healthy-honest-nan")
GENERATED = [fault for fault in generate(0) if fault.name in SAMPLE]


@pytest.mark.spread
@pytest.mark.parametrize("fault", GENERATED, ids=lambda fault: fault.name)
def test_the_doctor_is_right_about_a_sample_of_the_battery(
    fault: Fault, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_is_right(fault, tmp_path_factory)


@pytest.mark.spread
@pytest.mark.usefixtures("bugs_of_torch")
@pytest.mark.parametrize("fault", stored_sample(), ids=lambda fault: fault.name)
def test_the_doctor_is_right_about_the_scripts_of_the_day(
    fault: Fault, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_is_right(fault, tmp_path_factory)


def assert_is_right(fault: Fault, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.getbasetemp() / "battery-cache"
    folder: Path = tmp_path_factory.mktemp(fault.folder)
    outcome, verdict = run_doctor(fault, folder, cache, 300, ("--no-workaround", *ONE_PROOF))
    result = judge(fault, verdict, outcome.seconds, outcome.output[-2000:])
    assert result.named, list_misses([result])
    assert result.verified or not result.provable
    assert outcome.exit_code == (0 if fault.healthy else 1)
