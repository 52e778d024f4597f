"""Whole functions, compiled and in eager: what Dynamo may be blamed for, and what not.

A plain Python function stands for the compiled one, so nothing is compiled here.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from inductoscope.inside.doctor import checked_function as checked_function_module
from inductoscope.inside.doctor.checked_function import checked_function, has_returned_in_eager
from inductoscope.inside.doctor.compile_conditions import how_compiled
from inductoscope.inside.scope import SCOPE
from inductoscope.model.fold import load
from inductoscope.recording.events import CallableCheck
from inductoscope.recording.location import create_recording

Function = Callable[..., Any]
Judge = Callable[..., CallableCheck]


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judge]:
    """The last report on a function and its stand-in for a compiled one."""
    folder = create_recording(["python"], output=tmp_path / "recording")
    SCOPE.open(folder)

    def judge(
        function: Function, compiled: Function, *arguments: Any, calls: int = 1
    ) -> CallableCheck:
        checked = checked_function(compiled, function, None, tmp_path)
        for _ in range(calls):
            checked(*arguments)
        return load(folder).callable_checks[-1]

    yield judge
    SCOPE.close()


def test_what_draws_pythons_random_numbers_is_right(judged: Judge) -> None:
    """Python seeds its generator anew in every fork."""
    assert judged(lambda: random.random(), lambda: random.random()).verdict == "right"


@pytest.mark.parametrize(("rounding", "verdict"), [(0.06, "right"), (0.01, "differs")])
def test_what_rounding_in_its_graphs_explains_is_no_difference(
    rounding: float, verdict: str, judged: Judge
) -> None:
    """A model in bfloat16 may return float32, whose own rounding is far smaller."""

    def compiled(x: torch.Tensor) -> torch.Tensor:
        checked_function_module.note_rounding(rounding)
        return x + 0.05

    assert judged(lambda x: x, compiled, torch.tensor([-1.0, 0.0, 1.0])).verdict == verdict


def test_that_is_no_excuse_for_another_value(judged: Judge) -> None:
    def compiled(x: torch.Tensor) -> torch.Tensor:
        checked_function_module.note_rounding(100.0)
        return x + 0.4

    assert judged(lambda x: x, compiled, torch.rand(3)).verdict == "differs"


@pytest.mark.parametrize(("short", "runs"), [(4.0, 4), (0.0, 2)])
def test_of_a_slow_function_the_first_call_is_checked(
    short: float, runs: int, judged: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_function_module, "_SHORT", short)

    def function(x: torch.Tensor) -> torch.Tensor:
        with (tmp_path / "runs").open("a") as file:
            file.write("run ")
        return x * 2

    assert judged(function, lambda x: x * 2, torch.ones(3), calls=3).verdict == "right"
    assert (tmp_path / "runs").read_text().split() == ["run"] * runs


def test_what_differs_by_itself_is_not_dynamos_fault(judged: Judge) -> None:
    said = judged(lambda: time.time_ns(), lambda: time.time_ns())
    assert said.verdict == "unsteady"
    assert "two runs in eager differ" in said.text


def test_complex_numbers_may_differ_by_rounding(judged: Judge) -> None:
    z = torch.randn(64, dtype=torch.complex64)
    assert judged(lambda z: z * 1.1, lambda z: z * 1.1 * (1 + 1e-6), z).verdict == "right"
    assert judged(lambda z: z * 1.1, lambda z: z.conj() * 1.1, z).verdict == "differs"


@pytest.mark.parametrize(
    ("eager", "compiled", "verdict"),
    [
        (1.5, 1.5 + 1e-9, "right"),
        (1.5, float("nan"), "differs"),
        (float("nan"), float("nan"), "right"),
        (float("inf"), float("inf"), "right"),
        (float("inf"), 1e30, "differs"),
        (7, 8, "differs"),
        ("one", "one", "right"),
    ],
)
def test_numbers_and_strings(judged: Judge, eager: Any, compiled: Any, verdict: str) -> None:
    assert judged(lambda: eager, lambda: compiled).verdict == verdict


def raises() -> None:
    raise ValueError("no such row")


def test_a_function_that_raises_in_eager_alone(judged: Judge) -> None:
    said = judged(raises, lambda: 1)
    text = "returns when compiled, in eager it raises ValueError: no such row"
    assert (said.verdict, said.text) == ("not-raised", text)


def test_a_function_that_raises_now_and_then_is_not_compared(judged: Judge, tmp_path: Path) -> None:
    def once() -> None:
        (tmp_path / "mark").mkdir()  # Files are the one thing that forks leave behind.
        raise ValueError("the first time")

    with pytest.raises(IndexError):
        judged(once, lambda: 1)


@pytest.mark.parametrize(("eager", "returned"), [(raises, False), (lambda: 1, True)])
def test_whether_it_returned_in_eager_is_known_during_the_call(
    judged: Judge, eager: Function, returned: bool
) -> None:
    seen: list[bool] = []

    def compiled() -> int:
        seen.append(has_returned_in_eager())
        return 1

    judged(eager, compiled)
    assert (seen, has_returned_in_eager()) == ([returned], False)


def test_a_function_that_counts_its_calls_is_right(judged: Judge) -> None:
    """Eager runs in forks, so the program's own counter moves once."""
    counter = itertools.count()
    count = lambda: next(counter)  # noqa: E731
    assert judged(count, count).verdict == "right"
    assert next(counter) == 1


def test_a_file_that_cannot_be_deleted_is_no_error_of_the_program(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError("the program has given up its privileges")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert judged(lambda: 7, lambda: 7).verdict == "right"


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_a_backend_is_called_by_its_name(backend: str) -> None:
    seen = []

    def note(output: Any, *rest: Any) -> Any:
        seen.append(how_compiled(output)[2])
        raise RuntimeError("seen enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._dynamo.output_graph.OutputGraph.call_user_compiler", note)
        with pytest.raises(Exception, match="seen enough"):
            torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert seen == ["" if backend == "inductor" else backend]
