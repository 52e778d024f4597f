"""Sizes that the program marks as dynamic: what the compiler knows of them decides what it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.decomposition import decompositions, fast_random_decomps
from torch.fx import symbolic_trace

from inductoscope.inside.repro.failure_script import script_text
from inductoscope.inside.search.candidate import Candidate, MarkedSize, marked_sizes, name_of
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.shrink import SHRINK_PASSES, Subject, apply_passes
from support.graphs import numbers, script_fails


def activate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x * 2) + y.sum()


def wrong_for_short_inputs(x: torch.Tensor) -> torch.Tensor:
    """silu, unless the compiler knows that there are at most 64 rows."""
    rows: Any = x.shape[0]
    is_short = False
    if isinstance(rows, torch.SymInt):
        is_short = rows.node.shape_env.var_to_range[rows.node.expr].upper <= 64
    return x * torch.sigmoid(x) * (3 if is_short else 1)


@pytest.fixture(scope="module")
def marked() -> Candidate:
    """The doctor's verdict on a call whose inputs the program has marked."""
    x, y = numbers(12, 6), numbers(5, 3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
    torch._dynamo.mark_dynamic(y, 1)
    module = symbolic_trace(activate)
    return Candidate(module, (x, y), marks=marked_sizes(module, (x, y)))


def test_marks_are_read_from_the_inputs_of_a_call(marked: Candidate) -> None:
    bounded, unbounded = marked.marks
    assert bounded == MarkedSize("x", 0, "mark_dynamic", 2, 64)
    assert unbounded == MarkedSize("y", 1, "mark_dynamic")


def test_unbacked_sizes_are_read_too() -> None:
    x = numbers(4, 3)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    torch._dynamo.maybe_mark_dynamic(x, 1)
    module = symbolic_trace(activate)
    functions = {mark.function: mark.dimension for mark in marked_sizes(module, (x, x.clone()))}
    assert functions == {"mark_unbacked": 0, "maybe_mark_dynamic": 1}


def test_unbacked_sizes_are_compiled_as_such() -> None:
    """The sum is as in eager; the size is not one of those that the code was compiled for."""
    module = symbolic_trace(activate)
    marks = (MarkedSize("x", 0, "mark_unbacked"), MarkedSize("y", 1, "maybe_mark_dynamic"))
    candidate = Candidate(module, (numbers(12, 6), numbers(5, 3)), marks=marks)
    oracle = Oracle(Forks(seconds=120.0))
    assert oracle.failure(candidate) is None
    assert not oracle.mistakes


@pytest.fixture(scope="module")
def smallest(marked: Candidate) -> Any:
    """The reduced graph, and the script that shows it."""
    fast_random_decomps.cache_clear()  # Torch keeps a copy of the table.
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(decompositions, torch.ops.aten.silu.default, wrong_for_short_inputs)
        oracle = Oracle(Forks(workers=2, seconds=120.0))
        assert oracle.failure(replace(marked, marks=(), dynamic=True)) is None
        failure = oracle.failure(marked)
        assert failure is not None
        passes = [each for each in SHRINK_PASSES if each.name in ("nodes", "settings", "inputs")]
        *_, last = apply_passes(Subject(marked, failure), oracle, passes)
        assert not oracle.mistakes
        yield last.candidate, script_text(last.candidate, failure, "at most 64 rows")
    fast_random_decomps.cache_clear()


def test_a_failure_that_needs_a_bound_keeps_it(smallest: tuple[Candidate, str]) -> None:
    candidate, _ = smallest
    assert [name_of(node) for node in candidate.operations] == ["silu"]
    assert [mark.bounds for mark in candidate.marks] == [{"min": 2, "max": 64}]


def test_the_script_marks_the_input(smallest: tuple[Candidate, str], tmp_path: Path) -> None:
    _, text = smallest
    assert "    torch._dynamo.decorators.mark_dynamic(arguments[0], 0, min=2, max=64)\n" in text
    assert script_fails(text, tmp_path)
