"""Memory over time, advice and the cost of compiling, on the page and in the trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from syrupy.assertion import SnapshotAssertion

from inductoscope.model.fold import load
from inductoscope.recording.profile_file import ADVICE, COMPILE, MEMORY, profile_path
from inductoscope.views.export.perfetto import whole_trace
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.contract import MemoryCourse, PageTable
from support.examples import stored

PROFILES = Path(__file__).resolve().parents[1] / "data" / "profiles"
TRACED = PROFILES / "memory.json"


def rows(table: PageTable[Any]) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def recording_with(tmp_path: Path, kind: str, text: str) -> Path:
    folder = tmp_path / "recording"
    shutil.copytree(stored("training_step"), folder)
    profile_path(folder, kind).write_text(text)
    return folder


def alive_bytes(course: MemoryCourse) -> int:
    return sum(block["bytes"] for block in rows(course.alive)) + course.unknown


def test_memory_over_time_rises_to_the_peak_and_what_is_alive_there_adds_up(tmp_path: Path) -> None:
    contents = Contents(load(recording_with(tmp_path, MEMORY, TRACED.read_text("utf-8"))))
    assert contents.index.memory is not None
    (step,) = contents.chunks["memory"]().steps
    for course in (step.compiled, step.eager):
        points = rows(course.points)
        assert max(point["total"] for point in points) == course.peak
        at_peak = [point["seconds"] for point in points if point["total"] == course.peak]
        assert course.peak_seconds in at_peak
        assert alive_bytes(course) == course.peak
    saved = [b for b in rows(step.compiled.alive) if b["kind"] == "saved for backward"]
    assert {b["source"].rpartition("/")[2] for b in saved} == {"chain.py:5", "chain.py:6"}


def test_what_was_not_kept_is_counted_and_the_peak_is_a_point_all_the_same(tmp_path: Path) -> None:
    """The block that makes the peak may be one of the small ones that a profile leaves out."""
    view = json.loads(TRACED.read_text("utf-8"))
    (step,) = view["steps"]
    peak = step["peak_bytes"], step["peak_seconds"]
    step["events"] = [event for event in step["events"] if event["total"] != step["peak_bytes"]]
    step["left_out"] = {"blocks": 7, "bytes_at_peak": 4096}
    recording = load(recording_with(tmp_path, MEMORY, json.dumps(view)))
    (shown,) = Contents(recording).chunks["memory"]().steps
    points = rows(shown.compiled.points)
    assert [(p["total"], p["seconds"]) for p in points if p["total"] == peak[0]] == [peak]
    assert [p["seconds"] for p in points] == sorted(p["seconds"] for p in points)
    assert (shown.compiled.left_out, shown.compiled.left_out_bytes) == (7, 4096)
    counters = [e for e in whole_trace(recording)["traceEvents"] if e["ph"] == "C"]
    compiled = [e for e in counters if e["name"] == "f, cpu, compiled"]
    assert max(e["args"]["bytes"] for e in compiled) == peak[0]


def test_a_profile_without_steps_still_has_its_headline(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    view = {"headline": "No step was traced.", "steps": [], "notes": ["It never called it."]}
    contents = Contents(load(recording_with(tmp_path, MEMORY, json.dumps(view))))
    assert contents.index.memory is not None
    assert contents.index.memory.count == 0
    assert contents.chunks["memory"]().headline == snapshot


def test_the_trace_has_memory_as_counters_and_names_what_is_alive_at_the_peak(
    tmp_path: Path,
) -> None:
    view = json.loads(TRACED.read_text("utf-8"))
    trace = whole_trace(load(recording_with(tmp_path, MEMORY, json.dumps(view))))
    events = json.loads(json.dumps(trace))["traceEvents"]
    counters: dict[str, list[int]] = {}
    for event in events:
        if event["ph"] == "C":
            assert event["ts"] >= 0
            counters.setdefault(event["name"], []).append(event["args"]["bytes"])
    (step,) = view["steps"]
    peaks = {name: max(values) for name, values in counters.items()}
    assert peaks == {
        "f, cpu, compiled": step["peak_bytes"],
        "f, cpu, in eager": step["eager"]["peak_bytes"],
    }
    marks = [event for event in events if event["ph"] == "i"]
    assert [mark["name"].partition(":")[0] for mark in marks] == [f"peak of {n}" for n in peaks]
    assert any("saved for backward · buf0 · sin" in line for line in marks[0]["args"]["alive"])
    # A process of its own, with a name.
    (process,) = {event["pid"] for event in events if event["ph"] == "C"}
    named = [e for e in events if e["name"] == "process_name" and e["pid"] == process]
    assert len(named) == 1


def test_advice_is_as_it_was_measured(tmp_path: Path) -> None:
    view = json.loads((PROFILES / "advice.json").read_text("utf-8"))
    contents = Contents(load(recording_with(tmp_path, ADVICE, json.dumps(view))))
    advice = contents.chunks["advice"]()
    assert contents.index.advice is not None
    assert contents.index.advice.count == len(advice.changes) == len(view["advice"])
    assert advice.ratio == view["base"]["ratio_to_eager"]
    for change, tried in zip(advice.changes, view["advice"], strict=True):
        assert (change.saved, change.predicted) == (
            tried["seconds_saved"],
            tried["seconds_predicted"],
        )
        assert (change.why, change.how, change.helps) == (tried["why"], tried["how"], True)


def test_changes_that_were_only_warned_of_do_not_count_as_tried(tmp_path: Path) -> None:
    view = json.loads((PROFILES / "advice.json").read_text("utf-8"))
    (first, *_) = view["advice"]
    warned = {**first, "helps": False, "warning": "It skips guards, so results may be wrong."}
    view["without_effect"] = [*view["without_effect"], warned]
    contents = Contents(load(recording_with(tmp_path, ADVICE, json.dumps(view))))
    assert contents.index.advice is not None
    tried = [*view["advice"], *view["without_effect"][:-1]]
    assert contents.index.advice.count == len(tried)
    assert [change.warning for change in contents.chunks["advice"]().changes][-1] == warned[
        "warning"
    ]


def test_the_cost_of_compiling_a_real_program_is_shown_by_stage() -> None:
    costs = Contents(load(stored("profiled_layers"))).chunks["costs"]()
    own = [stage.own for stage in costs.stages]
    assert own == sorted(own, reverse=True)
    assert costs.stages[0].stage in costs.headline
    assert 0 < sum(own) <= costs.cold * 1.05
    assert costs.warm is not None
    assert sum(stage.warm or 0.0 for stage in costs.stages) <= costs.warm * 1.05


def test_what_is_damaged_is_left_out(tmp_path: Path) -> None:
    nothing = Contents(load(stored("training_step"))).index
    assert (nothing.memory, nothing.advice, nothing.costs) == (None, None, None)
    harmed = {"steps": [{"events": [None, {"total": "x"}], "blocks": 7, "eager": []}, 3]}
    contents = Contents(load(recording_with(tmp_path, MEMORY, json.dumps(harmed))))
    (step,) = contents.chunks["memory"]().steps
    assert (rows(step.compiled.points), step.eager) == ([{"seconds": 0.0, "total": 0}], None)
    folder = Path(contents.index.recording)
    profile_path(folder, ADVICE).write_text("{")
    profile_path(folder, COMPILE).write_text('{"cold": {"stages": [{"stage": 1}]}, "warm": 3}')
    again = Contents(load(folder))
    assert again.index.advice is None
    (stage,) = again.chunks["costs"]().stages
    assert (stage.stage, stage.own, stage.warm) == ("1", 0.0, None)
