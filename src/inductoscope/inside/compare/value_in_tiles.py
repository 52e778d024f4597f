"""Compares two values tile by tile, and judges the tiles in which they differ most.

Most values need no more than one pass: an element is right if it is no farther from eager than
what any element may differ, by its own size and by the largest noise. That is the weakest form of
the rule in `bug_or_rounding.py`. Where it does not hold, the worst tiles are judged by that rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from inductoscope.inside.compare.bug_or_rounding import (
    CLOSE,
    FLOOR_NOISE,
    FLOOR_STEPS,
    OutputDifference,
    judge_tensor,
)
from inductoscope.inside.compare.reference import Tile, tiles

# Parts of a value that are judged in full, and the elements of one.
_MOST_PARTS, _PART = 3, 1 << 16
# Healthy models are at 0.1 to 0.4 of a sample's distance from eager, as a root of mean squares.
_USUAL = 0.6


@dataclass(frozen=True)
class Noise:
    """How far samples of rounding are from eager's value."""

    # As a part of the largest magnitude, and of the sum of squares.
    largest: float
    squares: float


@dataclass
class ValueInTiles:
    """How far the compiled value and samples of rounding are from eager's, which is kept."""

    eager: torch.Tensor
    is_close: bool = True
    is_exact: bool = True
    # The largest distance beyond a few units in the last place; infinite if it is no number. Where
    # values have to be equal, how many of a tile are not.
    excess: float = 0.0
    largest: float = 0.0
    noise: float = 0.0
    # The sums of squares of the distances: of the compiled value, and of the latest sample.
    squares: float = 0.0
    squares_of_noise: float = 0.0
    # Parts of the worst tiles of the compiled value, each with its excess, and those of samples.
    worst: list[tuple[float, Tile, torch.Tensor]] = field(default_factory=list)
    samples: list[list[torch.Tensor]] = field(default_factory=list)

    def take_compiled(self, value: torch.Tensor) -> None:
        """Compare the compiled value, and keep its worst tiles."""
        for place in tiles(self.eager):
            other = place.of(value)
            distance = _distance(place.of(self.eager).to(other.device), other)
            self.is_exact &= distance.largest == 0
            self.largest = max(self.largest, distance.largest)
            self.squares += distance.squares
            if distance.is_close:
                continue
            self.is_close = False
            self.excess = max(self.excess, distance.excess)
            if len(self.worst) < _MOST_PARTS or distance.excess > self.worst[-1][0]:
                part = _part_around(place, other, distance.worst)
                self.worst.append((distance.excess, part, part.of(value).clone()))
                self.worst = sorted(self.worst, key=lambda item: -item[0])[:_MOST_PARTS]

    def take_sample(self, value: torch.Tensor) -> None:
        """Measure the noise of a sample, and keep its part of the worst tiles."""
        self.squares_of_noise = 0.0
        for place in tiles(self.eager) if self.is_measured else ():
            other = place.of(value)
            mine = place.of(self.eager).to(other.device)
            noise = (other.float() - mine.float()).abs_().nan_to_num_(0.0, 0.0, 0.0)
            self.noise = max(self.noise, _largest(noise))
            self.squares_of_noise += _squares(noise)
        self.samples.append(self.parts_of(value))

    @property
    def known_noise(self) -> Noise:
        return Noise(self.noise / (self.size or 1.0), self.squares_of_noise / (self._energy or 1.0))

    def explained_by(self, known: Noise) -> bool:
        """Check whether the noise of an equal computation explains the value, without a sample."""
        like = replace(self, noise=known.largest * self.size)
        if not like.is_explained:
            return False
        like.squares_of_noise = known.squares * self._energy
        return not like.is_suspicious

    def parts_of(self, value: torch.Tensor) -> list[torch.Tensor]:
        return [place.of(value).clone() for _, place, _ in self.worst]

    @property
    def is_explained(self) -> bool:
        """Whether no element is farther from eager than the noise allows for any element."""
        return self.is_close or self.excess <= FLOOR_NOISE * self.noise

    @property
    def is_suspicious(self) -> bool:
        """Whether the value as a whole is farther from eager than rounding usually moves it.

        Rounding that is possible explains it, and what is usual is less than half of that.
        """
        return 0 < _USUAL**2 * self.squares_of_noise < self.squares

    @property
    def is_measured(self) -> bool:
        """Whether distances count; otherwise, such as for integers, values have to be equal."""
        return self.eager.dtype in CLOSE

    @cached_property
    def size(self) -> float:
        """The largest magnitude in eager."""
        if not self.is_measured:
            return 0.0
        parts = (
            place.of(self.eager).abs().nan_to_num(0.0, 0.0, 0.0) for place in tiles(self.eager)
        )
        return max(map(_largest, parts), default=0.0)

    @cached_property
    def _energy(self) -> float:
        """The sum of squares of eager's value."""
        parts = (
            place.of(self.eager).float().nan_to_num(0.0, 0.0, 0.0) for place in tiles(self.eager)
        )
        return sum(map(_squares, parts))

    def judged(
        self, name: str, references: Sequence[torch.Tensor]
    ) -> tuple[OutputDifference, bool]:
        """Judge the worst tiles as any value is judged, with their values in float64 if known."""
        judged = None
        for number, (_, place, compiled) in enumerate(self.worst):
            judged = judge_tensor(
                f"{name}{_shown(place, self.eager)}",
                place.of(self.eager).to(compiled.device),
                compiled,
                references[number] if references else None,
                [parts[number] for parts in self.samples],
                self.noise,
            )
            if judged[1]:
                return judged
        assert judged is not None
        return judged

    def within_noise(self, name: str) -> OutputDifference:
        """Describe a difference that samples explain."""
        text = (
            f"{name}: compiled and eager differ by up to {self.largest:.4g}; rounding alone moves "
            f"the result by up to {self.noise:.4g}"
        )
        return OutputDifference("value", name, text, self.largest, FLOOR_NOISE * self.noise)


def comparable(value: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor of real numbers in place of any other one."""
    dense = value if value.layout is torch.strided else value.to_dense()
    dense = dense.resolve_conj().resolve_neg()
    return torch.view_as_real(dense) if dense.dtype.is_complex else dense


@dataclass(frozen=True)
class _Distance:
    largest: float
    # The largest distance beyond a few units in the last place.
    excess: float
    is_close: bool
    # The place of that element, in a flat view.
    worst: int = 0
    squares: float = 0.0


def _distance(mine: torch.Tensor, other: torch.Tensor) -> _Distance:
    if mine.dtype not in CLOSE:
        if mine.dtype.is_floating_point:  # Of eight bits, which few operations support.
            mine, other = mine.float(), other.float()
        unlike = (mine != other) & ~((mine != mine) & (other != other))
        count = int(unlike.sum())
        return _Distance(float(count), float(count), count == 0, _place_of_largest(unlike))
    wide = torch.float64 if mine.dtype is torch.float64 else torch.float32
    one, two = mine.to(wide), other.to(wide)
    distance = (two - one).abs_()
    largest = _largest(distance)
    if not math.isfinite(largest):
        one = one.clone()
        alike = (one == two) | (one.isnan() & two.isnan())
        odd = ~(one.isfinite() & two.isfinite()) & ~alike
        if bool(odd.any()):
            return _Distance(math.inf, math.inf, is_close=False, worst=_place_of_largest(odd))
        one.nan_to_num_(0.0, 0.0, 0.0)
        distance.nan_to_num_(0.0, 0.0, 0.0)
        largest = _largest(distance)
    size = one.abs()
    relative, absolute = CLOSE[mine.dtype]
    steps = FLOOR_STEPS * torch.finfo(mine.dtype).eps
    is_close = largest == 0 or _largest(distance.sub(size, alpha=relative)) <= absolute
    squares = _squares(distance)
    if is_close:
        return _Distance(largest, 0.0, is_close, squares=squares)
    beyond = distance.sub_(size, alpha=steps)
    excess = max(_largest(beyond), 0.0)
    return _Distance(largest, excess, is_close, _place_of_largest(beyond), squares)


def _squares(value: torch.Tensor) -> float:
    return float(value.square().sum(dtype=torch.float64))


def _largest(value: torch.Tensor) -> float:
    return float(value.max()) if value.numel() else 0.0


def _place_of_largest(value: torch.Tensor) -> int:
    return int(value.to(torch.float32).argmax()) if value.numel() else 0


def _part_around(tile: Tile, value: torch.Tensor, worst: int) -> Tile:
    """Return the part of a tile around an element, which is given as its place in a flat view."""
    if not value.dim():
        return tile
    within = int(torch.unravel_index(torch.tensor(worst), value.shape)[tile.dim])
    length = max(1, min(tile.length, tile.length * _PART // max(value.numel(), 1)))
    start = min(max(within - length // 2, 0), tile.length - length)
    return Tile(tile.dim, tile.start + start, length)


def _shown(place: Tile, value: torch.Tensor) -> str:
    """Return the tile as an index: empty if it is the whole value."""
    if not value.dim() or place.length == value.shape[place.dim]:
        return ""
    return f"[{':, ' * place.dim}{place.start}:{place.start + place.length}]"
