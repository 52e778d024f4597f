"""Results that differ by themselves from call to call, and random numbers.

A plain Python function stands for the compiled one, so nothing is compiled here.
"""

from __future__ import annotations

import itertools

import torch

from inductoscope.inside.compare.bug_or_rounding import EagerComparison
from support.judging import judged, numbers, wrong_kinds


def test_a_function_that_never_gives_the_same_is_held_against_nobody() -> None:
    counter = itertools.count()
    comparison = judged(lambda x: x + next(counter), lambda x: x + 100, numbers(3))
    assert comparison.is_right
    assert comparison.reason == "eager itself gives another result every time"
    assert len(comparison.explained) == 1


def test_sums_in_any_order_are_compared_all_the_same() -> None:
    """As on a GPU, where many threads add to one element."""
    counter = itertools.count()

    def added(x: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(next(counter)))
        total = torch.zeros_like(x[0])
        for term in x[order]:
            total = total + term
        return total

    large = numbers(60, 8) * 1e4
    terms = torch.cat([large, -large, numbers(2, 8)])
    assert not torch.allclose(added(terms), added(terms), rtol=1.3e-6, atol=1e-5)
    assert judged(added, added, terms).is_right
    assert wrong_kinds(judged(added, lambda x: added(x) * 1.5, terms)) == ["value"]


def test_a_wrong_type_is_wrong_even_of_a_function_that_never_gives_the_same() -> None:
    counter = itertools.count()
    comparison = judged(lambda x: (x + next(counter), x), lambda x: (x, x.double()), numbers(3))
    assert "dtype" in wrong_kinds(comparison)


def test_memory_that_no_one_has_written_may_hold_anything() -> None:
    assert judged(lambda: torch.empty(64), lambda: torch.ones(64)).is_right
    assert judged(lambda: torch.empty(64) * 2 + 1, lambda: torch.ones(64)).is_right
    # What is written later does not depend on it.
    comparison = judged(lambda: torch.empty(64).fill_(2.0), lambda: torch.ones(64))
    assert wrong_kinds(comparison) == ["value"]


def test_random_numbers_are_the_same_for_both() -> None:
    before = torch.get_rng_state()

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)

    assert judged(noisy, lambda x: torch.rand(3) + x, numbers(3)) == EagerComparison(values=2)
    assert torch.equal(torch.get_rng_state(), before), "the program's generator is left alone"


def test_random_numbers_explain_nothing() -> None:
    torch.manual_seed(0)

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    assert wrong_kinds(judged(noisy, lambda x: noisy(x) + 0.5, numbers(64))) == ["value"]
