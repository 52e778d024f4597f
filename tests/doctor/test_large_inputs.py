"""Calls that are too large to be copied: compared in a fork, and judged on a part of their inputs.

The tensors here are small. What is planted changes a product of matrices, for which no C++ has to
be compiled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
from torch._inductor.lowering import lowerings
from torch.fx import symbolic_trace

from inductoscope.doctor.failure import WRONG
from inductoscope.inside.doctor.further_checks import compared_in_fork, failure_of_smaller
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import Oracle
from support.graphs import numbers


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in every program under the doctor: a fork has no other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- all of it, in a fork -------------------------------------------------------------------------


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, x * 2


@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        (two_results, ""),
        (lambda x: (x + 1 + 1e-7, x * 2), ""),
        (lambda x: (x + 1, x * 2.01), "output 1 is not close to eager"),
        (lambda x: 1 / 0, "it failed: ZeroDivisionError: division by zero"),
        (lambda x: os.kill(os.getpid(), signal.SIGKILL), "it died"),
    ],
    ids=["the same", "rounding", "another value", "an error", "a crash"],
)
def test_a_large_call_is_compared_with_eager(compiled: Callable[..., Any], said: str) -> None:
    assert compared_in_fork(symbolic_trace(two_results), compiled, (numbers(8),)) == said


def test_a_call_that_writes_to_its_inputs_cannot_be_made_twice() -> None:
    x = torch.zeros(3)
    module = symbolic_trace(lambda x: x.add_(1))
    assert "it mutates its inputs" in compared_in_fork(module, module, (x,))
    assert x.tolist() == [0, 0, 0], "nor was it, where the program is"


# --- a part of it ---------------------------------------------------------------------------------


def plant(monkeypatch: pytest.MonkeyPatch, is_wrong: Callable[[int], bool]) -> None:
    """Exchange the factors of a product of matrices, depending on its size."""
    operation = torch.ops.aten.mm.default
    original = lowerings[operation]

    def exchanged(x: Any, y: Any) -> Any:
        return original(y, x) if is_wrong(int(x.get_size()[0])) else original(x, y)

    monkeypatch.setitem(lowerings, operation, exchanged)


def product() -> Candidate:
    module = symbolic_trace(lambda x, y: x @ y)
    return Candidate(module, (numbers(40, 40), numbers(40, 40).cos()))


def test_a_part_that_is_wrong_too_stands_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda size: True)
    found = failure_of_smaller(product())
    assert found is not None
    assert (found.failure.kind, found.failure.aspect) == (WRONG, "value")
    assert [tuple(value.shape) for value in found.candidate.inputs] == [(33, 33), (33, 33)]


def test_where_the_part_is_right_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda size: size > 33)
    whole = product()
    assert Oracle(Forks()).failure(whole) is not None
    assert failure_of_smaller(whole) is None
