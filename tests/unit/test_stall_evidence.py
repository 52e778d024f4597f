"""Evidence that is better than time: idle compilers, and rounds that never end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inductoscope.hangs.watch.scene import StallDiagnosis
from inductoscope.hangs.watch.stall import (
    MOST_ROUNDS,
    Stillness,
    is_stuck_by_itself,
    patience_of_doctor,
    patience_of_run,
    sooner,
)
from inductoscope.model.process_position import ProcessPosition
from inductoscope.processes.tree import ProcessSample, Tree
from inductoscope.recording.events import Entry, FusionRound, StageStart, TracingContinues
from inductoscope.torch_facts import stages

DOCTOR = patience_of_doctor(60.0)
PROGRAM = ProcessSample(
    pid=7,
    parent=1,
    group=7,
    name="python",
    command=("python", "train.py"),
    state="S",
    threads=4,
    cpu_seconds=10.0,
    memory=1 << 30,
    faults=0,
    started=100.0,
    age=50.0,
)
COMPILER = replace(PROGRAM, pid=8, parent=7, name="cc1plus", command=("cc1plus",), cpu_seconds=2.0)


def position_in(stage: str, rounds: int = 0) -> ProcessPosition:
    found = ProcessPosition()
    found.take(Entry("", 0, 0.0, StageStart(stage=stage)))
    for number in range(1, rounds + 1):
        done = FusionRound(round=number, before=3, after=3, seconds=0.1)
        found.take(Entry("", 0, 0.0, done))
    return found


def stillness(*trees: Tree) -> Stillness:
    found = Stillness()
    for tree in trees:
        found.look(tree)
    return found


def over(seconds: int, *processes: ProcessSample) -> list[Tree]:
    return [Tree(float(time), processes) for time in range(seconds + 1)]


ASLEEP = over(16, PROGRAM, COMPILER)


def test_a_compiler_that_sleeps_is_believed_to_hang_sooner() -> None:
    found = sooner(60.0, position_in(stages.CPP_COMPILE), stillness(*ASLEEP), DOCTOR)
    assert found == 20.0


@pytest.mark.parametrize(
    "last",
    [
        Tree(16.0, (PROGRAM, replace(COMPILER, cpu_seconds=2.1))),
        Tree(16.0, (PROGRAM, replace(COMPILER, state="R"))),
        Tree(16.0, (PROGRAM, replace(COMPILER, state="D"))),
        Tree(16.0, (PROGRAM, replace(COMPILER, pid=9))),
        Tree(16.0, (PROGRAM,)),
    ],
    ids=["works", "waits for the processor", "for the disk", "is another one", "has ended"],
)
def test_one_that_is_only_slow_is_not(last: Tree) -> None:
    still = stillness(*ASLEEP[:-1], last)
    assert sooner(60.0, position_in(stages.CPP_COMPILE), still, DOCTOR) == 60.0


def test_what_sleeps_outside_a_native_compile_gets_its_time() -> None:
    """A pass may wait for anything."""
    found = sooner(60.0, position_in(stages.POST_GRAD_PASS), stillness(*ASLEEP), DOCTOR)
    assert found == 60.0


def test_not_before_it_slept_for_long() -> None:
    still = stillness(*ASLEEP[:10])
    assert sooner(60.0, position_in(stages.CPP_COMPILE), still, DOCTOR) == 60.0


def test_run_reports_no_sooner() -> None:
    still = stillness(*ASLEEP)
    assert sooner(180.0, position_in(stages.CPP_COMPILE), still, patience_of_run(None)) == 180.0


def test_more_rounds_of_fusion_than_torch_makes_are_a_loop() -> None:
    ends, loops = (position_in(stages.SCHEDULER, n) for n in (MOST_ROUNDS, MOST_ROUNDS + 1))
    assert sooner(60.0, ends, Stillness(), DOCTOR) == 60.0
    assert sooner(60.0, loops, Stillness(), DOCTOR) == 2.0


def test_the_rounds_of_the_next_graph_are_counted_anew() -> None:
    position = position_in(stages.SCHEDULER, MOST_ROUNDS + 1)
    position.take(Entry("", 0, 0.0, StageStart(stage=stages.SCHEDULER)))
    assert position.rounds == 0


@pytest.mark.parametrize(
    ("seconds", "limit"), [(10.0, 60.0), (100.0, 100.0), (1000.0, 300.0)], ids=str
)
def test_a_large_compile_may_be_silent_for_as_long_as_it_took_to_get_there(
    seconds: float, limit: float
) -> None:
    """Within reason; if someone says how long, it is that long."""
    position = position_in(stages.DYNAMO)
    position.take(Entry("", 1, seconds, StageStart(stage=stages.AOT)))
    assert DOCTOR.limit(position) == limit
    assert patience_of_run(60.0).limit(position) == 60.0


def test_what_is_no_progress_does_not_make_a_compile_large() -> None:
    position = position_in(stages.SCHEDULER)
    position.take(Entry("", 1, 200.0, FusionRound(round=1, before=3, after=3, seconds=0.1)))
    assert DOCTOR.limit(position) == 60.0
    position.take(Entry("", 2, 200.0, TracingContinues()))
    assert DOCTOR.limit(position) == 200.0


@pytest.mark.parametrize(
    ("kind", "is_stuck"), [("cpp-compiler", True), ("file-lock", False), ("stopped", False)]
)
def test_what_waits_for_something_that_may_move_is_not_stuck(kind: str, is_stuck: bool) -> None:
    found = StallDiagnosis(kind, "title", stages.CPP_COMPILE, "proven", (), "advice")
    assert is_stuck_by_itself(found) is is_stuck
