"""An axis without which a failure vanishes: a hint at the stage to blame.

It need not be what is broken: without fusion, say, a kernel that is miscompiled is never made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SuppressingAxis:
    """What the doctor outside needs to know of an axis, and the one application that matters."""

    axis: str
    stage: str
    title: str
    # Empty if it is not known, or if the axis acts as a whole.
    application: str = ""
    # How precisely it points at its stage: the lowest is the most telling.
    rank: int = 0
    rewrites_graph: bool = False
    # Whether `application` is the name of a pass.
    names_passes: bool = False
    # Whether `application` is the name of an operation.
    names_operations: bool = False


def most_telling(
    axes: Sequence[SuppressingAxis], *, graphs_are_right: bool
) -> SuppressingAxis | None:
    """The axis that says most about where the failure is; graphs that are right are not to blame.

    Otherwise whoever rewrites a graph comes first: what is wrong with it, kernels only pass on.
    """
    return min(
        axes, key=lambda axis: (axis.rewrites_graph is graphs_are_right, axis.rank), default=None
    )
