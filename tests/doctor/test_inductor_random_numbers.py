"""Graphs that draw random numbers: compared by form as Inductor compiles them without the tool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.inside.compare.values import draws_random_numbers
from inductoscope.inside.doctor.further_checks import failure_with_inductor_random_numbers
from inductoscope.inside.repro.failure_script import script_text
from inductoscope.inside.search.candidate import Candidate
from support.graphs import captured, numbers


@pytest.mark.parametrize(
    ("function", "draws"),
    [
        (lambda x: F.dropout(x, 0.5), True),
        (lambda x: F.dropout(x, 0.5, training=False), False),
        (lambda x: torch.rand_like(x) + x, True),
        (lambda x: F.normalize(x), False),
        (lambda x: F.scaled_dot_product_attention(*[x.expand(1, 1, 3, 4)] * 3), False),
        (lambda x: F.scaled_dot_product_attention(*[x.expand(1, 1, 3, 4)] * 3, None, 0.5), True),
        (lambda x: x.clone().normal_(generator=torch.Generator()), True),
    ],
    ids=[
        "dropout",
        "dropout that is off",
        "rand_like",
        "normalize",
        "attention",
        "attention with dropout",
        "a generator of its own",
    ],
)
def test_whether_random_numbers_are_drawn_is_seen_in_a_run(
    function: Callable[..., Any], draws: bool
) -> None:
    state = torch.get_rng_state()
    assert draws_random_numbers(function, [numbers(3, 4)]) is draws
    assert torch.equal(torch.get_rng_state(), state)


def sample(mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    return torch.normal(mean, spread)


def candidate_of(function: Callable[..., Any], *inputs: Any) -> Candidate:
    return Candidate(captured(function, *inputs), inputs)


@pytest.mark.usefixtures("bugs_of_torch")
def test_random_numbers_of_another_type_than_eagers() -> None:
    """pytorch#194547, which is not to be seen where compiled code draws eager's numbers."""
    (found,) = failure_with_inductor_random_numbers(
        candidate_of(sample, torch.ones(2).half(), torch.ones(2))
    )
    assert (found.failure.kind, found.failure.aspect) == (WRONG, "dtype")
    assert found.failure.text == "output 0 is torch.float32, in eager torch.float16"
    assert found.candidate.draws_inductor_random_numbers


@pytest.mark.parametrize(
    "function", [lambda x: F.dropout(x, 0.5), lambda x: x + 1], ids=["other numbers", "none"]
)
def test_other_numbers_in_the_same_form_are_right(function: Callable[..., Any]) -> None:
    assert not list(failure_with_inductor_random_numbers(candidate_of(function, numbers(4))))


def test_a_script_about_random_numbers_compares_their_form() -> None:
    found = replace(
        candidate_of(sample, torch.ones(2).half(), torch.ones(2)),
        config={"fallback_random": False},
        recipes=("torch.ones(2).half()", "torch.ones(2)"),
    )
    text = script_text(found, Failure(WRONG, "text", aspect="dtype"), "title")
    assert "fallback_random" not in text
    assert "return [(end.dtype, end.shape) for end in ends]" in text
    assert "assert compiled == eager" in text
    strides = script_text(found, Failure(WRONG, "text", aspect="stride"), "title")
    assert "return [(end.dtype, end.shape, end.stride()) for end in ends]" in strides


def test_a_script_about_values_draws_eagers_numbers() -> None:
    found = replace(
        candidate_of(lambda x: F.dropout(x, 0.5), numbers(3)),
        config={"fallback_random": True},
        recipes=("torch.ones(3)",),
    )
    text = script_text(found, Failure(WRONG, "text", aspect="value"), "title")
    assert "torch._inductor.config.fallback_random = True" in text
    assert "    arguments = inputs()\n    torch.manual_seed(0)\n    outputs = " in text
