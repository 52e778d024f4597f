"""Checks a call whose inputs are too large to copy.

The call is made in a fork, which shares memory with its parent until something is written. What is
not close to eager may still be rounding: only a smaller call, judged in full, can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from inductoscope.doctor.compare.bug_or_rounding import is_close
from inductoscope.doctor.failure import NAN, WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.shrink.shapes import all_resized

TORCH_NAMES = {
    "torch.utils._pytree": ("tree_leaves",),
}

_SECONDS = 300.0
# Sizes to which every larger dimension is cut.
_SIZES = (33, 257, 2049)


def compared(
    module: GraphModule, compiled: Callable[..., Any] | None, arguments: tuple[Any, ...]
) -> str:
    """How the compiled outputs differ from eager's; "" if they are close."""
    assert compiled is not None

    def work() -> str:
        with torch.no_grad():
            before = _versions(arguments)
            eager = tree_leaves(module(*arguments))
            if _versions(arguments) != before:
                return "it mutates its inputs, so it cannot be called twice"
            outputs = tree_leaves(compiled(*arguments))
        for number, (one, two) in enumerate(zip(eager, outputs, strict=True)):
            form = [(v.dtype, v.shape) for v in (one, two) if isinstance(v, torch.Tensor)]
            if len({*form}) > 1:
                return f"output {number} has a different type or shape from eager"
            if not is_close(one, two):
                return f"output {number} is not close to eager"
        return ""

    answer = Forks(workers=1, seconds=_SECONDS).ask(work)
    if answer.is_done:
        return str(answer.result)
    return f"it failed: {answer.error.strip().splitlines()[-1]}" if answer.error else "it died"


def _versions(arguments: tuple[Any, ...]) -> list[int]:
    return [value._version for value in arguments if isinstance(value, torch.Tensor)]


def smaller_failure(candidate: Candidate) -> tuple[Candidate, Failure | None]:
    """The same graph on smaller inputs, if it is wrong there too."""
    oracle = Oracle(Forks(seconds=_SECONDS))
    for size in _SIZES:
        smaller = all_resized(candidate, size)
        failure = None if smaller is None else oracle.failure(smaller)
        if smaller is not None and failure is not None and failure.kind in (WRONG, NAN):
            return smaller, failure
    return candidate, None
