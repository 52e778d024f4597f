"""Judges one function against another, which stands for the compiled one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from inductoscope.inside.compare.bug_or_rounding import EagerComparison, judge
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import run

Function = Callable[..., Any]


def judged(
    eager: Function, compiled: Function, *inputs: Any, backward: bool = False
) -> EagerComparison:
    """The result of comparing two functions, the second in the place of a compiled one."""
    return judge(Case(eager, inputs, backward), run(compiled, inputs, backward=backward))


def wrong_kinds(comparison: EagerComparison) -> list[str]:
    """The kinds of what is wrong, in order."""
    return [difference.kind for difference in comparison.wrong]


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers, the same ones each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
