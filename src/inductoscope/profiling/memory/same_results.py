"""Whether two runs of a program computed the same, by what their calls returned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.profiling.memory.observed import CallResult, TensorSummary

# How far results may lie apart that were computed in another order, by type.
_TOLERANCES = {"torch.float64": 1e-9, "torch.float32": 1e-4, "torch.float16": 2e-2}
_BFLOAT16 = 5e-2


@dataclass(frozen=True)
class ResultComparison:
    """What was compared, and how far it lies apart as a part of each tensor's size."""

    tensors: int
    apart: float
    # The first result that is not the same beyond rounding; empty if all are.
    different: str = ""

    @property
    def is_same(self) -> bool:
        """Whether something was compared, and nothing differs."""
        return self.tensors > 0 and not self.different


def compare_results(base: Sequence[CallResult], other: Sequence[CallResult]) -> ResultComparison:
    """The results of calls that both runs made."""
    theirs = {(result.thing, result.number): result for result in other}
    tensors, apart, different = 0, 0.0, ""
    for result in base:
        match = theirs.get((result.thing, result.number))
        if match is None:
            continue
        if len(match.tensors) != len(result.tensors):
            return ResultComparison(tensors + 1, math.inf, f"{result.thing}: number of tensors")
        for number, (first, second) in enumerate(zip(result.tensors, match.tensors, strict=True)):
            tensors += 1
            distance = _distance(first, second)
            apart = max(apart, distance)
            if distance > _TOLERANCES.get(first.dtype, _BFLOAT16) and not different:
                different = f"{result.thing}, call {result.number}, tensor {number + 1}"
    return ResultComparison(tensors, apart, different)


def _distance(first: TensorSummary, second: TensorSummary) -> float:
    """How far apart two tensors are, as a part of their size."""
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return math.inf
    size = max(1, math.prod(first.shape))
    typical = max(first.norm, second.norm) / math.sqrt(size)
    pairs = [*zip(first.some, second.some, strict=False), (first.norm, second.norm)]
    # A sum may cancel: what matters is how far it is from the other, beside all that was added.
    sums = _apart(first.total, second.total, max(first.norm, second.norm) * math.sqrt(size))
    return max(sums, *(_apart(a, b, max(abs(a), abs(b), typical)) for a, b in pairs))


def _apart(first: float, second: float, scale: float) -> float:
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    if not math.isfinite(first) or not math.isfinite(second):
        return math.inf
    return abs(first - second) / scale if scale else math.inf
