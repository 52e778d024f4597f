"""Calls that `pytest --inductoscope` has kept, compared once their test is over.

A plain Python function stands for the compiled one, so nothing is compiled here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inductoscope.doctor.failure import Location
from inductoscope.inside import pytest_calls
from inductoscope.inside.compare.values import Surroundings
from inductoscope.inside.pytest_calls import (
    GraphWatch,
    KeptSuiteCall,
    SeenInTest,
    SuiteGraph,
    check_calls,
)
from inductoscope.pytest_plugin.results import WRONG
from support.graphs import captured, numbers


def kept_call(function: Callable[..., Any], compiled: Callable[..., Any]) -> KeptSuiteCall:
    x = numbers(4).requires_grad_()
    graph = SuiteGraph("1", "0/0", captured(function, x), {}, None, compiled, True)
    return KeptSuiteCall(graph, 1, (x,), 16, Surroundings.now(), graph.versions())


def doubled(x: torch.Tensor) -> tuple[torch.Tensor]:
    return (x * 2,)


def with_wrong_gradient(x: torch.Tensor) -> tuple[torch.Tensor]:
    return (x.detach() * 2 + (x - x.detach()) * 3,)


def test_gradients_are_compared_even_if_the_test_has_turned_them_off_since() -> None:
    call = kept_call(doubled, with_wrong_gradient)
    with torch.no_grad():
        (checked,), (finding,) = check_calls([call], None)
    assert (checked.verdict, checked.with_gradients) == (WRONG, True)
    assert "gradient" in finding.summary


def test_a_kernel_of_a_graph_that_is_not_known_adds_no_empty_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrappers = [SimpleNamespace(module=None)]
    place = Location(kernel="cpp_fused_mul_0", text="buffer buf0 differs")
    monkeypatch.setattr(pytest_calls, "KEPT_WRAPPERS", SimpleNamespace(wrappers=wrappers))
    monkeypatch.setattr(pytest_calls, "first_wrong_own_kernel", lambda *given: place)
    _, (finding,) = check_calls([kept_call(doubled, lambda x: (x * 3,))], None)
    assert finding.kernel == "cpp_fused_mul_0"
    assert "buffer buf0 differs" in finding.details
    assert all(finding.known_by)


def test_two_threads_may_call_one_graph_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, seen = GraphWatch(4, "", lambda: False), SeenInTest()
    graph = kept_call(doubled, doubled).graph

    def copied_meanwhile(values: Any) -> list[Any]:
        seen.not_kept.clear()  # The other thread is through.
        return list(values)

    monkeypatch.setattr(pytest_calls, "copy_values", copied_meanwhile)
    assert watch._keep(seen, graph, (numbers(4),)) is not None
    assert len(seen.calls) == 1
