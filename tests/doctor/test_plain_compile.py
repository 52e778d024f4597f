"""A failure behind a C++ wrapper is first looked for without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch.fx import symbolic_trace

from inductoscope.inside.search.candidate import (
    Candidate,
    compiled_like,
    compiled_plainly,
    special_flow,
)
from inductoscope.torch_facts.stages import AOT_INDUCTOR, CPP_WRAPPER


def candidate(**more: Any) -> Candidate:
    return Candidate(symbolic_trace(lambda x: torch.sin(x)), (torch.ones(3),), **more)


WAYS = {
    "a setting": candidate(config={"cpp_wrapper": True, "fallback_random": True}),
    "an option": candidate(options={"cpp_wrapper": True, "epilogue_fusion": False}),
    "a package": candidate(flow=AOT_INDUCTOR, config={"fallback_random": True}),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_left_out_for_the_search_is_put_back_for_the_reproducer(way: str) -> None:
    given = WAYS[way]
    plain = compiled_plainly(given)
    assert special_flow(given) == (AOT_INDUCTOR if way == "a package" else CPP_WRAPPER)
    assert not special_flow(plain)
    assert compiled_like(plain, given) == given


def test_a_default_of_the_process_counts_unless_the_program_says_otherwise() -> None:
    given = candidate()
    with torch._inductor.config.patch(cpp_wrapper=True):
        assert special_flow(given) == CPP_WRAPPER
        assert not special_flow(compiled_plainly(given))
        assert compiled_like(compiled_plainly(given), given) == given
        assert not special_flow(candidate(options={"cpp_wrapper": False}))


def test_constants_of_a_package_become_inputs_because_the_search_renames_them() -> None:
    given = replace(candidate(flow=AOT_INDUCTOR), constants=frozenset({"x"}))
    assert not compiled_plainly(given).constants
