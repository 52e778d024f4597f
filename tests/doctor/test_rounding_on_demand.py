"""What rounding explains is looked at only where something is not close, as little as will do."""

from __future__ import annotations

import torch

from inductoscope.inside.compare.bug_or_rounding import judge
from inductoscope.inside.compare.graphs import NodeValues
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import nodes_that_draw, run
from support.graphs import captured


def cancelling(x: torch.Tensor) -> torch.Tensor:
    """What is left of large numbers is mostly rounding."""
    return (x + 1e6) - 1e6


def test_values_that_are_close_need_no_sample() -> None:
    x = torch.randn(64)
    case = Case(torch.exp, [x])
    assert judge(case, run(torch.exp, [x], backward=False)).is_right
    assert case.samples == []


def test_one_sample_is_enough_where_it_explains_the_difference() -> None:
    x = torch.tensor([0.3, 0.7, -0.2, 1.1])
    case = Case(cancelling, [x])
    compiled = run(lambda x: x.clone(), [x], backward=False)
    found = judge(case, compiled)
    assert found.is_right
    assert found.explained
    assert len(case.samples) == 1


def test_a_wrong_value_is_held_against_all_samples() -> None:
    x = torch.randn(64)
    case = Case(torch.exp, [x])
    found = judge(case, run(lambda x: torch.exp(x) * 1.1, [x], backward=False))
    assert not found.is_right
    assert len(case.samples) == 3


def test_values_of_nodes_that_are_asked_for_later_draw_the_same_numbers() -> None:
    graph = captured(lambda x: torch.rand_like(x) + x, torch.zeros(8))
    values = NodeValues(graph, [torch.zeros(8)])
    torch.rand(3)  # The program goes on, and draws numbers of its own.
    drawn = next(name for name in values.eager if "rand" in name)
    assert torch.equal(values.samples(drawn, 1)[0], values.eager[drawn])


def test_of_nodes_that_draw_numbers_alike_the_first_is_named() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + torch.rand_like(x) + torch.rand_like(x[:2]).sum() + x

    graph = captured(noisy, torch.zeros(8))
    assert len(nodes_that_draw(graph, [torch.zeros(8)])) == 2
    assert nodes_that_draw(captured(torch.exp, torch.zeros(8)), [torch.zeros(8)]) == []
