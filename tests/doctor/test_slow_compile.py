"""A compile that takes too long: measured in a fork, repeated, and put into a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._inductor import lowering
from torch._inductor.scheduler import Scheduler

from inductoscope.doctor.repro.replaced_functions import replaced_functions_text
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.growing_graphs import CHAINED, SIDE_BY_SIDE, repeated
from inductoscope.doctor.search.stack_samples import function_name

ERF = torch.ops.aten.erf.default
can_fuse_of_torch = Scheduler.can_fuse
erf_of_torch = lowering.lowerings[ERF]


def slow_can_fuse(self: Any, one: Any, two: Any, *args: Any, **kwargs: Any) -> Any:
    time.sleep(0.1)
    return can_fuse_of_torch(self, one, two, *args, **kwargs)


def slow_erf(*args: Any, **kwargs: Any) -> Any:
    time.sleep(9)
    return erf_of_torch(*args, **kwargs)


@pytest.fixture
def _replaced() -> Iterator[None]:
    Scheduler.can_fuse = slow_can_fuse
    lowering.lowerings[ERF] = slow_erf
    yield
    Scheduler.can_fuse = can_fuse_of_torch
    lowering.lowerings[ERF] = erf_of_torch


@pytest.mark.usefixtures("_replaced")
@pytest.mark.parametrize(
    ("function", "lines"),
    [
        (
            slow_can_fuse,
            (
                "can_fuse_of_torch = torch._inductor.scheduler.Scheduler.can_fuse",
                "    torch._inductor.scheduler.Scheduler.can_fuse = slow_can_fuse",
            ),
        ),
        (
            slow_erf,
            (
                "erf_of_torch = torch._inductor.lowering.lowerings[torch.ops.aten.erf.default]",
                "    torch._inductor.lowering.lowerings[torch.ops.aten.erf.default] = slow_erf",
            ),
        ),
    ],
)
def test_a_script_replaces_what_the_program_has_replaced(
    function: Any, lines: tuple[str, ...]
) -> None:
    """Otherwise a slow function of the program could not be shown without the program."""
    text = replaced_functions_text([function_name(function.__code__)])
    compile(text, "script.py", "exec")
    assert [line for line in lines if line not in text.splitlines()] == []


def test_functions_of_torch_itself_need_not_be_copied() -> None:
    assert replaced_functions_text([function_name(can_fuse_of_torch.__code__)]) == ""


def candidate(function: Any, *inputs: torch.Tensor) -> Candidate:
    module = torch.fx.symbolic_trace(function)
    torch.fx.passes.shape_prop.ShapeProp(module).propagate(*inputs)
    for node in module.graph.nodes:
        made = node.meta.get("tensor_meta")
        if made is not None:
            node.meta["val"] = torch.empty(made.shape, dtype=made.dtype)
    return Candidate(module, inputs)


def test_copies_of_a_graph_follow_each_other_where_a_result_fits() -> None:
    x = torch.rand(4, 4)
    copies = repeated(candidate(lambda x: torch.sin(x) * 2, x), 3)
    assert (copies.joined, copies.candidate.size) == (CHAINED, 6)
    (*_, last) = copies.candidate.module(*copies.candidate.inputs)
    expected = x
    for _ in range(3):
        expected = torch.sin(expected) * 2
    torch.testing.assert_close(last, expected)


def test_copies_lie_side_by_side_where_none_fits() -> None:
    copies = repeated(candidate(lambda x: torch.sin(x).sum(-1), torch.rand(4, 5)), 3)
    assert (copies.joined, copies.candidate.size) == (SIDE_BY_SIDE, 6)
    assert len(copies.candidate.inputs) == 3
    assert len(copies.candidate.module(*copies.candidate.inputs)) == 3
