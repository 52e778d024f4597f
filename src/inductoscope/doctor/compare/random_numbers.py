"""Whether a function draws random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inductoscope.doctor.compare.values import run

TORCH_NAMES = {
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
}


def draws_random_numbers(function: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Whether a call on these inputs does, at any depth."""
    mode = _Draws()
    run(function, inputs, backward=False, mode=mode)
    return mode.any


class _Draws(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.any |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))
