"""A compile that takes too long: measured in a fork, repeated, and put into a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._inductor import lowering
from torch._inductor.scheduler import Scheduler

from inductoscope.inside.repro.failure_script import slow_compile_text
from inductoscope.inside.repro.replaced_functions import replaced_functions_text
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.compile_costs import (
    CHAINED,
    SIDE_BY_SIDE,
    measured_in,
    plain_candidate,
    plain_sizes,
    repeated,
)
from inductoscope.inside.search.forks import ForkAnswer, ForkUse
from inductoscope.inside.search.stack_samples import function_name
from inductoscope.recording.events import Entry, Event, NativeStart, StageStart
from inductoscope.torch_facts import stages

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
    copies, joined = repeated(candidate(lambda x: torch.sin(x) * 2, x), 3)
    assert (joined, copies.size) == (CHAINED, 6)
    (*_, last) = copies.module(*copies.inputs)
    expected = x
    for _ in range(3):
        expected = torch.sin(expected) * 2
    torch.testing.assert_close(last, expected)


def test_copies_lie_side_by_side_where_none_fits() -> None:
    copies, joined = repeated(candidate(lambda x: torch.sin(x).sum(-1), torch.rand(4, 5)), 3)
    assert (joined, copies.size) == (SIDE_BY_SIDE, 6)
    assert len(copies.inputs) == 3
    assert len(copies.module(*copies.inputs)) == 3


# --- what is known of a compile that was ended ----------------------------------------------------


def ended(*entries: tuple[float, Event], used: ForkUse, nodes: int = 0) -> ForkAnswer:
    """A fork that was ended after 40 s."""
    answer = ForkAnswer(timed_out=True, seconds=40.0, used=used)
    answer.entries = [Entry("", n, time, event) for n, (time, event) in enumerate(entries)]
    answer.notes = [{"lowered": 1} for _ in range(nodes)]
    answer.entered_at = entries[0][0]
    return answer


FOUR = candidate(lambda x: torch.sin(x).cos().exp().tanh(), torch.rand(4, 4))
SCHEDULING = StageStart(stage=stages.SCHEDULER)
NATIVE = NativeStart(tool="c++", source="/x.cpp")


def test_nodes_count_as_lowered_even_if_the_compile_was_ended() -> None:
    answer = ended((10.0, SCHEDULING), used=ForkUse(39.0, 0.5), nodes=3000)
    cost = measured_in(answer, FOUR).cost
    assert (cost.nodes, cost.ended_in) == (3000, stages.SCHEDULER)
    assert cost.stages[stages.SCHEDULER] == 30.0
    assert cost.undelayed[stages.SCHEDULER] == 29.5


def test_a_compile_that_was_ended_on_a_busy_machine_has_computed_little() -> None:
    cost = measured_in(ended((10.0, SCHEDULING), used=ForkUse(14.0, 26.0)), FOUR).cost
    assert cost.undelayed[stages.SCHEDULER] == 4.0


def test_a_native_compiler_that_was_ended_took_until_then() -> None:
    waiting = StageStart(stage=stages.CPP_COMPILE)
    answer = ended((5.0, waiting), (5.0, NATIVE), used=ForkUse(5.0, 0.1, slowest_child=33.0))
    cost = measured_in(answer, FOUR).cost
    assert cost.native == 35.0
    assert cost.on_idle_machine.native == 33.0


def test_what_was_ended_outside_of_every_stage_is_not_judged() -> None:
    answer = ForkAnswer(timed_out=True, seconds=40.0, used=ForkUse(40.0, 0.0))
    assert measured_in(answer, FOUR).error


def test_plain_graphs_are_as_large_as_the_graph_and_as_dynamic() -> None:
    assert plain_sizes(1000, backward=False) == (3, 1000)
    assert plain_sizes(1000, backward=True) == (3, 500)
    assert plain_sizes(4, backward=False) == (12,)
    assert plain_candidate(3, replace(FOUR, dynamic=True)).dynamic is True
    assert plain_candidate(3, FOUR).dynamic is None


@pytest.mark.parametrize("backward", [False, True])
def test_the_script_holds_a_graph_against_as_many_nodes_as_it_is_lowered_to(backward: bool) -> None:
    text = slow_compile_text(replace(FOUR, backward=backward), "torch.compile(fn)", "", 3000)
    compile(text, "script.py", "exec")
    assert f"for _ in range({1500 if backward else 3000}):" in text
    assert f"requires_grad={backward}" in text
    assert "usual.append(plain_seconds())" in text
