"""Whether an error always points the same way: a test that may be looked at after every call.

Each shadowed call is a toss. It comes up if the compiled value is off in one direction by more than
eager is off in either in the same call, plus a margin. Rounding moves a value either way, so that,
whatever happened before, such a toss comes up at most every other time. A fault always moves it the
same way. A bias that compiled code shares with eager is none, nor is one that only eager has.

The test bets on the next toss with what it has learnt from those before. If tosses come up at most
every other time, the stake grows n-fold at any time of the run with a probability of at most 1/n
(Ville's inequality), however many calls are shadowed and whenever one looks. Nothing else about
rounding is assumed: no distribution, no spread.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

# Directions in which errors are added up, and what a bias along them means.
DIRECTIONS = ("scale", "shift")
# How many recent tosses the next bet goes by: a fault may begin late.
_WINDOW = 64
# After so many tosses a new stake is laid, which earlier losses do not touch.
_NEW_STAKE = 256
_LARGEST_BET = 0.98


@dataclass
class Bet:
    """Bets that tosses come up more often than every other time."""

    tosses: int = 0
    _recent: deque[bool] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    # The logarithm of what a stake laid at the beginning has become, now and at each new stake.
    _log: float = 0.0
    _logs_at_stakes: list[float] = field(default_factory=lambda: [0.0])

    def add(self, came_up: bool) -> None:
        """One more toss."""
        if self.tosses and self.tosses % _NEW_STAKE == 0:
            self._logs_at_stakes.append(self._log)
        share = 2 * (sum(self._recent) + 0.5) / (len(self._recent) + 1) - 1
        share = min(max(share, 0.0), _LARGEST_BET)
        self._log += math.log1p(share if came_up else -share)
        self._recent.append(came_up)
        self.tosses += 1

    @property
    def log_evidence(self) -> float:
        """The logarithm of how many times its stake the bet has become, over all stakes.

        Stake number n is 1/(n(n+1)) of everything, so that all of them together are the whole.
        """
        parts = [
            self._log - log - math.log(number * (number + 1))
            for number, log in enumerate(self._logs_at_stakes, 1)
        ]
        largest = max(parts)
        return largest + math.log(sum(math.exp(part - largest) for part in parts))


@dataclass(frozen=True)
class SignedErrors:
    """Errors of one value in one call, relative to its size, one for each direction."""

    compiled: tuple[float, ...]
    eager: tuple[float, ...]
    # What is of no practical size, or may be a matter of how a type rounds.
    margin: float


@dataclass
class ValueTest:
    """One output or gradient of one graph: two directions, each up and down."""

    name: str
    # The probability that rounding alone ever makes this test suspicious.
    false_alarms: float
    calls: int = 0
    _sums: dict[tuple[int, bool], float] = field(default_factory=dict)
    _bets: dict[tuple[int, int], Bet] = field(default_factory=dict)

    def add(self, errors: SignedErrors) -> None:
        """The errors of one more call."""
        self.calls += 1
        for number in range(len(DIRECTIONS)):
            compiled, eager = errors.compiled[number], errors.eager[number]
            for sign in (1, -1):
                bet = self._bets.setdefault((number, sign), Bet())
                bet.add(sign * compiled > abs(eager) + errors.margin)
            for key, value in (((number, False), compiled), ((number, True), eager)):
                self._sums[key] = self._sums.get(key, 0.0) + value

    def mean(self, direction: int, *, is_eager: bool) -> float:
        """The average error of all calls."""
        return self._sums.get((direction, is_eager), 0.0) / max(self.calls, 1)

    @property
    def suspicious(self) -> int | None:
        """The direction along which the value is biased; None as long as that may be rounding."""
        needed = math.log(len(DIRECTIONS) * 2 / self.false_alarms)
        evidence = [(bet.log_evidence, number) for (number, _), bet in self._bets.items()]
        best, direction = max(evidence, default=(0.0, 0))
        return direction if best >= needed else None


class BiasTests:
    """All tests of a run; together they raise a false alarm at most with the given probability."""

    def __init__(self, false_alarms: float) -> None:
        self.false_alarms = false_alarms
        self._count = 0

    def new(self, name: str) -> ValueTest:
        """A test of one more value: number n may use 1/(n(n+1)) of the probability."""
        self._count += 1
        return ValueTest(name, self.false_alarms / (self._count * (self._count + 1)))
