"""Whether a suspicious bias is larger than anything that rounding does to the same calls.

The test of `bias_test` trusts that rounding differs from call to call. That fails for a program
that makes nearly the same call again and again: its roundings stay as they are, and point the same
way for ever. So before an alarm is raised, the next shadowed calls also run in eager with other
roundings. The average error of the compiled calls has to be far beyond what separates those from
each other, in addition to what eager itself is off by. How much an average over calls means is
measured, too: by how alike the errors of eager are from one shadowed call to the next, element by
element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# How many other roundings each call is run with. They move a value two to four times as far as the
# rounding of a real call does.
ROUNDINGS = 4
# How many standard deviations of an average of those a bias has to be larger than eager's.
BEYOND = 6.0
# Fewer calls do not tell the standard deviation; after so many rounding counts as the explanation.
_LEAST, _MOST = 4, 128


@dataclass
class Confirmation:
    """Averages over the calls since a value became suspicious."""

    direction: int
    calls: int = 0
    _compiled: float = 0.0
    _eager: float = 0.0
    _squares: float = 0.0

    def add(self, compiled: float, eager: float, roundings: Sequence[float]) -> None:
        """The error of a compiled call, and of the same call in eager and with other roundings."""
        self.calls += 1
        self._compiled += compiled
        self._eager += eager
        middle = sum(roundings) / len(roundings)
        self._squares += sum((each - middle) ** 2 for each in roundings) / (len(roundings) - 1)

    @property
    def compiled(self) -> float:
        """The average error of the compiled calls."""
        return self._compiled / max(self.calls, 1)

    @property
    def eager(self) -> float:
        """The average error of eager in the same calls."""
        return self._eager / max(self.calls, 1)

    def rounding(self, likeness: float) -> float:
        """The standard deviation of such an average under rounding alone.

        Errors that are alike from call to call do not cancel.
        """
        calls = max(self.calls, 1)
        alike = 1.0 + (calls - 1) * min(max(likeness, 0.0), 1.0)
        return math.sqrt(self._squares / calls * alike / calls)

    def is_beyond_rounding(self, likeness: float, margin: float) -> bool:
        """Whether the bias is larger than what eager and rounding explain."""
        explained = abs(self.eager) + BEYOND * self.rounding(likeness) + margin
        return self.calls >= _LEAST and abs(self.compiled) > explained

    @property
    def is_over(self) -> bool:
        """Whether it has been looked at for long enough."""
        return self.calls >= _MOST
