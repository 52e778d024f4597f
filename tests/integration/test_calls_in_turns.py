"""Calls in turns, compiled and in eager: which call is which, and which are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inductoscope.inside.profiling.agent import Agent
from inductoscope.inside.profiling.alternating_calls import (
    NOT_MEASURED,
    AlternatingClock,
    kind_of_call,
    requires_grad,
)
from inductoscope.profiling.flip_trials import AgainstEager, against_eager
from inductoscope.profiling.orders import Orders
from inductoscope.profiling.timings import (
    DIFFERENTIATED,
    FUNCTION,
    IN_EAGER,
    ProcessTimes,
    read_measured,
)
from inductoscope.profiling.turns import TimedRun


class TimedProgram:
    """A function whose calls take as long as their argument says; no compile, no waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.eager: list[bool] = []
        self._is_eager = False
        self.clock = AlternatingClock(lambda: self.now)
        module = "inductoscope.inside.profiling.alternating_calls.in_eager"
        monkeypatch.setattr(module, self._in_eager)
        self.result: Any = None
        self.function = self.clock.timed(self._work, "f", place="/x.py:3")

    def _in_eager(self, function: Any) -> Any:
        def call(*args: Any) -> Any:
            self._is_eager = True
            try:
                return function(*args)
            finally:
                self._is_eager = False

        return call

    def _work(self, x: torch.Tensor) -> Any:
        if not self.eager:
            self.clock.compile_begins()
        self.eager.append(self._is_eager)
        self.now += x.numel()
        return self.result

    def compared(self) -> AgainstEager | None:
        """Measurements of its calls."""
        return against_eager([TimedRun(0, 1.0, (self.clock.as_data(1),))] * 2)


def test_a_program_with_a_rhythm_is_not_called_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large and small batches in turns: with every second call in eager, one side had all."""
    program = TimedProgram(monkeypatch)
    for _ in range(60):
        program.function(torch.empty(10_000))
        program.function(torch.empty(100))
    found = program.compared()
    assert found is not None
    assert found.ratio == 1.0
    assert 50 < sum(program.eager) < 70


def test_a_rhythm_that_arguments_do_not_show_falls_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = TimedProgram(monkeypatch)
    for _ in range(400):
        program.function(torch.empty(1))
    assert 70 < sum(program.eager[::2]) < 130
    assert 70 < sum(program.eager[1::2]) < 130


def test_it_is_compiled_and_warm_before_eager_has_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    program = TimedProgram(monkeypatch)
    for _ in range(8):
        program.function(torch.empty(5))
    assert program.eager[:2] == [False, False]
    assert sum(program.eager[2:]) == 3
    counts = {calls.kind: calls.count for calls in program.clock.as_data(1).calls}
    assert counts == {FUNCTION: 3, IN_EAGER: 2}


class LearningProgram(TimedProgram):
    """Its result has a backward pass that takes twice as long compiled as in eager."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.weight = torch.ones(1, requires_grad=True)

    def _work(self, x: torch.Tensor) -> Any:
        super()._work(x)
        took = 1000 if self._is_eager else 2000
        inner = self.weight * 1

        def differentiate(gradient: torch.Tensor) -> None:
            self.now += took

        inner.register_hook(differentiate)
        return {"loss": inner * 3}


def test_a_call_ends_with_its_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    program = LearningProgram(monkeypatch)
    for _ in range(40):
        program.function(torch.empty(5))["loss"].backward()
        program.now += 100_000  # The optimizer, which is nobody's call.
    found = program.compared()
    assert found is not None
    assert found.ratio == pytest.approx(2005 / 1005)
    assert 15 < sum(program.eager) < 23


class WaitingStopwatch:
    """Times what a GPU does after a call has returned: a microsecond, in eager half of it."""

    def __init__(self, program: LearningProgram) -> None:
        self._program = program
        self.stopped: list[tuple[str, ...]] = []

    def start(self, thing: tuple[str, ...]) -> list[str]:
        return [thing[0]]

    def stop(self, started: list[str], thing: tuple[str, ...], *, compiled: bool) -> int:
        self.stopped.append(thing)
        if len(self.stopped) % 7 == 0:
            return NOT_MEASURED
        return 500 if started == [IN_EAGER] else 1000


def test_on_a_gpu_a_backward_pass_is_timed_by_what_the_gpu_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = LearningProgram(monkeypatch)
    monkeypatch.setattr("inductoscope.inside.profiling.alternating_calls.uses_cuda", lambda: True)
    watch = WaitingStopwatch(program)
    monkeypatch.setattr(program.clock, "_gpu", watch)
    for _ in range(60):
        program.function(torch.empty(5))["loss"].backward()
    steps = [c for c in program.clock.as_data(1).calls if "backward" in c.group]
    assert {c.kind: set(c.sample) for c in steps} == {FUNCTION: {2000}, IN_EAGER: {1000}}
    assert any(c.dropped for c in steps), "a part that could not be measured is left out"
    found = program.compared()
    assert found is not None
    assert found.ratio == 2.0


def test_calls_that_share_a_backward_pass_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    program = LearningProgram(monkeypatch)
    for _ in range(20):
        first, second = program.function(torch.empty(5)), program.function(torch.empty(5))
        (first["loss"] + second["loss"]).backward()
    assert program.compared() is None
    assert not any(program.eager)


def test_calls_without_a_backward_pass_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    program = LearningProgram(monkeypatch)
    for _ in range(20):
        program.function(torch.empty(5))
    assert not any(program.eager)
    assert {calls.kind for calls in program.clock.as_data(1).calls} == {DIFFERENTIATED}
    assert program.compared() is None


def test_a_program_with_threads_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    program = TimedProgram(monkeypatch)
    for _ in range(20):
        program.function(torch.empty(5))
    assert program.compared() is not None
    monkeypatch.setattr("threading.get_ident", lambda: -1)
    program.function(torch.empty(5))
    assert program.compared() is None
    assert program.clock.as_data(1).several_threads


# --- which calls do the same work -----------------------------------------------------------------


def kind(*args: Any) -> Any:
    return kind_of_call(len, args, {})


def test_calls_are_alike_if_shapes_types_values_and_modes_are() -> None:
    x = torch.ones(2, 3)
    assert kind(x, 1, [x]) == kind(torch.zeros(2, 3), 1, [torch.zeros(2, 3)])
    for other in (torch.ones(3, 2), x.double(), torch.ones(3, 2).t(), x.clone().requires_grad_()):
        assert kind(other) != kind(x)
    assert kind(1) != kind(2)
    assert kind(1) != kind(True)
    assert kind(object()) != kind(x)
    before = kind(x)
    with torch.no_grad():
        assert kind(x) != before


def test_arguments_that_refuse_to_be_looked_at_have_no_kind() -> None:
    class Refuses(torch.Tensor):
        def stride(self, *_: Any) -> Any:
            raise RuntimeError("no strides")

    assert kind(torch.ones(2).as_subclass(Refuses)) is None


def test_results_are_searched_for_what_can_be_differentiated() -> None:
    leaf = torch.ones(1, requires_grad=True)

    class Output:
        def __init__(self, loss: Any) -> None:
            self.loss = loss

    assert requires_grad([Output({"loss": leaf})])
    assert not requires_grad((torch.ones(1), 3, None, Output(torch.ones(1))))


def test_a_change_that_cannot_be_made_is_written_down(tmp_path: Path) -> None:
    agent = Agent(Orders(code="torch.no_such_setting.x = 1"), tmp_path)
    agent.on_import()["torch"]()
    agent.write_files()
    (times,) = read_measured(ProcessTimes, agent.place)
    assert "no_such_setting" in times.not_applied
