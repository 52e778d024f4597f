"""A program may set a default device: whatever the doctor makes for itself is not affected."""

from __future__ import annotations

from dataclasses import replace

import torch

from inductoscope.inside.compare.bug_or_rounding import judge
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.oracle import digest
from inductoscope.inside.search.program_state import current_state
from support.graphs import captured


def test_results_and_gradients_are_compared() -> None:
    x = torch.randn(20, requires_grad=True)
    with torch.device("meta"):
        case = Case(lambda x: (x.exp() * x).cumsum(0), (x,), backward=True)
        found = judge(case, case.again)
        off = replace(case.again, outputs=(case.again.outputs[0] + 0.1,))
        wrong = judge(case, off).wrong
    assert found.is_right
    assert [item.where for item in wrong] == ["output 0"]


def test_a_candidate_is_recognised() -> None:
    x = torch.randn(20)
    candidate = Candidate(captured(torch.sin, x), (x,))
    with torch.device("meta"):
        there = digest(candidate)
    assert there == digest(candidate)


def test_the_copy_of_a_program_works_in_main_memory() -> None:
    torch.set_default_device("meta")
    try:
        current_state().adopt()
        assert torch.get_default_device().type == "cpu"
    finally:
        torch.set_default_device(None)
