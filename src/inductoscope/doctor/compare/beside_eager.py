"""One call of compiled code beside the same call in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inductoscope.doctor.compare.bug_or_rounding import EagerComparison, judge
from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.nan_asserts import Refusal, refused_by_nan_asserts
from inductoscope.doctor.compare.values import run


@dataclass(frozen=True)
class CallBesideEager:
    """What came of it: a comparison, or an error of the compiled code."""

    comparison: EagerComparison | None = None
    seconds: float = 0.0
    error: Exception | None = None
    # Why the error is no fault of the compiler: torch's own check for NaN is right.
    refusal: Refusal | None = None


def call_beside_eager(
    case: Case, compiled: Callable[..., Any], names: Sequence[str], *, keeps_graph: bool = False
) -> CallBesideEager:
    """Call it with the inputs of a case whose eager result is known; `names` are theirs."""
    try:
        outcome = run(compiled, case.inputs, backward=case.backward, keeps_graph=keeps_graph)
    except Exception as error:
        return CallBesideEager(error=error, refusal=refused_by_nan_asserts(error, case, names))
    return CallBesideEager(judge(case, outcome), outcome.seconds)
