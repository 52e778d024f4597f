"""The operation that a verdict names: what most of the evidence points at.

A kernel computes many operations, and the buffer that is wrong belongs to the last of them. So all
evidence votes: an operation that is wrong on its own, one whose lowering brings the failure about,
the operations of the smallest graph, and the node of the buffer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.doctor.failure import ERROR, SIGNAL
from inductoscope.doctor.handover import Found

# What a run shows counts more than what a place in the graph suggests.
_SHOWN, _SMALLEST, _PLACE = 3.0, 2.0, 1.0
# With less, nothing but its place speaks for an operation.
_ENOUGH = 2.0


@dataclass(frozen=True)
class Vote:
    """One piece of evidence for an operation."""

    operation: str
    weight: float
    why: str


@dataclass(frozen=True)
class Headline:
    """The operation to name, as torch writes it, and what the evidence for it is."""

    operation: str = ""
    # The operation of the program that it is a part of, if it has another name.
    part_of: str = ""
    votes: tuple[Vote, ...] = ()
    # Others for which just as strong evidence speaks.
    rivals: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The operation, and what it is a part of."""
        return [name for name in (self.operation, self.part_of) if name]


def headline_of(found: Found) -> Headline:
    """What the evidence says about a failure in a kernel; empty if it decides nothing."""
    if not found.location.kernel:
        return Headline()
    votes = votes_on(found)
    totals: dict[str, float] = {}
    for vote in votes:
        totals[short(vote.operation)] = totals.get(short(vote.operation), 0.0) + vote.weight
    best = max(totals.values(), default=0.0)
    if best < _ENOUGH:
        return Headline(votes=tuple(votes))
    winner = next(name for name, total in totals.items() if total == best)
    strong = [vote for vote in votes if vote.weight == _SHOWN and short(vote.operation) != winner]
    rivals = [vote.operation for vote in strong if short(vote.operation) not in _whole(found)]
    return Headline(
        _full_name(winner, found),
        _part_of(winner, found),
        tuple(vote for vote in votes if short(vote.operation) == winner),
        tuple(dict.fromkeys(rivals)),
    )


def votes_on(found: Found) -> list[Vote]:
    """All evidence about single operations."""
    location = found.location
    alone = [
        Vote(name, _SHOWN / len(location.wrong_alone), "it is wrong on its own")
        for name in location.wrong_alone
    ]
    lowered = [
        Vote(axis.application, _SHOWN, f"the failure begins with it ({axis.title})")
        for axis in found.suppressing_axes
        if axis.names_operations and axis.application and _may_be_to_blame(axis.application, found)
    ]
    smallest = [
        Vote(name, _SMALLEST / len(found.operations), "the smallest graph consists of it")
        for name in found.operations
    ]
    place = [Vote(location.operation, _PLACE, "the wrong buffer holds its result")]
    return [*alone, *lowered, *smallest, *(place if location.operation else [])]


def _may_be_to_blame(operation: str, found: Found) -> bool:
    """Whether an operation is in the kernel that goes wrong first.

    Without the lowering of one that only reads what that kernel made, it fails another way.
    """
    is_crash = found.failure.kind in (ERROR, SIGNAL)
    inside = {short(name) for name in found.location.names}
    return not is_crash or not inside or short(operation) in inside


def short(name: str) -> str:
    """The name of an operation without its namespace, its overload and the number of its node."""
    parts = name.split(".")
    return re.sub(r"_\d+$", "", parts[1] if len(parts) > 1 else parts[0])


def _whole(found: Found) -> set[str]:
    """Operations of the smallest graph that stand for all that the kernel computes."""
    return {short(name) for name in found.operations} if len(found.operations) == 1 else set()


def _full_name(winner: str, found: Found) -> str:
    known = (*found.location.wrong_alone, *found.location.names, *found.operations)
    return next((name for name in known if short(name) == winner and "." in name), winner)


def _part_of(winner: str, found: Found) -> str:
    """The one operation of the smallest graph, if it is called otherwise."""
    names: Sequence[str] = found.operations
    return names[0] if len(names) == 1 and short(names[0]) != winner else ""
