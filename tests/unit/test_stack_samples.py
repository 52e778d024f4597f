"""Which function the samples of a stack agree on."""

from __future__ import annotations

import threading
import time

from inductoscope.inside.search.stack_samples import StackSampler, hot_path

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
