"""Replacements for functions of torch: seen by the recording, and by nobody else."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from inductoscope.inside import observe
from inductoscope.inside.observe import Watching, glance, in_stage, watch
from inductoscope.inside.scope import BROKEN, SCOPE, Scope
from inductoscope.recording.events import Event, HookError
from inductoscope.torch_facts.torch_names import Replacement


@pytest.fixture
def _recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCOPE, "active", True)


def divide(number: int, by: int) -> float:
    """As torch has it."""
    return number / by


SEEN: list[str] = []


def seen_around(args: Any, kwargs: Any) -> Watching:
    try:
        yield
    finally:
        SEEN.append("seen")


HOURLY = glance(3600.0, lambda: SEEN.append("seen"))


@pytest.mark.usefixtures("_recording")
@pytest.mark.parametrize(
    "replacement",
    [watch(lambda args, kwargs: SEEN.append("seen")), watch(seen_around), HOURLY],
    ids=["before", "around", "glance"],
)
def test_results_and_tracebacks_are_as_without_it(replacement: Replacement) -> None:
    watched: Callable[..., float] = replacement(divide)
    assert watched(6, by=3) == 2.0
    assert (watched.__name__, watched.__doc__) == ("divide", "As torch has it.")
    with pytest.raises(ZeroDivisionError) as raised:
        watched(1, by=0)
    frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert frames == ["test_results_and_tracebacks_are_as_without_it", "divide"]


@pytest.mark.usefixtures("_recording")
def test_what_is_called_all_the_time_is_looked_at_now_and_then() -> None:
    SEEN.clear()
    watched = HOURLY(divide)
    assert [watched(number, by=1) for number in range(100)] == list(range(100))
    assert SEEN == ["seen"]


def test_nothing_is_looked_at_while_nothing_is_recorded() -> None:
    SEEN.clear()
    assert HOURLY(divide)(6, by=3) == 2.0
    assert SEEN == []


def test_an_error_of_ours_stays_ours_whatever_handlers_of_signals_are_made_of() -> None:
    """A code object with a constant that has no hash has none itself."""

    def handler(*_: object) -> None: ...

    handler.__code__ = handler.__code__.replace(co_consts=(None, []))
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        assert SCOPE.guard(divide, 1, 0) is BROKEN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_fails_when_a_stage_is_over_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(args: Any, kwargs: Any) -> Watching:
        yield from in_stage("lowering")
        raise KeyError("first")

    def second(args: Any, kwargs: Any) -> Watching:
        yield from in_stage("lowering")
        raise KeyError("second")

    written: list[Event] = []
    monkeypatch.setattr(observe, "current_compile_id", lambda: "0/0")
    with SCOPE.redirected(SimpleNamespace(emit=written.append, stopped=None)):
        for observer in (first, second):
            assert watch(observer)(divide)(6, by=3) == 2.0
    failed = [event.hook for event in written if isinstance(event, HookError)]
    assert [name.rpartition(".")[2] for name in failed] == ["first", "second"]


def test_seconds_are_counted_once_even_in_a_stage_that_its_hook_did_not_see_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as after Ctrl-C: a graph is lowered inside of a part of another graph's lowering."""
    clock = iter([0.0, 1.0, 3.0, 73.0, 74.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    scope = Scope()
    outer = scope.enter("lowering")
    scope.enter_part("lowering", "cond")
    inner = scope.enter("lowering")
    assert scope.leave(inner, failed=True) == 70.0
    assert scope.leave(outer, failed=True) == 4.0


def test_an_exception_of_the_program_is_recorded_without_frames_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def staged(args: Any, kwargs: Any) -> Watching:
        yield from in_stage("lowering")

    def stops() -> None:
        raise StopIteration

    written: list[Event] = []
    texts: list[str] = []
    monkeypatch.setattr(observe, "current_compile_id", lambda: "0/0")
    writer = SimpleNamespace(emit=written.append, stopped=None, payload=texts.append)
    with SCOPE.redirected(writer):
        with pytest.raises(ZeroDivisionError):
            watch(staged)(divide)(6, by=0)
        with pytest.raises(StopIteration):
            watch(staged)(stops)()
    assert [event.kind for event in written] == ["stage-start", "stage", "error"] * 2
    assert "in divide" in texts[0]
    assert "inside/observe.py" not in texts[0]
    assert "in staged" not in texts[0]
