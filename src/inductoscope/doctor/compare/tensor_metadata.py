"""Differences in metadata: number and type of values, shapes, strides, shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from inductoscope.doctor.compare.values import Outcome
from inductoscope.doctor.failure import WrongValue

# Differences in how results lie in memory. They change no value, and most programs never notice.
IN_MEMORY = ("sharing", "stride")


@dataclass(frozen=True)
class OutputDifference:
    """One way in which a compiled result differs from eager's."""

    kind: str  # value, nan, dtype, shape, stride, sharing, structure
    where: str
    text: str
    largest: float = 0.0
    allowed: float = 0.0
    value: WrongValue | None = None


def metadata_differences(eager: Outcome, compiled: Outcome) -> list[OutputDifference]:
    """Differences in number and type of values, shapes, strides, shared memory."""
    mine, other = list(eager.named_values()), list(compiled.named_values())
    if [name for name, _ in mine] != [name for name, _ in other]:
        names = {name for name, _ in mine} ^ {name for name, _ in other}
        text = f"only one of eager and compiled has {', '.join(sorted(names)[:4])}"
        return [OutputDifference("structure", "outputs", text)]
    found = []
    for (name, one), (_, two) in zip(mine, other, strict=True):
        found += _of_value(name, one, two)
    for number, (one, two) in enumerate(zip(eager.shared, compiled.shared, strict=True)):
        if one != two:
            text = (
                f"output {number} shares memory with {_list(two)} when compiled, "
                f"with {_list(one)} in eager"
            )
            found.append(OutputDifference("sharing", f"output {number}", text))
    return found + _identity_differences(eager.same, compiled.same)


def _identity_differences(
    eager: tuple[int, ...], compiled: tuple[int, ...]
) -> list[OutputDifference]:
    """Outputs that are one object on one side and two on the other."""
    found = []
    for number, (mine, other) in enumerate(zip(eager, compiled, strict=True)):
        if mine == other:
            continue
        said = "one object when compiled, two" if other != number else "two when compiled, one"
        text = f"outputs {min(mine, other)} and {number} are {said} in eager"
        found.append(OutputDifference("sharing", f"output {number}", text))
    return found


def _list(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "nothing"


def _of_value(name: str, one: Any, two: Any) -> list[OutputDifference]:
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        if type(one) is not type(two):
            text = f"{name} is a {type(two).__name__}, in eager a {type(one).__name__}"
            return [OutputDifference("structure", name, text)]
        return []
    if one.dtype != two.dtype:
        return [OutputDifference("dtype", name, f"{name} is {two.dtype}, in eager {one.dtype}")]
    if one.shape != two.shape:
        text = f"{name} has shape {tuple(two.shape)}, in eager {tuple(one.shape)}"
        return [OutputDifference("shape", name, text)]
    # Gradients may have another memory format: Inductor chooses it for convolutions.
    if not name.startswith("gradient") and strides_that_matter(one) != strides_that_matter(two):
        text = f"{name} has strides {two.stride()}, in eager {one.stride()}"
        return [OutputDifference("stride", name, text)]
    return []


def strides_that_matter(value: torch.Tensor) -> list[int]:
    """The strides of dimensions with more than one element; others have no effect."""
    if value.layout is not torch.strided or not value.numel():
        return []
    return [step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1]
