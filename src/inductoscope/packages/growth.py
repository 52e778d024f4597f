"""Whether something grows with every call: a pure function of samples taken between calls.

Memory that is set up once, caches that fill, and an allocator that keeps pages all level off. Only
what grows steadily, as much in the second half as in the first, is called growth.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What is sampled, what it is called, and how much of it in all is worth a word.
_QUANTITIES = (
    ("allocated", "bytes allocated", 4 << 10),
    ("resident", "bytes of resident memory", 4 << 20),
    ("files", "open files", 5),
    ("threads", "threads", 5),
)
_MOST_IDLE = 0.2  # share of the windows that may pass without growth
_FAR_MORE = 4  # times as much
_LEAST_LATER = 0.35  # share of the growth that falls into the second half


@dataclass(frozen=True)
class Growth:
    """One quantity that grows with the calls."""

    quantity: str
    name: str
    total: int
    calls: int

    @property
    def per_call(self) -> float:
        """How much each call adds."""
        return self.total / self.calls

    @property
    def amount(self) -> str:
        """What each call adds, as part of a sentence."""
        name = self.name.removesuffix("s") if self.per_call == 1 else self.name
        return f"{self.per_call:.6g} {name}"

    @property
    def text(self) -> str:
        """What each call adds, in words."""
        return f"Every call adds {self.amount}, over {self.calls} calls."


def growths(samples: Sequence[Mapping[str, int]]) -> tuple[Growth, ...]:
    """Everything that grows steadily over the samples."""
    found = [_growth(quantity, name, least, samples) for quantity, name, least in _QUANTITIES]
    kept = [growth for growth in found if growth is not None]
    # Allocated bytes are exact; resident memory says the same less exactly. Tensors may lie in
    # memory that malloc does not know of, and then it says more.
    by_quantity = {growth.quantity: growth for growth in kept}
    exact, rough = by_quantity.get("allocated"), by_quantity.get("resident")
    if exact is not None and rough is not None:
        kept.remove(exact if rough.total > _FAR_MORE * exact.total else rough)
    return tuple(kept)


def _growth(
    quantity: str, name: str, least: int, samples: Sequence[Mapping[str, int]]
) -> Growth | None:
    values = [sample[quantity] for sample in samples]
    if len(values) < 5 or min(values) < 0:
        return None
    steps = [later - earlier for earlier, later in itertools.pairwise(values)]
    total = values[-1] - values[0]
    later = values[-1] - values[len(values) // 2]
    idle = sum(step <= 0 for step in steps)
    if total < least or idle > _MOST_IDLE * len(steps) or later < _LEAST_LATER * total:
        return None
    calls = samples[-1]["calls"] - samples[0]["calls"]
    # Less than one file or thread in ten calls may be something else's.
    if calls <= 0 or (quantity in ("files", "threads") and total < calls / 10):
        return None
    return Growth(quantity, name, total, calls)
