"""The values of a call that are tested: outputs, gradients, and what it wrote to its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from inductoscope.doctor.compare.values import is_plain


class Trio(NamedTuple):
    """A value of a call, computed in three ways."""

    compiled: torch.Tensor
    eager: torch.Tensor
    reference: torch.Tensor
    # Numbers so much larger than the value itself were rounded to get it.
    magnified: float = 1.0


class ForwardValues:
    """Outputs, and by how much the call changed the inputs that eager writes to."""

    def __init__(self, before: Sequence[Any], after: Sequence[Any]) -> None:
        """Inputs before the call, and as eager left them."""
        self._before = {
            number: one
            for number, (one, two) in enumerate(zip(before, after, strict=True))
            if _is_float(one) and _is_float(two) and not torch.equal(one, two)
        }

    def of(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
        """The values of one way to make the call, by name."""
        found = {
            f"output {number}": value for number, value in enumerate(outputs) if _is_float(value)
        }
        for number, before in self._before.items():
            change = _wide(inputs[number].detach()) - _wide(before.detach())
            found[f"the change of input {number}"] = change
        return found

    def magnified(self, name: str, change: torch.Tensor) -> float:
        """How many times as large as its change an input is; 1 for an output."""
        if not name.startswith("the change"):
            return 1.0
        size = float(_wide(self._before[int(name.rpartition(" ")[2])].detach()).abs().sum())
        return max(size / (float(change.abs().sum()) or size or 1.0), 1.0)


def backward_values(gradients: Mapping[int, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients of inputs, by name."""
    return {
        f"gradient of input {number}": value
        for number, value in gradients.items()
        if _is_float(value)
    }


def trios_of(
    compiled: Mapping[str, torch.Tensor],
    eager: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
) -> dict[str, Trio]:
    """The values that all three ways have, in one shape."""
    names = [name for name in compiled if name in eager and name in reference]
    trios = {name: Trio(compiled[name], eager[name], reference[name]) for name in names}
    return {
        name: trio
        for name, trio in trios.items()
        if trio.compiled.shape == trio.eager.shape == trio.reference.shape
    }


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _is_float(value: Any) -> bool:
    """Whether it is an ordinary tensor of floating point numbers."""
    return is_plain(value) and (value.dtype.is_floating_point or value.dtype.is_complex)
