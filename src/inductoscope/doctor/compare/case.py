"""A function, and what eager makes of its inputs: as it is, in float64, with other roundings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from inductoscope.doctor.compare.rounding import SAMPLES, in_float64, perturbed_rounding
from inductoscope.doctor.compare.values import Outcome, run

_MORE_SAMPLES = 20


@dataclass(frozen=True)
class Case:
    """A function and the inputs on which it is judged."""

    function: Callable[..., Any]
    inputs: Sequence[Any]
    backward: bool = False

    @cached_property
    def eager(self) -> Outcome:
        """The result of the function without a compiler."""
        return run(self.function, self.inputs, backward=self.backward)

    @cached_property
    def again(self) -> Outcome:
        """The same once more: a difference between the two is not the compiler's."""
        return run(self.function, self.inputs, backward=self.backward)

    @cached_property
    def float64(self) -> Outcome | None:
        """The reference; None if an operation does not support float64."""
        return self._in_float64()

    @cached_property
    def float64_again(self) -> Outcome | None:
        """The same once more."""
        return self._in_float64()

    def _in_float64(self) -> Outcome | None:
        try:
            return in_float64(self.function, self.inputs, backward=self.backward)
        except Exception:
            return None

    def perturbed(self, count: int = SAMPLES) -> list[Outcome]:
        """Eager with perturbed rounding, several times; each is computed once."""
        missing = max(0, count - len(self._perturbed))
        self._perturbed.extend(itertools.islice(self._more_perturbed, missing))
        return self._perturbed[:count]

    @cached_property
    def _perturbed(self) -> list[Outcome]:
        return []

    @cached_property
    def _more_perturbed(self) -> Iterator[Outcome]:
        return self._with(self._modes)

    def perturbed_further(self) -> Iterator[Outcome]:
        """More of them, each computed when it is asked for."""
        return self._with(
            perturbed_rounding(seed) for seed in range(SAMPLES, SAMPLES + _MORE_SAMPLES)
        )

    def _with(self, modes: Iterable[Any]) -> Iterator[Outcome]:
        for mode in modes:
            try:
                yield run(self.function, self.inputs, backward=self.backward, mode=mode)
            except Exception:
                return

    @cached_property
    def _modes(self) -> list[Any]:
        return [perturbed_rounding(seed) for seed in range(SAMPLES)]

    @property
    def reads_unwritten_memory(self) -> bool:
        """Whether the function allocates memory without initialising it."""
        return bool(self.perturbed(1)) and self._modes[0].has_filled
