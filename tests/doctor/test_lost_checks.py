"""Errors that eager raises and compiled code does not: found, located, shrunk and written down."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch._inductor.config
from torch._inductor import decomposition, lowering
from torch.fx import Graph

from inductoscope.doctor.failure import LOST_CHECK, SIGNAL, Failure, Location
from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.passes import PassStep, PassWatch, first_lost_check
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.doctor.further_checks import try_refused_call
from inductoscope.inside.repro.failure_script import expected_output, script_text, title_of
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.location import locate_error
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.shrink import INPUTS, NODES, Subject, apply_passes
from support.graphs import captured, numbers

NEGATIVE = "RuntimeError: there is a negative number"


@torch.library.custom_op("lost_checks::root", mutates_args=())
def root(x: torch.Tensor) -> torch.Tensor:
    """An operator with a check of its input's values, which no fake tensor has."""
    if bool((x < 0).any()):
        raise RuntimeError("there is a negative number")
    return x.sqrt()


@root.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


ROOT = torch.ops.lost_checks.root.default


def of_roots(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(root(torch.sin(x)) + 1)


def candidate_of(function: Callable[..., Any], *inputs: Any) -> Candidate:
    """A graph that eager refuses to run on these inputs, which Dynamo never looks at."""
    shapes = [torch.zeros_like(value) for value in inputs]
    return Candidate(captured(function, *shapes), inputs, eager_raises=True)


# --- faults ---------------------------------------------------------------------------------------


def unchecked(x: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(x)


def without_check(graph: Graph) -> None:
    for node in graph.nodes:
        if node.target is ROOT:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def lose_in(stage: str) -> AbstractContextManager[Any]:
    """Lose the check in one stage of the compiler."""
    if stage == "decomposition":
        decomposition.fast_random_decomps.cache_clear()
        return mock.patch.dict(decomposition.decompositions, {ROOT: unchecked})
    if stage == "post-grad-pass":
        return torch._inductor.config.patch(post_grad_custom_post_pass=without_check)
    if stage == "lowering":
        return mock.patch.dict(lowering.lowerings, {ROOT: lowering.lowerings[torch.ops.aten.sqrt]})
    return nullcontext()


def failure_of(candidate: Candidate) -> Failure:
    found = Oracle(Forks(), watch_kernels=True).failure(candidate)
    assert found is not None
    return found


def located(candidate: Candidate) -> Location:
    return locate_error(candidate, failure_of(candidate), Forks())


# --- what is found, and where ---------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["decomposition", "post-grad-pass", "lowering"])
def test_the_stage_that_loses_a_check_is_named(stage: str) -> None:
    candidate = candidate_of(of_roots, torch.full((8,), -0.5))
    with lose_in(stage):
        failure, place = failure_of(candidate), located(candidate)
    assert (failure.kind, failure.eager_error, failure.aspect) == (LOST_CHECK, NEGATIVE, "")
    assert (failure.detail, place.stage) == ("root_default", stage)
    assert place.operation == "lost_checks.root.default"
    assert place.how


def test_an_error_that_compiled_code_raises_as_well_is_no_failure() -> None:
    candidate = candidate_of(of_roots, torch.full((8,), -0.5))
    assert Oracle(Forks()).failure(candidate) is None


def test_a_graph_that_eager_runs_shows_no_lost_check() -> None:
    with lose_in("decomposition"):
        assert Oracle(Forks()).failure(candidate_of(of_roots, torch.full((8,), 0.5))) is None


def rows(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    return x[where]


def test_an_error_that_cannot_leave_a_parallel_loop_ends_the_process() -> None:
    """pytorch#195402: the generated loop checks its indices where nobody can catch the error."""
    candidate = candidate_of(rows, torch.ones(1, 8, 66, 66), torch.tensor([[1]]))
    failure, place = failure_of(candidate), located(candidate)
    assert (failure.kind, failure.aspect) == (SIGNAL, "SIGABRT")
    assert failure.eager_error.startswith("IndexError: index 1 is out of bounds")
    assert (place.stage, place.operation) == ("codegen", "aten.index.Tensor")
    assert "in one thread, the kernel raises RuntimeError: index out of bounds" in place.text


def gathered(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, 0, where)


def test_an_error_in_a_parallel_loop_may_be_the_very_one_that_eager_raises() -> None:
    candidate = candidate_of(gathered, torch.ones(1, 40000), torch.ones(1, 40000).long())
    failure, place = failure_of(candidate), located(candidate)
    assert (failure.kind, failure.detail) == (SIGNAL, "gather")
    assert failure.eager_error.startswith("RuntimeError: ")
    assert (place.stage, place.operation) == ("codegen", "aten.gather.default")


def test_an_error_of_another_type_is_a_check_of_the_generated_code() -> None:
    candidate = candidate_of(rows, torch.ones(4, 3), torch.tensor([7]))
    failure, place = failure_of(candidate), located(candidate)
    assert (failure.kind, failure.aspect) == (LOST_CHECK, "RuntimeError")
    assert (place.stage, place.operation) == ("codegen", "aten.index.Tensor")


@pytest.mark.parametrize(
    ("stage", "kind", "still_raises"),
    [
        ("pre-grad-pass", "RuntimeError", None),
        ("post-grad-pass", "RuntimeError", True),
        ("post-grad-pass", "Exception", True),
        ("post-grad-pass", "IndexError", False),
    ],
)
def test_only_a_decomposed_graph_shows_that_the_error_is_still_raised(
    stage: str, kind: str, still_raises: bool | None
) -> None:
    module = candidate_of(of_roots, torch.full((8,), -0.5)).module
    watch = PassWatch([[PassStep(stage, "", module)]])
    assert first_lost_check(watch, [torch.full((8,), -0.5)], kind) == (None, still_raises)


# --- the smallest graph, and its script -----------------------------------------------------------


def two_checks(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The second check is never reached in eager."""
    first = root(torch.sin(x) * 2)
    return torch.cos(first), torch.nn.functional.binary_cross_entropy(y, y + first)


def test_shrinking_keeps_the_check_that_is_lost() -> None:
    candidate = candidate_of(two_checks, torch.full((8,), -0.5), torch.full((8,), 0.5))
    oracle = Oracle(Forks())
    with lose_in("decomposition"):
        failure = failure_of(candidate)
        subject = Subject(candidate, failure, [["root_default"]])
        *_, last = apply_passes(subject, oracle, (NODES, INPUTS))
    smallest = last.candidate
    assert [str(node.target) for node in smallest.operations] == ["lost_checks.root.default"]
    assert not oracle.mistakes


def test_a_script_ends_with_1_where_the_check_is_lost(tmp_path: Path) -> None:
    """pytorch#193757: the decomposition has no check of the targets."""

    def loss(target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy(torch.ones_like(target), target)

    candidate = replace(
        candidate_of(loss, torch.full((2,), 1.5)), recipes=("torch.full((2,), 1.5)",)
    )
    failure = failure_of(candidate)
    script = tmp_path / "repro.py"
    script.write_text(script_text(candidate, failure, title_of(failure, "", ["loss"])))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert all(text in ended.stdout for text in expected_output(failure))
    raised = "RuntimeError: all elements of target should be between 0 and 1"
    assert f"eager: raises {raised}\ncompiled: returns -50.0\n" in ended.stdout


# --- calls of the program -------------------------------------------------------------------------


def compared(
    function: Callable[..., Any], compiled: Callable[..., Any], given: Any, *, copy: Any = None
) -> tuple[bool, Failure | None]:
    """Compare a call that eager refuses with a stand-in for compiled code."""
    graph = as_function(torch.fx.symbolic_trace(function))
    case = Case(graph, [given if copy is None else copy])
    assert case.eager_error is not None
    return try_refused_call(case.eager_error, case, compiled, [given])


def refuses(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy(x, x)


def of_type(error: Exception) -> Callable[..., Any]:
    def compiled(x: torch.Tensor) -> torch.Tensor:
        raise error

    return compiled


OUTSIDE = torch.full((2,), 1.5)


def test_compiled_code_that_returns_where_eager_raises() -> None:
    is_compared, failure = compared(refuses, torch.sin, OUTSIDE)
    assert is_compared
    assert failure is not None
    assert failure.text.endswith("; compiled code returns")


@pytest.mark.parametrize("error", [RuntimeError("in other words"), NotImplementedError("of it")])
def test_an_error_that_the_same_clause_catches_is_no_difference(error: Exception) -> None:
    assert compared(refuses, of_type(error), OUTSIDE) == (True, None)


def test_an_error_of_another_type_is_told_with_its_type() -> None:
    _, failure = compared(refuses, of_type(IndexError("out of it")), OUTSIDE)
    assert failure is not None
    assert (failure.kind, failure.aspect) == (LOST_CHECK, "IndexError")


def test_a_type_that_eager_has_no_kernel_for_is_no_check() -> None:
    """Inductor generates code that adds numbers of this type."""

    def add(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert compared(add, torch.clone, torch.ones(3, dtype=torch.uint32)) == (False, None)


def test_an_error_that_only_copies_of_the_inputs_have_is_not_the_programs() -> None:
    """A copy is a leaf, which autograd lets nobody write to; the program's own tensor is none."""

    def add(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    leaf = numbers(3).requires_grad_()
    assert compared(add, torch.sin, leaf * 1, copy=leaf) == (False, None)


def test_a_lack_of_memory_is_not_the_programs() -> None:
    case = Case(torch.sin, [OUTSIDE])
    assert try_refused_call(torch.OutOfMemoryError("no"), case, torch.sin, [OUTSIDE]) == (
        False,
        None,
    )
