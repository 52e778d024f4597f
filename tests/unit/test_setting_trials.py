"""`profile --try`: settings as typed, and what is said of them. No torch."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.profiling.timings import CallTimes, ProcessTimes
from inductoscope.profiling.turns import (
    BASE,
    ProgramRuns,
    TimedRun,
    Variant,
    VariantRuns,
    read_setting,
    try_settings,
    variants_of,
)
from inductoscope.views.report.setting_trials import trials_view
from support.json_schema import violations

KNOWN = {
    "max_autotune": {"default": False},
    "freezing": {"default": False},
    "cpp.simdlen": {"default": None},
    "cpp.min_chunk_size": {"default": 512},
    "post_grad_custom_pre_pass": {"type": "function"},
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max_autotune", ("max_autotune", True)),
        ("freezing=False", ("freezing", False)),
        ("cpp.simdlen=1", ("cpp.simdlen", 1)),
        ("cpp.simdlen=None", ("cpp.simdlen", None)),
        ("torch._inductor.config.max_autotune=true", ("max_autotune", True)),
    ],
)
def test_a_setting_is_read_as_a_user_types_it(text: str, found: tuple[str, object]) -> None:
    assert read_setting(text, KNOWN) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_autotun", "has no setting 'max_autotun'. Did you mean 'max_autotune'?"),
        ("simdlen=1", "Did you mean 'cpp.simdlen'?"),
        ("cpp.simdlen", "needs a value"),
        ("freezing=2", "True or False"),
        ("cpp.min_chunk_size=many", "a number"),
        ("post_grad_custom_pre_pass=1", "cannot be typed here"),
    ],
)
def test_a_setting_that_torch_does_not_have_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace(".", r"\.").replace("?", r"\?")):
        read_setting(text, KNOWN)


def test_several_settings_can_be_tried_together() -> None:
    (both,) = variants_of(["freezing,cpp.simdlen=1"], KNOWN)
    assert both.settings == {"freezing": True, "cpp.simdlen": 1}


def runs_of(variant: Variant, *nanoseconds: int, settings: dict[str, str]) -> VariantRuns:
    def run(duration: int) -> TimedRun:
        calls = (CallTimes("f", "function", count=4, sample=(duration,) * 4),)
        return TimedRun(0, 1.0, (ProcessTimes(1, calls, settings=settings),))

    return VariantRuns(variant, tuple(map(run, nanoseconds)))


def test_only_what_is_beyond_noise_is_called_faster(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    base = runs_of(BASE, 1000, 1010, 990, 1020, 1005, settings={})
    faster = Variant("freezing", {"freezing": True})
    same = Variant("max_autotune", {"max_autotune": True})
    ignored = Variant("cpp.simdlen=1", {"cpp.simdlen": 1})
    done = (
        base,
        runs_of(faster, 500, 510, 505, 495, 490, settings={"freezing": "True"}),
        runs_of(same, 1001, 1011, 992, 1019, 1003, settings={"max_autotune": "True"}),
        runs_of(ignored, 1001, 1011, 992, 1019, 1003, settings={"cpp.simdlen": "None"}),
        VariantRuns(Variant("broken"), (TimedRun(1, 1.0, (), "ValueError: no"),)),
    )
    monkeypatch.setattr(ProgramRuns, "in_turns", lambda *given, **more: done)
    found = try_settings(ProgramRuns([], Path(), print), [])
    verdicts = [t.comparison.verdict if t.comparison else "" for t in found.trials]
    assert verdicts == ["faster", "no difference", "no difference", ""]
    assert found.trials[0].seconds.median == pytest.approx(500e-9)
    assert found.trials[2].note == snapshot
    assert found.trials[3].note == snapshot
    view = {"schema": 1, **trials_view(found, ["python", "a.py"], 5)}
    assert violations("profile", json.loads(json.dumps(view))) == []


def test_a_program_that_fails_as_it_is_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = VariantRuns(BASE, (TimedRun(None, 9.0, ()),))
    monkeypatch.setattr(ProgramRuns, "in_turns", lambda *given, **more: (broken,))
    with pytest.raises(ToolFailure, match=r"the program did not end in time\. Give it more"):
        try_settings(ProgramRuns([], Path(), print), [])


def test_runs_of_a_setting_are_not_compared_if_the_program_fails_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, tried = (runs_of(v, 1000, settings={}) for v in (BASE, Variant("x = 1")))
    failed = TimedRun(1, 1.0, (), "ValueError: no")
    done = (replace(base, runs=(*base.runs, failed)), tried)
    monkeypatch.setattr(ProgramRuns, "in_turns", lambda *given, **more: done)
    found = try_settings(ProgramRuns([], Path(), print), [tried.variant])
    assert found.base.note == "the program ended with exit code 1: ValueError: no"
    (trial,) = found.trials
    assert trial.note == "it is not compared, because the program fails as it is"


def test_a_run_is_ended_when_its_time_is_up_and_keeps_its_last_words(tmp_path: Path) -> None:
    script = "import time; print('begun', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", script]
    run = ProgramRuns(command, tmp_path, print, seconds=2.0).run_once(Variant("x"))
    assert (run.exit_code, run.output, run.calls) == (None, "begun", ())


def test_a_setting_that_could_not_be_applied_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    """Its runs are those of the program as it is: that they are as fast says nothing of it."""
    base, tried = (runs_of(v, *[1000] * 5, settings={}) for v in (BASE, Variant("x = 1")))
    failed = tuple(
        replace(run, processes=tuple(replace(p, not_applied="no such x") for p in run.processes))
        for run in tried.runs
    )
    done = (base, replace(tried, runs=failed))
    monkeypatch.setattr(ProgramRuns, "in_turns", lambda *args, **kwargs: done)
    found = try_settings(ProgramRuns([], Path(), print), [tried.variant])
    (trial,) = found.trials
    assert trial.comparison is None
    assert trial.note == snapshot
