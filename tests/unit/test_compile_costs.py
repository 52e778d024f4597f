"""Processor time of a stage, and time spent waiting for a processor, which is no slowness."""

from __future__ import annotations

import threading
import time

import pytest

from inductoscope.inside.search.compile_costs import StageClocks, is_calm, native_undelayed
from inductoscope.inside.search.stack_samples import StackSampler, hot_path
from inductoscope.processes.status import thread_delay


def work(seconds: float) -> None:
    """Compute for so long, however busy the machine is."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_stage_counts_without_its_inner_stages() -> None:
    clocks = StageClocks()
    clocks.enter()
    clocks.enter()
    work(0.1)
    inner, outer = clocks.leave(), clocks.leave()
    assert inner is not None
    assert outer is not None
    assert inner >= 0.09
    assert outer < inner / 2


@pytest.mark.skipif(thread_delay() is None, reason="the system does not say who waits")
def test_a_sleep_is_no_wait_for_a_processor() -> None:
    clocks = StageClocks()
    clocks.enter()
    time.sleep(0.2)
    spent = clocks.leave()
    assert spent is not None
    assert spent >= 0.15


def test_a_stage_that_was_not_seen_to_begin_is_left_out() -> None:
    assert StageClocks().leave() is None


@pytest.mark.parametrize(
    ("seconds", "used", "others", "calm", "undelayed"),
    [
        (30.0, 29.0, 0.0, True, 29.0),
        (30.0, 29.0, 0.0, False, 29.0),
        (30.0, 5.0, 0.0, False, 5.0),  # The machine was busy: it got 5 of 30 seconds.
        (30.0, 0.1, 0.0, True, 30.0),  # It was not: the compiler waits for something.
        (30.0, 40.0, 35.0, True, 5.0),  # Others may have used all but 5 s.
    ],
)
def test_a_native_compiler_counts_with_what_it_has_used_at_least(
    seconds: float, used: float, others: float, calm: bool, undelayed: float
) -> None:
    assert native_undelayed(seconds, used, others, is_calm=calm) == undelayed


def test_a_machine_is_calm_where_stages_hardly_wait_for_a_processor() -> None:
    assert is_calm({"lowering": 1.0, "codegen": 2.0}, {"lowering": 0.9, "codegen": 1.9})
    assert not is_calm({"lowering": 1.0, "codegen": 2.0}, {"lowering": 0.5, "codegen": 1.0})
    assert not is_calm({}, {})


# --- Which function the samples of a stack agree on -----------------------------------------------


FUSE = "Scheduler.fuse_nodes (torch/_inductor/scheduler.py:100)"
PAIR = "Scheduler.can_fuse (torch/_inductor/scheduler.py:200)"
SIMPLIFY = "SizeVars.simplify (torch/_inductor/sizevars.py:30)"
FLATTEN = "Add.flatten (sympy/core/add.py:1)"
EXPAND = "expand (sympy/core/expr.py:1)"


def test_the_innermost_function_that_most_samples_agree_on_is_named() -> None:
    found = hot_path([[FUSE, PAIR]] * 8 + [[FUSE, SIMPLIFY]] * 2)
    assert (found.function, found.share, found.samples) == (PAIR, 0.8, 10)


def test_where_samples_part_their_caller_is_named() -> None:
    found = hot_path([[FUSE, PAIR]] * 5 + [[FUSE, SIMPLIFY]] * 5)
    assert (found.function, found.share) == (FUSE, 1.0)


def test_a_function_that_several_others_call_is_named_behind_them() -> None:
    first = [[FUSE, "all_pairs (torch/_inductor/scheduler.py:1)", PAIR, SIMPLIFY]] * 5
    found = hot_path(first + [[FUSE, "once (torch/_inductor/scheduler.py:2)", PAIR]] * 5)
    assert (found.function, found.share) == (PAIR, 1.0)


def test_a_function_of_the_compiler_is_named_rather_than_one_of_its_libraries() -> None:
    found = hot_path([[FUSE, SIMPLIFY, FLATTEN, EXPAND]] * 10)
    assert found.function == SIMPLIFY
    assert found.functions[0] == EXPAND


def test_no_samples_name_nothing() -> None:
    assert hot_path([]).function == ""


def slow_part(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1000))


def test_a_thread_is_sampled_while_it_works() -> None:
    sampler = StackSampler(threading.get_ident(), lambda thread: "lowering")
    with sampler.running():
        slow_part(time.monotonic() + 0.3)
    found = hot_path(sampler.stacks["lowering"])
    assert found.function.startswith("slow_part (")
