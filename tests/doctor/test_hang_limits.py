"""When a fork hangs: by what healthy work takes, not by a fixed time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from inductoscope.inside.observe import enter_stage, leave_stage
from inductoscope.inside.search.forks import Forks, RunningFork
from inductoscope.inside.search.hang_limits import ForkProgress, HangPatience
from inductoscope.torch_facts import stages
from support.waiting import wait_until

AGES = 120.0
SPIN = ("sh", "-c", "while :; do :; done")


def progress_of(*reports: tuple[float, float, str, str]) -> ForkProgress:
    """A fork that began at 0 and has reported: time, processor time, kind and stage."""
    found = ForkProgress(0.0)
    for at, used, kind, stage in reports:
        line = {"kind": kind, "t": at, "cpu": used, "stage": stage, "thread": 1}
        found.take(line)
    return found


BEGINS, ENDS = "stage-start", "stage"
IN_LOWERING = (
    (0.1, 0.1, BEGINS, stages.DYNAMO),
    (0.5, 0.4, BEGINS, stages.AOT),
    (0.9, 0.7, BEGINS, stages.LOWERING),
)


@pytest.fixture
def patience() -> HangPatience:
    return HangPatience(stages.LOWERING)


# --- how long -------------------------------------------------------------------------------------


def test_several_times_as_long_as_it_took_for_anything_so_far(patience: HangPatience) -> None:
    assert patience.limit(progress_of(*IN_LOWERING)) == 1.0, "but never less than this"
    slow = progress_of(*IN_LOWERING[:2], (60.0, 20.4, BEGINS, stages.LOWERING))
    assert patience.limit(slow) == pytest.approx(60.0), "of the processor, not of the clock"


def test_as_long_as_those_needed_that_ended(patience: HangPatience) -> None:
    patience.learn(progress_of(*IN_LOWERING, (9.0, 5.7, ENDS, stages.LOWERING)))
    assert patience.limit(progress_of(*IN_LOWERING)) == pytest.approx(15.0)


def test_longer_where_the_program_did_not_hang(patience: HangPatience) -> None:
    """The first fork does things that no other one has shown to take long."""
    assert patience.limit(progress_of(*IN_LOWERING[:2])) == pytest.approx(4.0)


def test_longer_where_it_counts(patience: HangPatience) -> None:
    with patience.to_be_sure():
        assert patience.limit(progress_of(*IN_LOWERING)) == pytest.approx(2.5)
    assert patience.limit(progress_of(*IN_LOWERING)) == 1.0


def test_a_native_compiler_may_take_what_one_took_that_ended() -> None:
    patience = HangPatience(stages.CPP_COMPILE)
    compiles = progress_of(*IN_LOWERING, (1.0, 0.8, BEGINS, stages.CPP_COMPILE))
    assert patience.limit(compiles) == 12.0, "as long as none was seen"
    begun = (0.1, 0.1, BEGINS, stages.CPP_COMPILE)
    patience.learn(progress_of(begun, (2.1, 0.1, ENDS, stages.CPP_COMPILE)))
    assert patience.limit(compiles) == pytest.approx(4.0)


def test_a_compiled_call_may_take_a_few_times_what_eager_took(patience: HangPatience) -> None:
    called = progress_of((10.0, 9.0, BEGINS, stages.DYNAMO), (11.0, 10.0, ENDS, stages.DYNAMO))
    assert patience.limit(called) == pytest.approx(30.0)


def test_eager_is_not_what_hangs(patience: HangPatience) -> None:
    assert patience.limit(ForkProgress(0.0)) is None


# --- what is progress -----------------------------------------------------------------------------


def test_what_was_reported_before_is_no_progress() -> None:
    """A loop that enters the same stage again and again gets nowhere."""
    once = progress_of(*IN_LOWERING)
    again = progress_of(*IN_LOWERING, *((t, t, BEGINS, stages.LOWERING) for t in (2.0, 3.0, 4.0)))
    assert once.since == again.since == 0.9


def test_half_a_report_is_read_when_the_rest_comes() -> None:
    line = b'{"kind": "note", "t": 2.0, "cpu": 1.0, "node": "add"}\n'
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    fork = RunningFork(os.getpid(), 0.0, reading)
    with open(reading, "rb"), open(writing, "wb", buffering=0) as pipe:
        pipe.write(line[:20])
        assert not fork.read()
        assert fork.progress.since == 0.0
        pipe.write(line[20:])
        assert not fork.read()
        assert fork.progress.since == 2.0


# --- a process ------------------------------------------------------------------------------------


@contextlib.contextmanager
def group(*command: str) -> Iterator[int]:
    """A process in a group of its own, as every fork is."""
    child = subprocess.Popen(command, start_new_session=True)
    try:
        yield child.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def in_lowering_now() -> ForkProgress:
    now = time.monotonic()
    return progress_of((now, 0.0, BEGINS, stages.LOWERING))


def is_found(patience: HangPatience, pid: int, *others: ForkProgress, within: float) -> bool:
    found = in_lowering_now()
    return wait_until(lambda: patience.is_over(pid, found, others, time.monotonic()), within)


def test_one_that_spins_hangs_once_it_has_had_the_processor(patience: HangPatience) -> None:
    with group(*SPIN) as pid:
        assert is_found(patience, pid, within=AGES)


def test_one_that_sleeps_hangs_after_seconds(patience: HangPatience) -> None:
    with group("sleep", str(AGES)) as pid:
        assert is_found(patience, pid, within=AGES)


def test_one_that_may_wait_for_the_compiler_of_another_does_not_hang_yet() -> None:
    patience = HangPatience(stages.LOWERING, healthy={"python": 100.0})
    compiles = progress_of((0.1, 0.1, BEGINS, stages.CPP_COMPILE))
    with group("sleep", str(AGES)) as pid:
        assert not is_found(patience, pid, compiles, within=4.0)
        assert is_found(patience, pid, within=AGES), "alone it waits for nothing"


# --- forks ----------------------------------------------------------------------------------------


def staged(stage: str, work: Callable[[], object]) -> Callable[[], object]:
    def inside() -> object:
        token = enter_stage(stage)
        work()
        leave_stage(token)
        return "ended"

    return inside


def spin() -> None:
    while True:
        pass


def test_a_fork_that_gets_nowhere_is_ended_long_before_its_time(patience: HangPatience) -> None:
    forks = Forks(workers=2, seconds=AGES)
    forks.patience = patience
    stuck, well = forks.ask_all(
        [staged(stages.LOWERING, spin), staged(stages.LOWERING, lambda: time.sleep(0.5))]
    )
    assert (stuck.timed_out, stuck.is_stuck, well.result) == (True, True, "ended")
    assert stuck.last_stage is not None
    assert stuck.last_stage.event.stage == stages.LOWERING


def test_a_fork_that_is_slow_and_gets_on_is_left_alone(patience: HangPatience) -> None:
    """It takes far longer than the limit, but never for one thing."""

    def work() -> None:
        for number in range(12):
            until = time.process_time() + 0.3
            token = enter_stage(stages.LOWERING, detail=str(number))
            while time.process_time() < until:
                pass
            leave_stage(token)

    forks = Forks(workers=1, seconds=AGES)
    forks.patience = patience
    assert forks.ask(staged(stages.SCHEDULER, work)).result == "ended"
