"""Gives the inputs the commonest types that the failure allows: float32, and int64."""

from __future__ import annotations

from typing import Any

import torch

from inductoscope.doctor.compare.values import is_plain
from inductoscope.doctor.failure import Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.oracle import Oracle


def shrink_dtypes(candidate: Candidate, failure: Failure, oracle: Oracle) -> Candidate:
    """The candidate with all inputs of the commonest types, or with as many as can be."""
    together = tuple(_common(value) for value in candidate.inputs)
    changed = [n for n, value in enumerate(together) if value is not candidate.inputs[n]]
    if not changed:
        return candidate
    if oracle.first([candidate.with_inputs(together)], failure) is not None:
        return candidate.with_inputs(together)
    for number in changed if len(changed) > 1 else ():
        attempt = _with_one(candidate, number, together[number])
        if oracle.first([attempt], failure) is not None:
            candidate = attempt
    return candidate


def _with_one(candidate: Candidate, number: int, value: Any) -> Candidate:
    inputs = list(candidate.inputs)
    inputs[number] = value
    return candidate.with_inputs(tuple(inputs))


def _common(value: Any) -> Any:
    """The same values in the commonest type of their kind; the value itself if it has that."""
    if not isinstance(value, torch.Tensor) or not is_plain(value):
        return value
    if value.dtype in (torch.float16, torch.bfloat16, torch.float64):
        return value.detach().float().requires_grad_(value.requires_grad)
    if value.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        return value.long()
    return value
