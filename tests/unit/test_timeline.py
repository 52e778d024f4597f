"""The timeline: when each process was in which stage, folded from the times of events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inductoscope.model.fold import load
from inductoscope.model.timeline import Span, Timeline, timeline
from support.examples import NAMES, stored, write_recording

every_recording = pytest.mark.parametrize("name", NAMES)


def of(name: str) -> Timeline:
    return timeline(load(stored(name)))


def stages(found: Timeline, lane: int) -> list[tuple[int, str]]:
    return [(span.depth, span.stage) for span in found.spans if span.lane == lane]


@every_recording
def test_spans_of_a_lane_nest_or_follow_each_other(name: str) -> None:
    found = of(name)
    for lane in range(len(found.lanes)):
        under_way: list[Span] = []
        for span in (span for span in found.spans if span.lane == lane):
            del under_way[span.depth :]
            assert len(under_way) == span.depth
            if under_way:
                outer = under_way[-1]
                assert outer.start <= span.start <= span.end <= outer.end
            under_way.append(span)


@every_recording
def test_everything_lies_within_the_run(name: str) -> None:
    found = of(name)
    assert all(0 <= span.start <= span.end <= found.seconds + 1e-6 for span in found.spans)
    assert {span.lane for span in found.spans} <= set(range(len(found.lanes)))


def test_stages_of_a_training_step_are_where_they_ran() -> None:
    found = of("training_step")
    assert [lane.kind for lane in found.lanes] == ["launcher", "program", "compiler", "compiler"]
    own = stages(found, 1)
    assert own[:3] == [(0, "compile"), (1, "dynamo"), (2, "aot")]
    # The backward graph is compiled when it is first needed: no Dynamo around it.
    assert (0, "inductor") in own
    backward = next(span for span in found.spans if span.graph == "0/0 backward")
    assert (backward.stage, backward.finished) == ("inductor", True)
    labels = [span.label for span in found.spans]
    assert "pass remove_noop_ops" in labels
    assert "fusion round 2" in labels


def test_compilers_that_run_at_the_same_time_have_lanes_of_their_own() -> None:
    found = of("h200_autotune")
    choices = [span for span in found.spans if span.label.startswith("choice ")]
    assert len(choices) == 20
    for choice in choices:
        inside = [
            span
            for span in found.spans
            if span.lane == choice.lane and choice.start <= span.start and span.end <= choice.end
        ]
        assert [span.stage for span in inside] == ["autotune", "triton-compile"]


def test_what_never_ended_lasts_until_the_process_was_seen_to_exit() -> None:
    found = of("killed_while_lowering")
    unfinished = [span for span in found.spans if not span.finished]
    assert [span.stage for span in unfinished] == [
        "compile", "dynamo", "aot", "inductor", "lowering",
    ]  # fmt: skip
    assert {span.end for span in unfinished} == {unfinished[0].end}
    assert unfinished[0].end == pytest.approx(found.seconds, abs=0.01)
    assert "5 spans never ended" in found.notes[0]


def written(folder: Path, *events: dict[str, Any]) -> Timeline:
    return timeline(load(write_recording(folder, {"kind": "process", "t": 1.0}, *events)))


def start(stage: str, time: float, **more: str) -> dict[str, Any]:
    return {"kind": "stage-start", "stage": stage, "t": time, **more}


def end(stage: str, time: float, **more: str) -> dict[str, Any]:
    return {"kind": "stage", "stage": stage, "t": time, **more}


def test_stages_that_overlap_cannot_be_of_one_thread(tmp_path: Path) -> None:
    found = written(
        tmp_path / "r",
        start("inductor", 2.0, graph="0/0 forward"),
        start("inductor", 3.0, graph="0/0 backward"),
        end("inductor", 4.0, graph="0/0 forward"),
        end("inductor", 5.0, graph="0/0 backward"),
    )
    assert [lane.name for lane in found.lanes] == ["program (pid ?)", "program (pid ?), thread 2"]
    assert [(s.lane, s.start, s.seconds) for s in found.spans] == [(0, 1.0, 2.0), (1, 2.0, 2.0)]


def test_a_stage_that_turns_out_to_be_another_one_ends(tmp_path: Path) -> None:
    found = written(tmp_path / "r", start("cpp-compile", 2.0), end("triton-compile", 3.0))
    assert [(s.stage, s.finished) for s in found.spans] == [("cpp-compile", True)]


def test_ends_without_a_beginning_and_events_without_a_time_are_left_out(tmp_path: Path) -> None:
    found = written(
        tmp_path / "r",
        end("lowering", 2.0),
        {"kind": "stage-start", "stage": "aot", "t": "yesterday"},
        {"kind": "native", "source": "x.cpp", "seconds": 3, "t": 3.0},
        start("dynamo", 4.0),
        end("dynamo", 3.5),
    )
    assert [(s.stage, s.seconds) for s in found.spans] == [("dynamo", 0.0)]
    assert found.notes == ("1-1: left out 2 ends without a beginning",)


def test_a_recording_with_nothing_in_it_has_an_empty_timeline(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    assert timeline(load(tmp_path)) == Timeline(0.0, 0.0, (), ())
