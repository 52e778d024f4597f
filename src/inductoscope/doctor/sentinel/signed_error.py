"""The signed error of a value against float64, added up along a few directions.

Each error is a share of the value's own size (the sum of its magnitudes). `scale` weighs every
element by the sign of its true value: a value that is too large by a factor of 1.001 has an error
of 0.001 there. `shift` just adds up: something was added to every element, or left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import torch

from inductoscope.doctor.sentinel.bias_test import DIRECTIONS, SignedErrors

# Parts of the unit in the last place, for types in which one unit is large, and units of float32.
# Summing in another order, or a constant that is rounded, may bias a result by as much.
_PART_OF_UNIT = 1 / 32
_UNITS = 64

_EPS = torch.finfo(torch.float32).eps
# Elements of an error that are compared with those of the next call, and how few are too few.
_SAMPLE, _ENOUGH = 4096, 64
# Less than that is nothing that training could notice.
_LEAST = 1e-9


def margin_for(dtypes: Collection[torch.dtype]) -> float:
    """The relative bias that is not reported where these are the types computed in."""
    units: list[float] = [torch.finfo(dtype).eps for dtype in dtypes]
    if torch.float32 in dtypes:
        units.append(_unit_of_products())
    margins = [max(_PART_OF_UNIT * unit, _UNITS * min(unit, _EPS)) for unit in units]
    return max([_LEAST, *margins])


def _unit_of_products() -> float:
    """Matrix products and convolutions of float32 may be allowed to round their factors."""
    precision = torch.get_float32_matmul_precision()
    rounds = torch.cuda.is_initialized() and torch.backends.cudnn.allow_tf32
    lower = {"medium": torch.bfloat16, "high": torch.float16}.get(
        precision, torch.float16 if rounds else torch.float32
    )
    return float(torch.finfo(lower).eps)


def signed_errors(
    compiled: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, margin: float
) -> SignedErrors | None:
    """The errors of a value; None where it cannot be told, because nothing is left to compare."""
    c, e, r = wide(compiled), wide(eager), wide(reference)
    usable = e.isfinite() & r.isfinite()
    if not bool(usable.all()):
        c, e, r = c[usable], e[usable], r[usable]
    size = float(r.abs().sum())
    if not size or not math.isfinite(size):
        return None
    return SignedErrors(_along(c - r, r, size), _along(e - r, r, size), margin)


def errors_of(value: torch.Tensor, reference: torch.Tensor) -> tuple[float, ...]:
    """The errors of one way to compute a value, for each direction."""
    v, r = wide(value), wide(reference)
    usable = v.isfinite() & r.isfinite()
    v, r = v[usable], r[usable]
    size = float(r.abs().sum())
    return _along(v - r, r, size) if size else tuple(0.0 for _ in DIRECTIONS)


def _along(error: torch.Tensor, reference: torch.Tensor, size: float) -> tuple[float, ...]:
    sums = float((error * reference.sign()).sum()), float(error.sum())
    # NaN or Inf where eager and float64 are finite: as wrong as can be.
    return tuple(value / size if math.isfinite(value) else math.inf for value in sums)


def wide(value: torch.Tensor) -> torch.Tensor:
    """The numbers of a value, in float64 and without their shape."""
    value = value.detach()
    value = torch.view_as_real(value) if value.is_complex() else value
    return value.double().reshape(-1)


@dataclass
class Likeness:
    """How alike the errors of eager are from one shadowed call to the next: 0 not at all, 1 same.

    Too few elements say nothing, which counts as 1.
    """

    _last: torch.Tensor | None = None
    _sum: float = 0.0
    _count: int = 0

    def add(self, eager: torch.Tensor, reference: torch.Tensor) -> None:
        """The values of one more call."""
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
        """The average cosine of the angle between errors."""
        known = self._last is not None and self._last.numel() >= _ENOUGH and self._count
        return self._sum / self._count if known else 1.0


def _some_of(value: torch.Tensor) -> torch.Tensor:
    """At most so many elements, spread over the whole."""
    return value[:: value.numel() // _SAMPLE + 1]
