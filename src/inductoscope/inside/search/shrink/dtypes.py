"""Gives the inputs common types where the failure allows it: float32 and int64."""

from __future__ import annotations

from typing import Any

import torch

from inductoscope.inside.compare.values import is_plain
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.shrink.shrink_pass import Proposals, ShrinkPass, Subject


def _measure(candidate: Candidate) -> int:
    """How many inputs are of an uncommon type."""
    return sum(_common_dtype(value) is not None for value in candidate.inputs)


def _propose(subject: Subject) -> Proposals:
    candidate = subject.candidate
    uncommon = [n for n, value in enumerate(candidate.inputs) if _common_dtype(value) is not None]
    if not uncommon:
        return None
    found = yield [candidate.with_calls_changed(lambda inputs: map(common, inputs))]
    if found is not None or len(uncommon) == 1:
        return None
    for number in uncommon:
        attempt = _with_one(candidate, number)
        found = yield [attempt]
        if found is not None:
            candidate = attempt
    return None


def _with_one(candidate: Candidate, number: int) -> Candidate:
    return candidate.with_calls_changed(
        lambda inputs: (*inputs[:number], common(inputs[number]), *inputs[number + 1 :])
    )


def common(value: Any) -> Any:
    """The same values in the common type of their kind; the value itself if it has that already."""
    dtype = _common_dtype(value)
    if dtype is None:
        return value
    return value.detach().to(dtype).requires_grad_(value.requires_grad)


def _common_dtype(value: Any) -> torch.dtype | None:
    """The common type that could replace the type of an input, if it has an uncommon one."""
    if not isinstance(value, torch.Tensor) or not is_plain(value):
        return None
    if value.dtype in (torch.float16, torch.bfloat16, torch.float64):
        return torch.float32
    if value.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        return torch.int64
    return None


PASS = ShrinkPass("dtypes", "trying common dtypes", _measure, _propose)
