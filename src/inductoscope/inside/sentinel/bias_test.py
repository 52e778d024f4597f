"""Sequential test for a biased error, valid at any time: signed errors, bets, confirmation.

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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch

# Directions in which errors are added up, and what a bias along them means.
DIRECTIONS = ("scale", "shift")
# The number of recent tosses that set the next bet, since a fault may begin late.
_WINDOW = 64
# The number of tosses after which a new stake is laid, which earlier losses do not touch.
_NEW_STAKE = 256
_LARGEST_BET = 0.98


@dataclass
class Bet:
    """A bet that tosses come up more than half of the time."""

    tosses: int = 0
    _recent: deque[bool] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    # The logarithm of what a stake laid at the beginning has become, now and at each new stake.
    _log: float = 0.0
    _logs_at_stakes: list[float] = field(default_factory=lambda: [0.0])

    def add(self, came_up: bool) -> None:
        if self.tosses and self.tosses % _NEW_STAKE == 0:
            self._logs_at_stakes.append(self._log)
        share = 2 * (sum(self._recent) + 0.5) / (len(self._recent) + 1) - 1
        share = min(max(share, 0.0), _LARGEST_BET)
        self._log += math.log1p(share if came_up else -share)
        self._recent.append(came_up)
        self.tosses += 1

    @property
    def log_evidence(self) -> float:
        """The logarithm of the factor by which the bet has multiplied its stake, over all stakes.

        Stake number n is 1/(n(n+1)) of the total, so that all stakes together are the whole.
        """
        parts = [
            self._log - log - math.log(number * (number + 1))
            for number, log in enumerate(self._logs_at_stakes, 1)
        ]
        largest = max(parts)
        return largest + math.log(sum(math.exp(part - largest) for part in parts))


@dataclass(frozen=True)
class SignedErrors:
    """The errors of one value in one call, relative to its size, one for each direction."""

    compiled: tuple[float, ...]
    eager: tuple[float, ...]
    # The bias that is negligible in practice, or may be due to how a dtype rounds.
    margin: float


@dataclass
class ValueTest:
    """The test of one output or gradient of one graph: two directions, each up and down."""

    name: str
    # The probability that rounding alone ever makes this test suspicious.
    false_alarms: float
    calls: int = 0
    _sums: dict[tuple[int, bool], float] = field(default_factory=dict)
    _bets: dict[tuple[int, int], Bet] = field(default_factory=dict)

    def add(self, errors: SignedErrors) -> None:
        self.calls += 1
        for number in range(len(DIRECTIONS)):
            compiled, eager = errors.compiled[number], errors.eager[number]
            for sign in (1, -1):
                bet = self._bets.setdefault((number, sign), Bet())
                bet.add(sign * compiled > abs(eager) + errors.margin)
            for key, value in (((number, False), compiled), ((number, True), eager)):
                self._sums[key] = self._sums.get(key, 0.0) + value

    def mean(self, direction: int, *, is_eager: bool) -> float:
        return self._sums.get((direction, is_eager), 0.0) / max(self.calls, 1)

    @property
    def suspicious(self) -> int | None:
        """The direction along which the value is biased; None if that may still be rounding."""
        needed = math.log(len(DIRECTIONS) * 2 / self.false_alarms)
        evidence = [(bet.log_evidence, number) for (number, _), bet in self._bets.items()]
        best, direction = max(evidence, default=(0.0, 0))
        return direction if best >= needed else None


class BiasTests:
    """All tests of a run, whose total probability of a false alarm is bounded."""

    def __init__(self, false_alarms: float) -> None:
        self.false_alarms = false_alarms
        self._count = 0

    def new(self, name: str) -> ValueTest:
        """Create a test for one more value: number n may use 1/(n(n+1)) of the probability."""
        self._count += 1
        return ValueTest(name, self.false_alarms / (self._count * (self._count + 1)))


# --- The signed error of a value against float64, added up along a few directions -----------------
#
# Each error is a share of the value's own size (the sum of its magnitudes). `scale` weighs every
# element by the sign of its true value: a value that is too large by a factor of 1.001 has an error
# of 0.001 there. `shift` just adds up: something was added to every element, or left out.

# Parts of the unit in the last place, for types in which one unit is large, and units of float32.
# Summing in another order, or a constant that is rounded, may bias a result by as much.
_PART_OF_UNIT = 1 / 32
_UNITS = 64

_EPS = torch.finfo(torch.float32).eps
# The number of elements of an error to compare with the next call's, and the least that count.
_SAMPLE, _ENOUGH = 4096, 64
# A smaller bias does not affect training.
_LEAST_MARGIN = 1e-9


def margin_for(dtypes: Collection[torch.dtype]) -> float:
    """Return the largest relative bias that is not reported for these computation dtypes."""
    units: list[float] = [torch.finfo(dtype).eps for dtype in dtypes]
    if torch.float32 in dtypes:
        units.append(_unit_of_products())
    margins = [max(_PART_OF_UNIT * unit, _UNITS * min(unit, _EPS)) for unit in units]
    return max([_LEAST_MARGIN, *margins])


def _unit_of_products() -> float:
    """Return the rounding unit of float32 matmuls and convolutions, which may use TF32."""
    precision = torch.get_float32_matmul_precision()
    rounds = torch.cuda.is_initialized() and torch.backends.cudnn.allow_tf32
    lower = {"medium": torch.bfloat16, "high": torch.float16}.get(
        precision, torch.float16 if rounds else torch.float32
    )
    return float(torch.finfo(lower).eps)


def signed_errors(
    compiled: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, margin: float
) -> SignedErrors | None:
    """Return the errors of a value; None if there is no finite value to compare."""
    c, e, r = wide(compiled), wide(eager), wide(reference)
    usable = e.isfinite() & r.isfinite()
    r = r[usable]
    size = float(r.abs().sum())
    if not size or not math.isfinite(size):
        return None
    return SignedErrors(_along(c[usable] - r, r, size), _along(e[usable] - r, r, size), margin)


def errors_of(value: torch.Tensor, reference: torch.Tensor) -> tuple[float, ...]:
    """Return the errors of one way to compute a value, for each direction."""
    errors = signed_errors(value, value, reference, 0.0)
    return tuple(0.0 for _ in DIRECTIONS) if errors is None else errors.eager


def _along(error: torch.Tensor, reference: torch.Tensor, size: float) -> tuple[float, ...]:
    sums = float((error * reference.sign()).sum()), float(error.sum())
    # NaN or Inf where eager and float64 are finite is an infinite error.
    return tuple(value / size if math.isfinite(value) else math.inf for value in sums)


def wide(value: torch.Tensor) -> torch.Tensor:
    """Flatten a value and convert it to float64."""
    value = value.detach()
    value = torch.view_as_real(value) if value.is_complex() else value
    return value.double().reshape(-1)


@dataclass
class Likeness:
    """The similarity of eager's errors between shadowed calls: 0 for none, 1 for the same errors.

    Too few elements count as 1.
    """

    _last: torch.Tensor | None = None
    _sum: float = 0.0
    _count: int = 0

    def add(self, eager: torch.Tensor, reference: torch.Tensor) -> None:
        r = _some_of(wide(reference))
        error = ((_some_of(wide(eager)) - r) * r.sign()).nan_to_num(0.0, 0.0, 0.0)
        length = float(error.norm())
        error = error / length if length else error
        if self._last is not None and self._last.shape == error.shape and length:
            self._sum += float(self._last @ error)
            self._count += 1
        self._last = error

    @property
    def value(self) -> float:
        """The average cosine of the angle between errors of consecutive calls."""
        known = self._last is not None and self._last.numel() >= _ENOUGH and self._count
        return self._sum / self._count if known else 1.0


def _some_of(value: torch.Tensor) -> torch.Tensor:
    """Return a sample of at most `_SAMPLE` elements, spread over the whole."""
    return value[:: value.numel() // _SAMPLE + 1]


# --- Whether a suspicious bias is larger than anything that rounding does to the same calls -------
#
# The test of `bias_test` trusts that rounding differs from call to call. That fails for a program
# that makes nearly the same call again and again: its roundings stay as they are, and point the
# same way for ever. So before an alarm is raised, the next shadowed calls also run in eager with
# other roundings. The average error of the compiled calls has to be far beyond what separates
# those from each other, in addition to what eager itself is off by. How much an average over
# calls means is measured, too: by how alike the errors of eager are from one shadowed call to the
# next, element by element.

# The number of other roundings that each call is run with. They move a value two to four times as
# far as the rounding of a real call.
ROUNDINGS = 4
# The number of standard deviations of their average by which a bias has to exceed eager's.
BEYOND = 6.0
# The least calls to estimate the standard deviation; the most, after which rounding is accepted.
_LEAST, _MOST = 4, 128


@dataclass
class Confirmation:
    """The averages over the calls since a value became suspicious."""

    direction: int
    calls: int = 0
    _compiled: float = 0.0
    _eager: float = 0.0
    _squares: float = 0.0

    def add(self, compiled: float, eager: float, roundings: Sequence[float]) -> None:
        self.calls += 1
        self._compiled += compiled
        self._eager += eager
        middle = sum(roundings) / len(roundings)
        self._squares += sum((each - middle) ** 2 for each in roundings) / (len(roundings) - 1)

    def rounding(self, likeness: float) -> float:
        """Return the standard deviation of the average error under rounding alone.

        Errors that are similar from call to call do not cancel.
        """
        calls = max(self.calls, 1)
        alike = 1.0 + (calls - 1) * min(max(likeness, 0.0), 1.0)
        return math.sqrt(self._squares / calls * alike / calls)

    def is_beyond_rounding(self, likeness: float, margin: float) -> bool:
        """Check whether the bias exceeds what eager and rounding explain."""
        calls = max(self.calls, 1)
        explained = abs(self._eager / calls) + BEYOND * self.rounding(likeness) + margin
        return self.calls >= _LEAST and abs(self._compiled / calls) > explained

    @property
    def is_over(self) -> bool:
        """Whether the value has been examined for long enough."""
        return self.calls >= _MOST
