"""Work in forks: what comes back, whatever the fork does to itself.

No work here calls into torch, so it does not matter which threads the test process has.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from inductoscope.inside.observe import enter_stage, leave_stage
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.forks import (
    ForkAnswer,
    Forks,
    RunningFork,
    answer_without_fork,
    is_late,
    is_ready,
)
from inductoscope.processes.status import cpu_seconds
from inductoscope.recording.events import Kernel, NativeEnd, StageEnd, StageStart
from support.examples import entries
from support.waiting import wait_until

# Long enough for a fork on a busy machine, and for a sleep that nobody waits for.
AGES = 120.0


@pytest.fixture
def forks() -> Forks:
    return Forks(workers=2, seconds=AGES)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if nobody has asked how."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def read_pid(path: Path) -> int:
    assert wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def write_pid(path: Path, pid: int) -> None:
    path.write_text(f"{pid}\n")


def sleep_as(path: Path) -> Callable[[], None]:
    def work() -> None:
        write_pid(path, os.getpid())
        time.sleep(AGES)

    return work


def kill_self(number: signal.Signals) -> Callable[[], None]:
    def work() -> None:
        faulthandler.disable()  # pytest's, which would write to the terminal.
        os.kill(os.getpid(), number)
        time.sleep(AGES)

    return work


# --- what comes back ------------------------------------------------------------------------------


def test_a_result_comes_back(forks: Forks) -> None:
    answer = forks.ask(lambda: {"numbers": [1, 2.5], "text": "ü\n", "nothing": None})
    assert answer.result == {"numbers": [1, 2.5], "text": "ü\n", "nothing": None}
    assert (answer.error, answer.signal, answer.timed_out, answer.events) == ("", None, False, [])


def test_a_large_result_comes_back_whole(forks: Forks) -> None:
    text = "0123456789" * 100_000
    assert forks.ask(lambda: text).result == text


def test_what_json_does_not_know_comes_back_as_text(forks: Forks) -> None:
    assert forks.ask(lambda: [Path("a/b"), torch.float32]).result == ["a/b", "torch.float32"]


def write_damaged(*lines: bytes) -> Callable[[], str]:
    def work() -> str:
        os.write(vars(SCOPE.writer)["_descriptor"], b"\n".join([*lines, b""]))
        return "done"

    return work


def test_a_damaged_message_is_skipped(forks: Forks) -> None:
    lines = b'{"kind": "no', b"[1]", b"7", b"\xff", b'{"kind": [], "t": 1.0, "cpu": 1.0}'
    answer = forks.ask(write_damaged(*lines))
    assert (answer.result, answer.error, answer.notes) == ("done", "", [])


def test_a_message_cut_short_is_skipped_without_a_fork_too() -> None:
    answer = answer_without_fork(write_damaged(b'{"kind": "no'))
    assert (answer.result, answer.error, answer.notes) == ("done", "", [])


def test_nothing_is_a_result_too(forks: Forks) -> None:
    assert forks.ask(lambda: None).error == ""


def test_an_exception_comes_back_as_its_traceback(forks: Forks) -> None:
    def divide() -> float:
        return 1 / 0

    answer = forks.ask(divide)
    assert answer.result is None
    assert answer.error.startswith("Traceback")
    assert "in divide" in answer.error
    assert answer.error.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_fork_that_dies_tells_the_signal(forks: Forks, number: signal.Signals) -> None:
    answer = forks.ask(kill_self(number))
    assert (answer.result, answer.error, answer.signal) == (None, "", number)
    assert not answer.timed_out


def test_a_fork_that_just_exits_is_an_error(forks: Forks) -> None:
    answer = forks.ask(lambda: os._exit(3))
    assert answer.error == "the process ended with exit code 3"


def test_sys_exit_ends_the_work_and_nothing_else(forks: Forks) -> None:
    answer = forks.ask(lambda: sys.exit(3))
    assert answer.error.endswith("SystemExit: 3\n")


# --- limits ---------------------------------------------------------------------------------------


def test_a_fork_that_is_late_is_ended_with_all_that_it_started(
    forks: Forks, tmp_path: Path
) -> None:
    def work() -> None:
        child = subprocess.Popen(["sleep", str(AGES)])
        write_pid(tmp_path / "grandchild", child.pid)
        sleep_as(tmp_path / "child")()

    answer = forks.ask(work, seconds=1.0)
    assert answer.timed_out
    assert (answer.result, answer.error, answer.signal) == (None, "", None)
    assert is_gone(read_pid(tmp_path / "child"))
    grandchild = read_pid(tmp_path / "grandchild")
    assert wait_until(lambda: is_gone(grandchild))


@contextlib.contextmanager
def process(*command: str) -> Iterator[RunningFork]:
    """A process in a group of its own, as every fork is; it has begun at time 0."""
    child = subprocess.Popen(command, start_new_session=True)
    try:
        yield RunningFork(child.pid, started=0.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_one_that_works_is_late_when_it_has_had_half_its_time_of_the_processor() -> None:
    with process("sh", "-c", "while :; do :; done") as busy:
        assert not is_late(busy, now=1000.5, limit=1000.0), "the machine did other things"
        assert wait_until(lambda: cpu_seconds(busy.pid) > 0.1)
        assert is_late(busy, now=0.2, limit=0.2)
        assert not is_late(busy, now=0.1, limit=0.2), "not before its time is over"


def test_one_that_is_kept_waiting_by_others_is_never_given_more_than_minutes() -> None:
    with process("sh", "-c", "while :; do :; done") as busy:
        assert not is_late(busy, now=1100.0, limit=1000.0)
        assert is_late(busy, now=1121.0, limit=1000.0)


def test_one_that_has_nothing_to_do_is_late_soon_after_its_time() -> None:
    with process("sleep", str(AGES)) as asleep:
        assert wait_until(lambda: not is_ready(asleep.pid)), "it has started, and sleeps"
        assert not is_late(asleep, now=99.0, limit=100.0)
        assert not is_late(asleep, now=100.5, limit=100.0)
        assert is_late(asleep, now=103.0, limit=100.0)


def test_one_whose_compiler_works_has_something_to_do(tmp_path: Path) -> None:
    busy = f"echo > {tmp_path}/begun; while :; do :; done"
    with process("sh", "-c", f"sh -c '{busy}' & wait") as waiting:
        assert wait_until((tmp_path / "begun").exists)
        assert is_ready(waiting.pid)
        assert not is_late(waiting, now=100.5, limit=100.0)
        assert not is_late(waiting, now=103.0, limit=100.0)


def test_where_the_time_of_the_processor_is_not_known_the_clock_decides() -> None:
    with process("true") as gone:
        pass
    assert cpu_seconds(gone.pid) == float("inf")
    assert is_late(gone, now=1.0, limit=1.0)


def test_a_fork_may_take_only_so_much_memory(forks: Forks) -> None:
    def limit() -> int:
        return resource.getrlimit(resource.RLIMIT_AS)[0]

    def take(size: int) -> bool:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        return True

    before = limit()
    granted, little, much = forks.ask_all([limit, lambda: take(1 << 30), lambda: take(17 << 30)])
    assert 16 << 30 < granted.result < 1 << 48
    assert little.result is True
    assert "Cannot allocate memory" in much.error
    assert limit() == before, "the limit is the fork's own"


def test_what_a_fork_prints_is_not_seen(forks: Forks, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> str:
        os.write(1, b"from C\n")
        os.write(2, b"an error\n")
        subprocess.run(["echo", "from a child"], check=True)
        return os.read(0, 10).decode()

    assert forks.ask(work).result == "", "and there is nothing for it to read"
    assert capfd.readouterr() == ("", "")


def test_what_the_parent_had_not_written_yet_is_written_once(
    forks: Forks, capfd: pytest.CaptureFixture[str]
) -> None:
    sys.stdout.write("half a line")
    assert forks.ask(lambda: 1).result == 1
    sys.stdout.write(", the other half")
    sys.stdout.flush()
    assert capfd.readouterr().out == "half a line, the other half"


# --- a fork is a copy -----------------------------------------------------------------------------


def test_a_fork_has_what_the_parent_has_and_changes_none_of_it(forks: Forks) -> None:
    things = ["warm"]

    def work() -> list[str]:
        things.append("changed")
        os.environ["INDUCTOSCOPE_TEST"] = "changed"
        return things

    assert forks.ask(work).result == ["warm", "changed"]
    assert things == ["warm"]
    assert "INDUCTOSCOPE_TEST" not in os.environ


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_and_autocast_are_as_in_the_parent(forks: Forks, enabled: bool) -> None:
    def state() -> list[bool]:
        return [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]

    with torch.set_grad_enabled(enabled), torch.autocast("cpu", torch.bfloat16, enabled):
        assert forks.ask(state).result == [enabled, enabled]


# --- several --------------------------------------------------------------------------------------


def test_answers_are_in_the_order_of_the_work(forks: Forks) -> None:
    def square(number: int) -> Callable[[], int]:
        return lambda: number * number

    answers = forks.ask_all([square(number) for number in range(7)])
    assert [answer.result for answer in answers] == [0, 1, 4, 9, 16, 25, 36]
    assert forks.count == 7


def test_as_many_run_at_once_as_there_are_workers(forks: Forks, tmp_path: Path) -> None:
    """Two forks that wait for each other."""

    def meet(mine: str, other: str) -> Callable[[], bool]:
        def work() -> bool:
            (tmp_path / mine).touch()
            return wait_until((tmp_path / other).exists)

        return work

    answers = forks.ask_all([meet("a", "b"), meet("b", "a")])
    assert [answer.result for answer in answers] == [True, True]


def test_one_worker_does_one_thing_after_the_other(tmp_path: Path) -> None:
    def alone() -> bool:
        mark = tmp_path / "busy"
        mark.mkdir()  # Raises if another fork is here too.
        time.sleep(0.05)
        mark.rmdir()
        return True

    answers = Forks(workers=1, seconds=AGES).ask_all([alone] * 4)
    assert [answer.result for answer in answers] == [True] * 4


def test_one_that_dies_does_not_disturb_the_others(forks: Forks) -> None:
    answers = forks.ask_all([lambda: "one", kill_self(signal.SIGSEGV), lambda: "three"])
    assert [answer.result for answer in answers] == ["one", None, "three"]
    assert [answer.signal for answer in answers] == [None, signal.SIGSEGV, None]


def test_answers_come_as_they_are_done_and_the_rest_is_ended(forks: Forks, tmp_path: Path) -> None:
    def when_the_other_sleeps() -> str:
        read_pid(tmp_path / "sleeper")
        return "done"

    works = [sleep_as(tmp_path / "sleeper"), when_the_other_sleeps, sleep_as(tmp_path / "never")]
    answers = forks.as_done(works)
    number, answer = next(answers)
    assert (number, answer.result) == (1, "done")
    answers.close()  # type: ignore[attr-defined]
    assert is_gone(read_pid(tmp_path / "sleeper"))
    # The third had no worker free before the iterator was closed.
    assert forks.count == 2
    assert not (tmp_path / "never").exists()


def test_no_descriptor_is_left_open(forks: Forks) -> None:
    def open_descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = open_descriptors()
    forks.ask_all([lambda: 1, lambda: 1 / 0, kill_self(signal.SIGKILL)])
    next(forks.as_done([lambda: 1, lambda: 2]))
    assert open_descriptors() == before


# --- events ---------------------------------------------------------------------------------------


def test_what_the_hooks_see_reaches_the_parent(forks: Forks) -> None:
    def work() -> bool:
        SCOPE.emit(StageStart(stage="codegen", detail="op0"))
        SCOPE.emit(Kernel(name="a kind that the parent does not ask for", language="C++"))
        SCOPE.emit(NativeEnd(exit_code=1, messages=SCOPE.text("error: no such thing")))
        return SCOPE.active and SCOPE.is_redirected

    answer = forks.ask(work)
    assert answer.result is True
    at = [entry.time for entry in answer.entries]
    assert at == sorted(at), "by the clock that the parent has too"
    assert answer.events == [
        StageStart(stage="codegen", detail="op0"),
        NativeEnd(exit_code=1, messages="error: no such thing"),
    ]
    assert not SCOPE.active
    assert not SCOPE.is_redirected


def test_a_fork_that_dies_has_told_where_it_was(forks: Forks) -> None:
    def work() -> None:
        enter_stage("lowering")
        leave_stage(enter_stage("scheduler"))
        enter_stage("cpp-compile", detail="kernel 3")
        kill_self(signal.SIGSEGV)()

    answer = forks.ask(work)
    assert answer.signal == signal.SIGSEGV
    assert answer.last_stage is not None
    assert answer.last_stage.event.stage == "cpp-compile"
    assert answer.last_stage.event.detail == "kernel 3"
    assert answer.last_stage.event.thread, "work is done on a thread of its own"


def test_a_fork_that_is_late_has_told_where_it_was(forks: Forks) -> None:
    def work() -> None:
        enter_stage("joint-pass")
        time.sleep(AGES)

    answer = forks.ask(work, seconds=1.0)
    assert answer.last_stage is not None
    assert (answer.timed_out, answer.last_stage.event.stage) == (True, "joint-pass")
    assert 0 <= answer.entered_at < answer.seconds


def test_a_fork_in_no_stage_has_no_last_one() -> None:
    started, ended = entries(StageStart(stage="aot"), StageEnd(stage="aot", seconds=1.0))
    assert ForkAnswer(entries=[started, ended]).last_stage is None
    assert ForkAnswer(entries=[started]).last_stage == started


def test_the_last_stage_is_right_when_two_threads_compile() -> None:
    said = entries(
        StageStart(stage="lowering", thread=7),
        StageStart(stage="scheduler", thread=8),
        StageEnd(stage="lowering", thread=7, seconds=1.0),
    )
    last = ForkAnswer(entries=said).last_stage
    assert last is not None
    assert last.event.stage == "scheduler"
