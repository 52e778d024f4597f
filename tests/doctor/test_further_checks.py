"""Calls that seem right: examined again, in forks and under other conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
import torch.nn.functional as F
from torch._inductor.codecache import PyCodeCache
from torch._inductor.codegen import cpp
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering

from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.compare.bug_or_rounding import judge
from inductoscope.inside.compare.graphs import as_function, snapshot
from inductoscope.inside.compare.kernels import KEPT_WRAPPERS
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import draws_random_numbers, run
from inductoscope.inside.doctor.checking_agent import checking_hooks
from inductoscope.inside.doctor.further_checks import (
    failure_with_inductor_random_numbers,
    hidden_fault,
)
from inductoscope.inside.repro.failure_script import script_text
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate
from support.graphs import captured, numbers


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in every program under the doctor: a fork has no other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# A wrong kernel under differences that rounding explains: it counts if the graph has it, too.


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
    KEPT_WRAPPERS.wrappers.clear()


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
    assert (alone.failure.text, alone.failure.values) == (found.text, ()), "as in the program"
    assert alone.location is not None
    assert alone.location.kernel == found.kernel
    assert run(compiled, candidate.inputs, backward=False), "and the wrapper is as it was"


@pytest.mark.usefixtures("kept_wrappers")
def test_nothing_is_found_in_a_healthy_graph(tmp_path: Path) -> None:
    """Forward and backward, in a type with few digits."""
    x, w = (value.bfloat16().requires_grad_() for value in inputs())
    compiled, candidate = compiled_and_candidate(chaotic, x, w)
    assert len(KEPT_WRAPPERS.wrappers) == 2
    assert hidden_fault(candidate, compiled, tmp_path) is None


# Graphs that draw random numbers: compared by form as Inductor compiles them without the tool.


@pytest.mark.parametrize(
    ("function", "draws"),
    [
        (lambda x: F.dropout(x, 0.5), True),
        (lambda x: F.dropout(x, 0.5, training=False), False),
        (lambda x: torch.rand_like(x) + x, True),
        (lambda x: F.normalize(x), False),
        (lambda x: F.scaled_dot_product_attention(*[x.expand(1, 1, 3, 4)] * 3), False),
        (lambda x: F.scaled_dot_product_attention(*[x.expand(1, 1, 3, 4)] * 3, None, 0.5), True),
        (lambda x: x.clone().normal_(generator=torch.Generator()), True),
    ],
    ids=[
        "dropout",
        "dropout that is off",
        "rand_like",
        "normalize",
        "attention",
        "attention with dropout",
        "a generator of its own",
    ],
)
def test_whether_random_numbers_are_drawn_is_seen_in_a_run(
    function: Callable[..., Any], draws: bool
) -> None:
    state = torch.get_rng_state()
    assert draws_random_numbers(function, [numbers(3, 4)]) is draws
    assert torch.equal(torch.get_rng_state(), state)


def sample(mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    return torch.normal(mean, spread)


def candidate_of(function: Callable[..., Any], *inputs: Any) -> Candidate:
    return Candidate(captured(function, *inputs), inputs)


@pytest.mark.usefixtures("bugs_of_torch")
def test_random_numbers_of_another_type_than_eagers() -> None:
    """pytorch#194547, which is not to be seen where compiled code draws eager's numbers."""
    (found,) = failure_with_inductor_random_numbers(
        candidate_of(sample, torch.ones(2).half(), torch.ones(2))
    )
    assert (found.failure.kind, found.failure.aspect) == (WRONG, "dtype")
    assert found.candidate.draws_inductor_random_numbers
    assert found.condition == "with Inductor's own random numbers"


@pytest.mark.parametrize(
    "function", [lambda x: F.dropout(x, 0.5), lambda x: x + 1], ids=["other numbers", "none"]
)
def test_other_numbers_in_the_same_form_are_right(function: Callable[..., Any]) -> None:
    assert not list(failure_with_inductor_random_numbers(candidate_of(function, numbers(4))))


def test_a_script_about_random_numbers_compares_their_form() -> None:
    found = replace(
        candidate_of(sample, torch.ones(2).half(), torch.ones(2)),
        config={"fallback_random": False},
        recipes=("torch.ones(2).half()", "torch.ones(2)"),
    )
    text = script_text(found, Failure(WRONG, "text", aspect="dtype"), "title")
    assert "fallback_random" not in text
    assert "return [(end.dtype, end.shape) for end in ends]" in text
    assert "assert compiled == eager" in text
    strides = script_text(found, Failure(WRONG, "text", aspect="stride"), "title")
    assert "return [(end.dtype, end.shape, end.stride()) for end in ends]" in strides


def test_a_script_about_values_draws_eagers_numbers() -> None:
    found = replace(
        candidate_of(lambda x: F.dropout(x, 0.5), numbers(3)),
        config={"fallback_random": True},
        recipes=("torch.ones(3)",),
    )
    text = script_text(found, Failure(WRONG, "text", aspect="value"), "title")
    assert "torch._inductor.config.fallback_random = True" in text
    assert "    arguments = inputs()\n    torch.manual_seed(0)\n    outputs = " in text
