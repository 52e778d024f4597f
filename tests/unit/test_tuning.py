"""Choices of autotuning on an H200, and when a search pays."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.model.fold import load
from inductoscope.profiling.autotuning import WITHOUT_TUNING, TuningResult, searches_of
from inductoscope.profiling.statistics import Sample, compare
from inductoscope.profiling.turns import BASE, SettingTrial, SettingTrials
from inductoscope.views.report.setting_trials import print_tuning, tuning_view
from inductoscope.views.report.terminal import Printer
from support.examples import stored

SEARCHES = searches_of(load(stored("h200_autotune")))


def in_program(with_: float, without: float) -> SettingTrials:
    """Five runs of each, with the milliseconds of a compiled call."""
    base, other = (
        Sample(tuple(value * 1e-3 * (1 + n / 1000) for n in range(5))) for value in (with_, without)
    )
    tried = SettingTrial(WITHOUT_TUNING, other, compare(base, other), 5)
    return SettingTrials(SettingTrial(BASE, base, None, 5), (tried,), (("function", "f", 9),))


def told(result: TuningResult) -> str:
    """The text for the user."""
    out = io.StringIO()
    view = tuning_view(result, ["bench.py"], "recording", 5)
    json.dumps(view, allow_nan=False)
    print_tuning(Printer(out), view)
    return " ".join(out.getvalue().split())


def test_a_search_recorded_on_a_gpu() -> None:
    (found,) = SEARCHES.operations
    assert (found.tuned.operation, found.tuned.winner) == ("mm", "triton_mm_14")
    assert found.tuned.library is not None
    assert found.tuned.library.name == "mm"
    assert found.tuned.gain == pytest.approx(0.0552 / (found.tuned.timed[0].milliseconds or 1))
    assert SEARCHES.were_made


def test_a_search_that_pays(snapshot: SnapshotAssertion) -> None:
    text = told(replace(SEARCHES, trials=in_program(1.0, 1.5)))
    assert text == snapshot


def test_a_search_that_makes_the_program_slower_is_called_that() -> None:
    result = replace(SEARCHES, trials=in_program(1.5, 1.0))
    assert result.pays_after is None
    assert "Autotuning makes it slower, by 501.0 µs per call" in told(result)


def test_noise_is_no_gain() -> None:
    result = replace(SEARCHES, trials=in_program(1.0, 1.0005))
    assert (result.gain, result.pays_after) == (None, None)
    assert "No difference can be shown." in told(result)


def test_a_program_that_does_not_autotune() -> None:
    searches = searches_of(load(stored("training_step")))
    assert not searches.were_made
    assert searches.graphs
    assert told(searches).startswith("The program does not autotune")


def test_a_program_that_compiles_nothing_is_not_said_to_lack_tuning() -> None:
    text = told(TuningResult((), 0.0))
    assert text.startswith("Nothing was compiled")
    assert "does not autotune" not in text


def test_a_comparison_that_was_not_made_is_no_lack_of_difference(
    snapshot: SnapshotAssertion,
) -> None:
    found = in_program(1.0, 1.5)
    why = "it could not be applied: AttributeError: no such setting"
    tried = replace(found.trials[0], comparison=None, note=why)
    text = told(replace(SEARCHES, trials=replace(found, trials=(tried,))))
    assert why in text
    assert text == snapshot
    assert "No difference" not in text
