"""Inside the program: what a call returned, in a few numbers, to compare it with another run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from inductoscope.capture.scope import BROKEN, SCOPE
from inductoscope.profiling.memory.holders import tensors_in
from inductoscope.profiling.memory.observed import TensorSummary
from inductoscope.profiling.memory.unseen import is_plain, unseen

_MOST_TENSORS = 256
_MOST_VALUES = 16


def summaries_of(result: Any) -> tuple[TensorSummary, ...]:
    """Every plain tensor of a result; those that cannot be added up are left out."""
    with unseen():
        plain = (tensor for _, tensor in tensors_in(result) if is_plain(tensor))
        found = [SCOPE.attempt(_summary, tensor) for tensor in islice(plain, _MOST_TENSORS)]
    return tuple(summary for summary in found if summary is not BROKEN)


def _summary(tensor: Any) -> TensorSummary:
    torch: Any = sys.modules["torch"]
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    if not real.is_floating_point():
        total = float(real.sum(dtype=torch.int64))
        norm = math.fabs(total)
    else:
        total = float(real.sum(dtype=torch.float64))
        norm = float(torch.linalg.vector_norm(real, dtype=torch.float64))
    some = [float(real[place]) for place in _places(tuple(real.shape))]
    return TensorSummary(tuple(tensor.shape), str(tensor.dtype), total, norm, tuple(some))


def _places(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Some places all over a tensor."""
    count = math.prod(shape)
    for number in range(min(count, _MOST_VALUES)):
        flat = number * count // min(count, _MOST_VALUES)
        place = []
        for size in reversed(shape):
            flat, at = divmod(flat, size)
            place.append(at)
        yield tuple(reversed(place))
