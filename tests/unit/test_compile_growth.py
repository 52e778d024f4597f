"""Whether compile time explodes: by how it grows, or beside plain graphs, never in seconds."""

from __future__ import annotations

import random

import pytest

from inductoscope.profiling.compile_growth import (
    CompileCost,
    between,
    certain_explosion,
    explosion_of,
    growth_of,
    growth_of_all,
    quickest_of,
)
from inductoscope.torch_facts import stages

SIZES = (12, 24, 48, 96)


def linear(nodes: int) -> float:
    """Seconds of torch's own code for a healthy graph, here in one stage."""
    return 0.1 + 0.01 * nodes


def plain(speed: float = 1.0) -> list[CompileCost]:
    """Plain graphs on a machine of some speed; the C++ compiler takes about as long for each."""
    return [CompileCost(n, {stages.LOWERING: linear(n) / speed}, 2.5 / speed) for n in (3, 240)]


def noisy(seconds: float, seed: int) -> float:
    return seconds * random.Random(seed).uniform(0.9, 1.1)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0])
def test_the_exponent_of_a_stage_lies_in_the_interval(power: float) -> None:
    costs = [CompileCost(n, {stages.SCHEDULER: noisy(0.002 * n**power, n) + 0.05}) for n in SIZES]
    growth = growth_of(stages.SCHEDULER, costs, least=0.05)
    assert growth is not None
    assert growth.low <= power <= growth.high
    assert growth.is_known


def test_noise_that_hides_how_a_stage_grows_shows_in_the_interval() -> None:
    seconds = (0.4, 0.1, 0.9, 0.2)
    costs = [CompileCost(n, {stages.CODEGEN: s}) for n, s in zip(SIZES, seconds, strict=True)]
    growth = growth_of(stages.CODEGEN, costs)
    assert growth is not None
    assert not growth.is_known


def test_two_sizes_say_nothing_about_growth() -> None:
    costs = [CompileCost(n, {stages.CODEGEN: 1.0}) for n in SIZES[:2]]
    assert growth_of(stages.CODEGEN, costs) is None
    assert growth_of_all([], None) == []


@pytest.mark.parametrize("speed", [0.2, 1.0, 5.0])
def test_a_healthy_graph_does_not_explode_on_any_machine(speed: float) -> None:
    costs = [CompileCost(n, {stages.LOWERING: 2 * linear(n) / speed}) for n in SIZES]
    assert explosion_of(costs, plain(speed)) is None


@pytest.mark.parametrize("speed", [0.2, 1.0, 5.0])
def test_a_stage_that_alone_takes_longer_than_whole_plain_compiles_is_out_of_proportion(
    speed: float,
) -> None:
    """A slow machine is slow for plain graphs, too: only the ratio counts."""
    cost = CompileCost(8, {stages.LOWERING: 0.1 / speed, stages.CODEGEN: 40 / speed})
    found = explosion_of([cost], plain(speed))
    assert found is not None
    assert (found.stage, round(found.times)) == (stages.CODEGEN, 15)


def test_a_stage_that_is_slow_for_every_graph_is_slow_beside_the_other_stages() -> None:
    """Then plain graphs are slow, too, and must not be what to expect."""
    everywhere = [
        CompileCost(n, {stages.LOWERING: linear(n), stages.CODEGEN: 30.0}, 2.5) for n in (3, 240)
    ]
    found = explosion_of([CompileCost(8, {stages.LOWERING: 0.1, stages.CODEGEN: 30.0})], everywhere)
    assert found is not None
    assert (found.stage, round(found.times)) == (stages.CODEGEN, 10)


def test_an_explosion_is_named_while_it_is_small_if_it_grows_steeply() -> None:
    """Quadratic, most of the time, and already longer than a whole plain compile."""
    costs = [
        CompileCost(n, {stages.LOWERING: linear(n), stages.SCHEDULER: 0.0005 * n * n})
        for n in SIZES
    ]
    found = explosion_of(costs, plain())
    assert found is not None
    assert found.stage == stages.SCHEDULER
    assert found.growth is not None
    assert 1.9 < found.growth.exponent < 2.1


def test_a_steep_stage_that_takes_little_is_no_explosion() -> None:
    costs = [
        CompileCost(n, {stages.LOWERING: linear(n), stages.SCHEDULER: 0.00005 * n * n})
        for n in SIZES
    ]
    assert explosion_of(costs, plain()) is None


def test_many_kernels_are_no_slow_compiler_but_one_kernel_may_be() -> None:
    """Native compilers run side by side: each call is compared with that for a plain kernel."""
    many = CompileCost(60, {stages.LOWERING: 0.7, stages.CPP_COMPILE: 30.0}, 2.5)
    assert explosion_of([many], plain()) is None
    one = CompileCost(60, {stages.LOWERING: 0.7, stages.CPP_COMPILE: 30.0}, 30.0)
    found = explosion_of([one], plain())
    assert found is not None
    assert (found.stage, round(found.times)) == (stages.CPP_COMPILE, 12)


def test_what_had_to_be_ended_took_at_least_that_long() -> None:
    ended = CompileCost(24, {stages.SCHEDULER: 30.0}, ended_in=stages.SCHEDULER)
    found = explosion_of([CompileCost(12, {stages.SCHEDULER: 2.0}), ended], plain())
    assert found is not None
    assert found.is_at_least


def test_tuning_is_what_was_asked_for() -> None:
    cost = CompileCost(4, {stages.AUTOTUNE: 90.0, stages.LOWERING: 0.1})
    assert explosion_of([cost], plain()) is None


def test_plain_graphs_of_other_sizes_lie_on_a_line() -> None:
    python, native = between(plain(), 120)
    assert (round(python, 2), native) == (1.30, 2.5)


# --- a busy machine, and one that is busy now and then --------------------------------------------


def busy(nodes: int, seconds: float, *, idle: float) -> CompileCost:
    """A stage that takes so long here, and so long on an idle machine."""
    return CompileCost(
        nodes,
        {stages.LOWERING: 0.1, stages.SCHEDULER: seconds},
        2.5,
        undelayed={stages.LOWERING: 0.1, stages.SCHEDULER: idle, stages.CPP_COMPILE: 2.5},
    )


def test_a_stage_that_only_waits_for_a_processor_is_not_slow() -> None:
    graph = busy(8, 20.0, idle=2.0)
    assert explosion_of([graph], plain()) is not None  # Seconds alone would accuse it.
    assert certain_explosion([graph], plain()) is None
    assert certain_explosion([busy(8, 20.0, idle=19.5)], plain()) is not None


def test_the_worst_plain_compile_and_the_best_of_the_graph_count() -> None:
    """A machine that was busy during one of them does not make a graph slow."""
    slow_once = quickest_of(
        CompileCost(24, {stages.SCHEDULER: 30.0}), CompileCost(24, {stages.SCHEDULER: 0.4})
    )
    assert explosion_of([slow_once], plain()) is None
    graph = CompileCost(24, {stages.SCHEDULER: 10.0})
    assert explosion_of([graph], plain()) is not None
    assert explosion_of([graph], [*plain(), *plain(speed=0.2)]) is None
    as_many = CompileCost(24, {stages.LOWERING: 9.0})  # Measured just beside it.
    assert explosion_of([graph], [*plain(), as_many]) is None


def test_one_that_finished_says_more_than_one_that_was_ended() -> None:
    ended = CompileCost(24, {stages.SCHEDULER: 30.0}, ended_in=stages.SCHEDULER)
    finished = CompileCost(24, {stages.SCHEDULER: 1.0})
    assert quickest_of(ended, finished) is finished
    assert quickest_of(finished, ended) is finished
    assert quickest_of(ended, ended).ended_in == stages.SCHEDULER


def test_the_compile_that_was_ended_is_judged_however_few_nodes_it_had() -> None:
    """Four nodes that the smaller part does not have may become thousands."""
    finished = CompileCost(40, {stages.SCHEDULER: 0.5})
    ended = CompileCost(24, {stages.SCHEDULER: 30.0}, ended_in=stages.SCHEDULER)
    found = explosion_of([finished, ended], plain())
    assert found is not None
    assert (found.nodes, found.is_at_least) == (24, True)
    thousands = CompileCost(4000, {stages.SCHEDULER: 30.0}, ended_in=stages.SCHEDULER)
    assert explosion_of([finished, thousands], plain()) is None


def test_a_graph_that_computes_for_long_is_no_slow_compile() -> None:
    ended = CompileCost(24, {stages.RUNTIME: 60.0}, ended_in=stages.RUNTIME)
    assert explosion_of([ended], plain()) is None


def test_the_stage_that_usually_takes_most_is_expected_to() -> None:
    """Generating code takes longer than all else for plain graphs as well."""
    usual = [
        CompileCost(n, {stages.LOWERING: linear(n), stages.CODEGEN: 2 * linear(n)}, 2.5)
        for n in (3, 240)
    ]
    assert round(between(usual, 240, stages.CODEGEN)[0], 1) == 7.5
