"""Dropout in eager with the very numbers that Inductor's code draws.

Compiled code takes one seed for each dropout from torch's generator and computes its random numbers
from the seed and the position of an element (Philox). So whoever knows the state of the generator
before a call can drop in eager what the call has dropped, without changing what the program draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inductoscope.doctor.compare.random_numbers import result_and_drawing

TORCH_NAMES = {
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
}

_LOW_32 = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_TO_UNIT = 4.6566127342e-10


class CannotRepeat(Exception):
    """The graph draws random numbers in a way that is not known here."""


def uniform(seed: int, count: int, device: torch.device) -> torch.Tensor:
    """The numbers in [0, 1) that Inductor's code computes for positions 0 to count - 1."""
    # Code for the CPU uses the lower half of the seed only.
    keys = [seed & _LOW_32, 0 if device.type == "cpu" else (seed >> 32) & _LOW_32]
    a, b = _MULTIPLIERS
    c0 = torch.arange(count, device=device)
    c1, c2, c3 = (torch.zeros_like(c0) for _ in range(3))
    for _ in range(_ROUNDS):
        c0, c1, c2, c3 = (
            _high_half(b, c2) ^ c1 ^ keys[0],
            (b * c2) & _LOW_32,
            _high_half(a, c0) ^ c3 ^ keys[1],
            (a * c0) & _LOW_32,
        )
        keys = [(key + step) & _LOW_32 for key, step in zip(keys, _KEY_STEPS, strict=True)]
    folded = c0 & 0x7FFFFFFF if device.type == "cpu" else torch.where(c0 >> 31 > 0, ~c0, c0)
    return (folded & 0x7FFFFFFF).float() * torch.tensor(_TO_UNIT, device=device)


def _high_half(a: int, b: torch.Tensor) -> torch.Tensor:
    """The upper 32 bits of a product of two numbers of 32 bits."""
    return (a * (b >> 16) + ((a * (b & 0xFFFF)) >> 16)) >> 16


def draw_seeds(count: int, device: torch.device) -> list[int]:
    """The seeds that compiled code draws from the generator as it is now."""
    limits = torch.iinfo(torch.int64)
    return torch.randint(limits.min, limits.max, [count], device=device).tolist()


class Drops:
    """Which elements each dropout of a call drops, in the order in which the graph draws."""

    def __init__(self, seeds: Sequence[int] | None = None) -> None:
        """Without seeds, drops are only counted."""
        self._seeds = seeds
        self._kept: list[torch.Tensor] = []
        self.devices: list[torch.device] = []

    def replayed(self) -> TorchDispatchMode:
        """Inside it, dropout drops these elements. The first use makes them, others repeat them."""
        return _Replay(self)

    def kept(self, number: int, like: torch.Tensor, probability: float) -> torch.Tensor:
        """Which elements of a tensor dropout number `number` keeps."""
        if number < len(self._kept):
            return self._kept[number]
        self.devices.append(like.device)
        if self._seeds is None:
            made = torch.ones(like.shape, dtype=torch.bool, device=like.device)
        else:
            numbers = uniform(self._seeds[number], like.numel(), like.device).reshape(like.shape)
            # Compiled code compares with the probability in the tensor's own precision.
            made = numbers > float(torch.tensor(probability, dtype=like.dtype, device="cpu"))
        self._kept.append(made)
        return made


class _Replay(TorchDispatchMode):
    def __init__(self, drops: Drops) -> None:
        super().__init__()
        self._drops = drops
        self._numbers: Iterator[int] = iter(range(1 << 30))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        if func is torch.ops.aten.bernoulli_.float:
            # How eager drops on a CPU: noise that is 1 where an element is kept.
            like, keep = args[0], float(args[1])
            return like.copy_(self._drops.kept(next(self._numbers), like, 1.0 - keep))
        if func is torch.ops.aten.native_dropout.default and args[2] is not False:
            value, probability = args[0], float(args[1])
            kept = self._drops.kept(next(self._numbers), value, probability)
            return value * kept * (1.0 / (1.0 - probability)), kept
        result, is_random = result_and_drawing(func, args, kwargs or {})
        if is_random:
            raise CannotRepeat(str(func))
        return result
