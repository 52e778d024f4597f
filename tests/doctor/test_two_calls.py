"""A failure that needs an earlier call: what was compiled for one size serves another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.decomposition import decompositions, fast_random_decomps
from torch.fx import symbolic_trace

from inductoscope.inside.repro.failure_script import script_text
from inductoscope.inside.search.candidate import Candidate, name_of
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.shrink import SHRINK_PASSES, Subject, apply_passes
from inductoscope.inside.search.subgraph import record_values, subgraph
from support.graphs import numbers, script_fails

FIRST, SECOND = numbers(12, 6), numbers(9, 6).mul(2)
WEIGHTS = numbers(6, 8)


def activate(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.shape[0]
    return torch.nn.functional.silu((x @ w) / 4) + 1, w.reshape(-1)[: rows * 2]


def for_the_first_size(x: torch.Tensor) -> torch.Tensor:
    """silu, for the size that it is compiled for and for no other."""
    rows: Any = x.shape[0]
    first = rows.node.hint if isinstance(rows, torch.SymInt) else rows
    return x * torch.sigmoid(x) * (rows / first)


def whole() -> Candidate:
    module = symbolic_trace(activate)
    return Candidate(module, (SECOND, WEIGHTS), dynamic=True, earlier=(FIRST, WEIGHTS))


def test_a_part_of_the_graph_has_the_values_of_both_calls() -> None:
    candidate = whole()
    names = [node.name for node in candidate.operations if name_of(node) in ("silu", "add")]
    cut = subgraph(record_values(candidate), names)
    assert cut is not None
    assert cut.earlier is not None
    for inputs, rows in ((cut.earlier, FIRST), (cut.inputs, SECOND)):
        assert torch.equal(inputs[0], rows @ WEIGHTS / 4)


def test_a_size_that_both_calls_differ_in_becomes_an_input() -> None:
    candidate = whole()
    kept = [node.name for node in candidate.operations if name_of(node) == "reshape"]
    kept += [node.name for node in candidate.operations if name_of(node) == "getitem"][1:]
    cut = subgraph(record_values(candidate), kept)
    assert cut is not None
    assert cut.earlier is not None
    assert (cut.earlier[1:], cut.inputs[1:]) == ((24,), (18,))


@pytest.fixture(scope="module")
def planted() -> Any:
    # Torch keeps a copy of the table once it has compiled something.
    fast_random_decomps.cache_clear()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(decompositions, torch.ops.aten.silu.default, for_the_first_size)
        yield
    fast_random_decomps.cache_clear()


@pytest.fixture(scope="module")
def smallest(planted: None) -> tuple[Candidate, str]:
    """The reduced graph, and the script that shows it."""
    candidate = whole()
    oracle = Oracle(Forks(workers=2, seconds=120.0))
    assert oracle.failure(replace(candidate, earlier=None)) is None
    failure = oracle.failure(candidate)
    assert failure is not None
    passes = [each for each in SHRINK_PASSES if each.name in ("nodes", "inputs")]
    *_, last = apply_passes(Subject(candidate, failure), oracle, passes)
    assert not oracle.mistakes
    return last.candidate, script_text(last.candidate, failure, "two sizes")


def test_the_graph_is_cut_down_with_both_calls(smallest: tuple[Candidate, str]) -> None:
    candidate, _ = smallest
    assert [name_of(node) for node in candidate.operations] == ["silu"]
    assert candidate.earlier is not None
    (one,), (two,) = candidate.earlier, candidate.inputs
    assert one.shape[0] != two.shape[0]
    assert one.shape[1] == two.shape[1]


def test_the_script_makes_both_calls(smallest: tuple[Candidate, str], tmp_path: Path) -> None:
    _, text = smallest
    assert "    call(function, earlier_inputs())\n    return call(function, inputs())\n" in text
    assert script_fails(text, tmp_path)
