"""What a configuration can be compared by: its values, and sizes that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeGuard

Value = int | float | bool | str
Configuration = Mapping[str, Value]

# The best known first; the rest follows alphabetically.
_KNOWN_FIRST = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")


@dataclass(frozen=True)
class Quantity:
    """A value of a configuration, or a product of several over a divisor.

    `summed` adds before it multiplies: (BLOCK_M + BLOCK_N) · BLOCK_K · num_stages is what a matrix
    product keeps in shared memory, in elements.
    """

    factors: tuple[str, ...]
    summed: tuple[str, ...] = ()
    divisor: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All values of the configuration that it is made of."""
        return (*self.summed, *self.factors, *((self.divisor,) if self.divisor else ()))

    @property
    def text(self) -> str:
        """As people write it."""
        sum_ = f"({' + '.join(self.summed)})" if self.summed else ""
        product = "·".join(filter(None, [sum_, *self.factors]))
        return f"{product}/{self.divisor}" if self.divisor else product

    @property
    def is_plain(self) -> bool:
        """Whether it is a single value."""
        return len(self.names) == 1

    def of(self, configuration: Configuration) -> Value | None:
        """Its value; None where the configuration lacks a part of it."""
        values = [configuration.get(name) for name in self.names]
        if any(value is None for value in values):
            return None
        if self.is_plain:
            return values[0]
        if not all(is_number(value) for value in values):
            return None
        return self._computed({name: float(configuration[name]) for name in self.names})

    def _computed(self, numbers: Mapping[str, float]) -> float:
        result = math.prod(numbers[name] for name in self.factors)
        if self.summed:
            result *= sum(numbers[name] for name in self.summed)
        divisor = numbers[self.divisor] if self.divisor else 1.0
        return result / divisor if divisor else math.inf

    def python(self, configuration: str) -> str:
        """An expression for it, given the name of a dictionary."""
        parts = [f'{configuration}["{name}"]' for name in self.factors]
        if self.summed:
            sum_ = " + ".join(f'{configuration}["{name}"]' for name in self.summed)
            parts.insert(0, f"({sum_})")
        text = " * ".join(parts)
        return f'{text} / {configuration}["{self.divisor}"]' if self.divisor else text


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value can be compared by size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def quantities_of(configurations: Sequence[Configuration]) -> list[Quantity]:
    """Every quantity that all of these have, plain values first."""
    if not configurations:
        return []
    names = set(configurations[0]).intersection(*configurations[1:])
    plain = [Quantity((name,)) for name in sorted(names, key=_known_first)]
    return [*plain, *_derived(names, configurations)]


def _known_first(name: str) -> tuple[int, str]:
    if name in _KNOWN_FIRST:
        return _KNOWN_FIRST.index(name), name
    return (len(_KNOWN_FIRST) if _is_block(name) else len(_KNOWN_FIRST) + 1), name


def _is_block(name: str) -> bool:
    return "BLOCK" in name.upper()


def _derived(names: Iterable[str], configurations: Sequence[Configuration]) -> list[Quantity]:
    numeric = {name for name in names if all(is_number(c[name]) for c in configurations)}
    blocks = sorted(filter(_is_block, numeric))
    found = [Quantity(pair) for pair in combinations(blocks, 2)]
    found += [Quantity(three) for three in combinations(blocks, 3)]
    if {"BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages"} <= numeric:
        found.append(Quantity(("BLOCK_K", "num_stages"), ("BLOCK_M", "BLOCK_N")))
    if {"BLOCK_M", "BLOCK_N", "num_warps"} <= numeric:
        found.append(Quantity(("BLOCK_M", "BLOCK_N"), divisor="num_warps"))
    if {"XBLOCK", "num_warps"} <= numeric:
        found.append(Quantity(("XBLOCK",), divisor="num_warps"))
    return found
