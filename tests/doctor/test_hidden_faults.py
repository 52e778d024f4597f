"""A wrong kernel under differences that rounding explains: it counts if the graph has it, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.codecache import PyCodeCache
from torch._inductor.codegen import cpp
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering

from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.compare.bug_or_rounding import judge
from inductoscope.inside.compare.graphs import as_function, snapshot
from inductoscope.inside.compare.kernels import KEPT
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import run
from inductoscope.inside.doctor.checking_agent import checking_hooks
from inductoscope.inside.doctor.further_checks import hidden_fault
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate

Function = Callable[..., torch.Tensor]


@pytest.fixture
def kept_wrappers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The program's process keeps its wrappers, as it does under the doctor."""
    hook = checking_hooks(Instructions(), tmp_path)[0]
    codegen, load = (wrap.replacement for wrap in hook.wraps)
    original = PyCodeCache.__dict__["load_by_key_path"].__func__
    monkeypatch.setattr(GraphLowering, "codegen", codegen(GraphLowering.codegen))
    monkeypatch.setattr(PyCodeCache, "load_by_key_path", classmethod(load(original)))
    monkeypatch.setattr(SCOPE, "active", True)
    monkeypatch.setattr(SCOPE, "emit", lambda event: None)
    yield
    KEPT.wrappers.clear()


def compiled_and_candidate(function: Function, *inputs: torch.Tensor) -> tuple[Any, Candidate]:
    """A function as Dynamo's backend gets it, compiled."""
    kept: list[Any] = []

    def backend(module: Any, examples: Any) -> Any:
        kept.append(snapshot(module))
        kept.append(compile_fx(module, examples))
        return kept[1]

    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False):
        torch.compile(function, backend=backend)(*inputs)
        graph, compiled = kept
        backward = any(value.requires_grad for value in inputs)
        run(compiled, inputs, backward=backward)
    return compiled, Candidate(graph, inputs, backward=backward)


def chaotic(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The smallest change of the first product changes the result altogether."""
    return torch.sin((torch.nn.functional.gelu(x) @ w) * 1e9)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(8, 32), torch.randn(32, 32)


def wrong_erf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp.CppVecOverrides, "erf", staticmethod(lambda x: f"{x}.tanh()"))


@pytest.mark.usefixtures("kept_wrappers")
def test_a_wrong_kernel_is_found_though_rounding_explains_the_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong_erf(monkeypatch)
    compiled, candidate = compiled_and_candidate(chaotic, *inputs())
    case = Case(as_function(candidate.module), candidate.inputs)
    comparison = judge(case, run(compiled, candidate.inputs, backward=False))
    assert comparison.is_right
    assert comparison.explained
    found = hidden_fault(candidate, compiled, tmp_path)
    assert found is not None
    assert found.kernel.startswith("cpp_fused_gelu")
    (alone,) = found.failures  # What the kernel computes is wrong on its own, too.
    assert [node.name for node in alone.candidate.operations] == ["gelu"]
    assert run(compiled, candidate.inputs, backward=False), "and the wrapper is as it was"


@pytest.mark.usefixtures("kept_wrappers")
def test_nothing_is_found_in_a_healthy_graph(tmp_path: Path) -> None:
    """Forward and backward, in a type with few digits."""
    x, w = (value.bfloat16().requires_grad_() for value in inputs())
    compiled, candidate = compiled_and_candidate(chaotic, x, w)
    assert len(KEPT.wrappers) == 2
    assert hidden_fault(candidate, compiled, tmp_path) is None
