"""Searches over subsets and numbers: what they find, and how many attempts they take."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inductoscope.doctor.delta_debugging import last_needed, smallest_subset

Holds = Callable[[Sequence[int]], bool]


class Counting:
    """A predicate that tries attempts one after the other, and counts them."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.attempts: list[list[int]] = []

    def __call__(self, attempts: Sequence[Sequence[int]]) -> int | None:
        for number, attempt in enumerate(attempts):
            self.attempts.append(list(attempt))
            if self._holds(attempt):
                return number
        return None


def needs_all_of(needed: set[int]) -> Holds:
    return lambda attempt: needed <= set(attempt)


def halvings(count: int) -> int:
    """How often `count` items can be halved until one is left."""
    return (count - 1).bit_length()


@st.composite
def items_and_needed(draw: st.DrawFn) -> tuple[list[int], set[int]]:
    items = list(range(draw(st.integers(1, 40))))
    return items, draw(st.sets(st.sampled_from(items), min_size=1))


# --- subsets --------------------------------------------------------------------------------------


def test_two_of_ten_items_are_found_in_a_few_attempts() -> None:
    first = Counting(needs_all_of({2, 7}))
    assert smallest_subset(range(10), first) == [2, 7]
    assert first.attempts[:2] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert len(first.attempts) < 30


@given(items_and_needed())
def test_exactly_the_needed_items_are_found(example: tuple[list[int], set[int]]) -> None:
    items, needed = example
    assert smallest_subset(items, Counting(needs_all_of(needed))) == sorted(needed)


@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_no_single_item_can_be_taken_whatever_the_predicate(
    count: int, source: random.Random
) -> None:
    """Also where taking an item away can bring the failure back: real compilers are like that."""
    known: dict[frozenset[int], bool] = {frozenset(range(count)): True}

    def holds(attempt: Sequence[int]) -> bool:
        return known.setdefault(frozenset(attempt), source.random() < 0.3)

    kept = smallest_subset(range(count), Counting(holds))
    assert holds(kept)
    if len(kept) > 1:
        assert not any(holds([item for item in kept if item != one]) for one in kept)


@given(items_and_needed())
def test_the_number_of_attempts_is_bounded(example: tuple[list[int], set[int]]) -> None:
    items, needed = example
    first = Counting(needs_all_of(needed))
    smallest_subset(items, first)
    # What delta debugging may take at the very worst.
    assert len(first.attempts) <= len(items) ** 2 + 3 * len(items)


@given(st.integers(1, 500), st.data())
def test_one_needed_item_is_found_by_halving(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.integers(0, count - 1))
    first = Counting(needs_all_of({needed}))
    assert smallest_subset(range(count), first) == [needed]
    assert len(first.attempts) <= 2 * halvings(count)


def test_attempts_are_offered_together_so_that_they_can_be_tried_side_by_side() -> None:
    batches: list[int] = []

    def first(attempts: Sequence[Sequence[int]]) -> int | None:
        batches.append(len(attempts))
        return next((n for n, a in enumerate(attempts) if {0, 9} <= set(a)), None)

    assert smallest_subset(range(10), first) == [0, 9]
    # Two halves, then four quarters and what is left without each.
    assert batches[:2] == [2, 8]


def test_where_four_can_be_tried_at_once_nobody_waits_for_the_last_of_two() -> None:
    batches: list[Sequence[Sequence[int]]] = []

    def first(attempts: Sequence[Sequence[int]]) -> int | None:
        batches.append(attempts)
        return next((n for n, a in enumerate(attempts) if {0, 7} <= set(a)), None)

    assert smallest_subset(range(8), first, at_once=4) == [0, 7]
    # Two halves, and what would come after them if neither held.
    assert batches[0] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1], [2, 3]]
    # Neither did; the rest of the quarters, and what is left without each.
    assert batches[1][:3] == [[4, 5], [6, 7], [2, 3, 4, 5, 6, 7]]


@given(items_and_needed(), st.integers(2, 9))
def test_looking_ahead_changes_nothing_about_what_is_found(
    example: tuple[list[int], set[int]], at_once: int
) -> None:
    items, needed = example
    ahead, one_by_one = Counting(needs_all_of(needed)), Counting(needs_all_of(needed))
    assert smallest_subset(items, ahead, at_once) == smallest_subset(items, one_by_one)
    # Nor about what is tried: only when. Nothing is tried twice.
    assert ahead.attempts == one_by_one.attempts
    assert len({*map(tuple, ahead.attempts)}) == len(ahead.attempts)


@pytest.mark.parametrize("items", [[], ["only"]])
def test_nothing_is_tried_where_there_is_nothing_to_leave_out(items: list[str]) -> None:
    def first(attempts: Sequence[Sequence[str]]) -> int | None:
        raise AssertionError(attempts)

    assert smallest_subset(items, first) == items


# --- fuel -----------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.integers(1, 8), st.data())
def test_the_last_application_that_is_needed_is_found_in_few_rounds(
    count: int, at_once: int, data: st.DataObject
) -> None:
    needed = data.draw(st.integers(1, count))
    rounds: list[Sequence[int]] = []

    def hold(amounts: Sequence[int]) -> list[bool]:
        rounds.append(amounts)
        return [amount >= needed for amount in amounts]

    assert last_needed(count, hold, at_once) == needed
    # One at a time halves what is left, three at a time quarter it.
    assert (at_once + 1) ** (len(rounds) - 1) <= count
    assert all(len(amounts) <= at_once for amounts in rounds)
    assert all(0 < amount < count for amounts in rounds for amount in amounts)


def test_a_single_application_is_not_asked_about() -> None:
    def hold(amounts: Sequence[int]) -> list[bool]:
        raise AssertionError(amounts)

    assert last_needed(1, hold, at_once=4) == 1
