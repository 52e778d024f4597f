"""Whether a function draws random numbers.

Torch marks operations that may. Attention is one of them, and without dropout it draws none: what
tells is whether the generators have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def result_and_drawing(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """What an operation returns, and whether it drew random numbers."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return func(*args, **kwargs), False
    before = _states()
    result = func(*args, **kwargs)
    has_own = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
    moved = any(not torch.equal(*pair) for pair in zip(before, _states(), strict=True))
    return result, has_own or moved


def _states() -> list[torch.Tensor]:
    """The states of the default generators, of which a GPU has one too."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


class _Draws(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, draws = result_and_drawing(func, args, kwargs or {})
        self.any |= draws
        return result
