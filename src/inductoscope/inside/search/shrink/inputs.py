"""Gives the inputs the simplest values, so that a script can make them without a data file.

The graph stays as it is. For a wrong result it is therefore compiled once, in one fork, and called
on many inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from inductoscope.doctor.failure import NAN, WRONG, Failure
from inductoscope.inside.compare.bug_or_rounding import judge
from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import run
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.failure_signature import failure_of_comparison
from inductoscope.inside.search.input_recipes import make_inputs, recipes_of
from inductoscope.inside.search.oracle import compiled, compiling
from inductoscope.inside.search.placement import placed_inputs
from inductoscope.inside.search.shrink.shrink_pass import (
    Batch,
    Proposals,
    ShrinkPass,
    Subject,
)


def _measure(candidate: Candidate) -> int:
    """How many inputs no script can make."""
    written = sum(1 for recipe in (*candidate.recipes, *candidate.earlier_recipes) if recipe)
    return sum(len(inputs) for inputs in candidate.calls) - written


def _propose(subject: Subject) -> Proposals:
    candidate = yield from _with_earlier_recipes(subject.candidate)
    every = recipes_of(candidate)
    if subject.failure.kind in (WRONG, NAN):
        chosen = subject.in_fork(lambda: _choose(candidate, every, subject.failure))
        return _with_recipes(candidate, every, chosen or [-1] * len(every))
    # A failure of the compiler itself hardly ever depends on values: the simplest for all inputs.
    for choice in (1, 0):
        chosen = [min(choice, len(recipes) - 1) for recipes in every]
        found = yield [_with_recipes(candidate, every, chosen)]
        if found is not None:
            return None
    return with_exact_inputs(candidate)


def with_exact_inputs(candidate: Candidate) -> Candidate:
    """The candidate with what a script needs to make its inputs just as they are."""
    every = recipes_of(candidate)
    return _with_recipes(candidate, every, [-1] * len(every))


def _with_earlier_recipes(
    candidate: Candidate,
) -> Generator[Batch, int | None, Candidate]:
    """The inputs of an earlier call: of them hardly more than the shapes matters."""
    if candidate.earlier is None:
        return candidate
    every = recipes_of(replace(candidate, inputs=candidate.earlier))
    attempts = []
    for choice in (1, 0):
        texts = _texts(every, [min(choice, len(recipes) - 1) for recipes in every])
        attempts.append(_with_earlier(candidate, texts))
    found = yield attempts
    exact = [recipes[-1] for recipes in every]
    return _with_earlier(candidate, exact) if found is None else attempts[found]


def _with_earlier(candidate: Candidate, texts: Sequence[str]) -> Candidate:
    assert candidate.earlier is not None
    made = tuple(make_inputs(texts, candidate.earlier))
    return replace(candidate, earlier=made, earlier_recipes=tuple(texts))


def _with_recipes(
    candidate: Candidate, every: Sequence[Sequence[str]], chosen: Sequence[int]
) -> Candidate:
    recipes = _texts(every, chosen)
    inputs = make_inputs(recipes, candidate.inputs)
    return replace(candidate, inputs=tuple(inputs), recipes=tuple(recipes))


def _texts(every: Sequence[Sequence[str]], chosen: Sequence[int]) -> list[str]:
    return [texts[place] for texts, place in zip(every, chosen, strict=True)]


def _choose(candidate: Candidate, every: Sequence[Sequence[str]], failure: Failure) -> list[int]:
    """In a fork: for each input, the number of the simplest recipe that keeps the failure."""
    with compiling(candidate):
        function = compiled(candidate)
        if candidate.earlier is not None:
            earlier = placed_inputs(candidate, candidate.earlier)
            run(function, earlier, backward=candidate.backward)
        keeps = _keeps(candidate, function, failure)
        chosen = [len(recipes) - 1 for recipes in every]
        for number, recipes in enumerate(every):
            for choice in range(len(recipes) - 1):
                attempt = [*chosen[:number], choice, *chosen[number + 1 :]]
                if keeps(_texts(every, attempt)):
                    chosen = attempt
                    break
    return chosen


def _keeps(
    candidate: Candidate, function: Callable[..., Any], failure: Failure
) -> Callable[[list[str]], bool]:
    def keeps(recipes: list[str]) -> bool:
        try:
            inputs = placed_inputs(candidate, tuple(make_inputs(recipes, candidate.inputs)))
            outcome = run(function, inputs, backward=candidate.backward)
            case = Case(as_function(candidate.module), inputs, candidate.backward)
            comparison = judge(case, outcome).counting(candidate.counts)
            found = failure_of_comparison(comparison)
        except Exception:
            return False
        return found is not None and found.is_same_as(failure)

    return keeps


PASS = ShrinkPass(
    "inputs",
    "trying simpler input values",
    _measure,
    _propose,
    # Values can be simplified whatever the graph is like.
    applies=lambda candidate: True,
)
