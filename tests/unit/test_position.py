"""Where a process is, by what it has written."""

from __future__ import annotations

from inductoscope.model.fold import load
from inductoscope.model.process_position import ProcessPosition
from inductoscope.recording.events import (
    EagerReturned,
    Event,
    GraphCall,
    GraphReturned,
    ProcessEnd,
    ProcessStart,
    StageEnd,
    StageStart,
)
from support.examples import entries, write_recording

NEW = ProcessStart(pid=1, names_threads=True)
OLD = ProcessStart(pid=1)


def start(stage: str, thread: int = 0, **more: str) -> StageStart:
    return StageStart(stage=stage, thread=thread, **more)  # type: ignore[arg-type]


def end(stage: str, thread: int = 0, **more: str) -> StageEnd:
    return StageEnd(stage=stage, thread=thread, seconds=1.0, **more)  # type: ignore[arg-type]


def position(*events: Event) -> ProcessPosition:
    found = ProcessPosition()
    for entry in entries(*events):
        found.take(entry)
    return found


def open_stages(*events: Event) -> list[str]:
    return [entry.event.stage for entry in position(*events).stages.all]


def test_stages_nest() -> None:
    events = [NEW, start("dynamo"), start("aot"), start("lowering"), end("lowering")]
    assert open_stages(*events) == ["dynamo", "aot"]
    assert open_stages(*events, end("aot"), end("dynamo")) == []


def test_two_threads_that_take_turns_are_told_apart() -> None:
    main = [start("dynamo", compile="0/0"), start("lowering", compile="0/0")]
    other = [start("inductor", 7, compile="0/0"), start("lowering", 7, compile="0/0")]
    events = [NEW, main[0], other[0], main[1], other[1]]
    assert open_stages(*events, end("lowering")) == ["dynamo", "inductor", "lowering"]
    assert open_stages(*events, end("lowering", 7)) == ["dynamo", "inductor", "lowering"]
    # The end of the outer stage on one thread leaves the other thread's alone.
    assert open_stages(*events, end("dynamo")) == ["inductor", "lowering"]
    assert open_stages(*events, end("inductor", 7)) == ["dynamo", "lowering"]
    left = position(*events, end("lowering")).stages.all
    assert [(entry.event.stage, entry.event.thread) for entry in left] == [
        ("dynamo", 0),
        ("inductor", 7),
        ("lowering", 7),
    ]


def test_a_stage_that_an_exception_left_unseen_ends_with_the_one_around_it() -> None:
    assert open_stages(NEW, start("dynamo"), start("aot"), end("dynamo")) == []


def test_old_recordings_do_not_name_threads_and_are_matched_by_what_they_say() -> None:
    forward, backward = {"graph": "0/0 forward"}, {"graph": "0/0 backward"}
    events = [
        OLD,
        start("inductor", **forward),
        start("inductor", **backward),
        start("lowering", **forward),
    ]
    assert open_stages(*events, end("inductor", **forward)) == ["inductor"]
    assert open_stages(*events, end("inductor", **backward)) == ["inductor", "lowering"]
    assert open_stages(*events, end("inductor", graph="?")) == ["inductor", "lowering"]


def test_a_wait_for_a_compiler_may_turn_out_to_be_one_for_another() -> None:
    assert open_stages(NEW, start("wrapper"), start("cpp-compile"), end("triton-compile")) == [
        "wrapper"
    ]


def test_an_end_without_a_beginning_ends_nothing() -> None:
    assert open_stages(NEW, start("dynamo"), end("lowering")) == ["dynamo"]


def test_a_process_that_has_ended_is_nowhere() -> None:
    found = position(NEW, start("dynamo"), GraphCall(compile="0/0", call=1), ProcessEnd(dropped=0))
    assert found.has_ended
    assert not found.stages
    assert found.call is None


def test_a_call_of_a_compiled_graph() -> None:
    call = GraphCall(compile="0/0", call=1)
    found = position(NEW, call, EagerReturned(seconds=0.5))
    assert (found.call, found.eager_seconds) == (call, 0.5)
    found = position(NEW, call, EagerReturned(seconds=0.5), GraphReturned(compile="0/0", call=1))
    assert (found.call, found.eager_seconds) == (None, None)


def test_the_model_says_where_each_thread_was(tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = write_recording(
        tmp_path / "r",
        {"kind": "process", "pid": 1, "names_threads": True},
        {"kind": "stage-start", "stage": "dynamo", "compile": "1/0"},
        {"kind": "stage-start", "stage": "inductor", "compile": "0/0", "thread": 7},
        {"kind": "stage-start", "stage": "lowering", "compile": "0/0", "thread": 7},
        {"kind": "stage", "stage": "dynamo", "compile": "1/0", "seconds": 1.0},
    )
    (process,) = load(folder).processes
    assert [stage.stage for stage in process.unfinished] == ["inductor", "lowering"]
