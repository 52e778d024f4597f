"""Comparison of stuck and finished configurations by their values and derived sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, TypeGuard

Value = int | float | bool | str
Configuration = Mapping[str, Value]

# The best-known names come first; the rest follows alphabetically.
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
        return (*self.summed, *self.factors, *((self.divisor,) if self.divisor else ()))

    @property
    def text(self) -> str:
        sum_ = f"({' + '.join(self.summed)})" if self.summed else ""
        product = "·".join(filter(None, [sum_, *self.factors]))
        return f"{product}/{self.divisor}" if self.divisor else product

    @property
    def is_plain(self) -> bool:
        return len(self.names) == 1

    def of(self, configuration: Configuration) -> Value | None:
        """Compute the quantity; None if the configuration lacks one of its values."""
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
        """Return a Python expression for it, given the name of a dictionary."""
        parts = [f'{configuration}["{name}"]' for name in self.factors]
        if self.summed:
            sum_ = " + ".join(f'{configuration}["{name}"]' for name in self.summed)
            parts.insert(0, f"({sum_})")
        text = " * ".join(parts)
        return f'{text} / {configuration}["{self.divisor}"]' if self.divisor else text


def is_number(value: object) -> TypeGuard[int | float]:
    """Check whether a value can be compared by size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def quantities_of(configurations: Sequence[Configuration]) -> list[Quantity]:
    """Return every quantity that all of these configurations have, plain values first."""
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


# --- The smallest condition that separates stuck configurations from finished ones ----------------
#
# A condition that holds for every stuck one and for no finished one is a conjunction of parts, each
# of which holds for every stuck one: an equality where they all agree, or a bound at the least or
# greatest of them. So the parts are known at once, and what is searched for is the cheapest set of
# parts that rules out every finished one.

Relation = Literal["==", ">=", "<="]

_MOST_PARTS = 3
# The extra cost up to which a condition is named beside the cheapest.
_ALTERNATIVES_COST = 1.0
_MOST_CONDITIONS = 4
# A condition that separates partially is named from this accuracy on.
_LEAST_ACCURACY = 0.75


@dataclass(frozen=True)
class Part:
    quantity: Quantity
    relation: Relation
    value: Value

    def holds(self, configuration: Configuration) -> bool:
        found = self.quantity.of(configuration)
        if found is None:
            return False
        if self.relation == "==":
            return found == self.value and isinstance(found, bool) == isinstance(self.value, bool)
        if not (is_number(found) and is_number(self.value)):
            return False
        return found >= self.value if self.relation == ">=" else found <= self.value

    @property
    def text(self) -> str:
        sign = {"==": "=", ">=": "≥", "<=": "≤"}[self.relation]
        return f"{self.quantity.text}{sign}{_number(self.value)}"

    @property
    def negation(self) -> str:
        """The negation of the part, in mathematical notation."""
        sign = {"==": "≠", ">=": "<", "<=": ">"}[self.relation]
        return f"{self.quantity.text}{sign}{_number(self.value)}"

    @property
    def cost(self) -> float:
        """The complexity: an equality is simplest, then a bound, then products by length."""
        size = 0.25 * (len(self.quantity.names) - 1)
        return 1.0 + (0.1 if self.relation != "==" else 0.0) + size

    def python(self, configuration: str) -> str:
        value = repr(int(self.value) if _is_whole(self.value) else self.value)
        return f"{self.quantity.python(configuration)} {self.relation} {value}"


@dataclass(frozen=True)
class ChoiceCondition:
    """A conjunction of parts, with the stuck and finished configurations it holds for."""

    parts: tuple[Part, ...]
    stuck: int
    of_stuck: int
    finished: int
    of_finished: int
    # A configuration that would distinguish this condition from the others that fit.
    decided_by: str = ""

    @property
    def text(self) -> str:
        return " and ".join(part.text for part in self.parts)

    @property
    def counts(self) -> str:
        """The counts that show how well the condition separates."""
        return (
            f"{self.stuck} of {self.of_stuck} stuck, {self.finished} of {self.of_finished} finished"
        )

    @property
    def separates(self) -> bool:
        """Whether the condition holds for all stuck choices and no finished one."""
        return self.stuck == self.of_stuck and self.finished == 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for part in self.parts for n in part.quantity.names))

    def holds(self, configuration: Configuration) -> bool:
        return all(part.holds(configuration) for part in self.parts)

    def python(self, configuration: str) -> str:
        return " and ".join(part.python(configuration) for part in self.parts)


def contrast(
    stuck: Sequence[Configuration], finished: Sequence[Configuration]
) -> list[ChoiceCondition]:
    """Find conditions that separate, simplest first; if there are none, the closest one.

    Empty if there is nothing to compare: no stuck or no finished configuration.
    """
    if not stuck or not finished:
        return []
    parts = list(_parts(stuck, finished))
    sets = _cheapest(parts, finished)
    if not sets:
        return _closest(stuck, finished)
    found = [_counted(parts, stuck, finished) for parts in sets]
    return [_with_decision(condition, found) for condition in found]


def _parts(stuck: Sequence[Configuration], finished: Sequence[Configuration]) -> Iterator[Part]:
    """Yield every part that holds for all stuck configurations but not for all finished ones."""
    for quantity in quantities_of(stuck):
        values = [value for value in map(quantity.of, stuck) if value is not None]
        if len(values) < len(stuck):
            continue
        for part in _around(quantity, values):
            if not all(part.holds(configuration) for configuration in finished):
                yield part


def _around(quantity: Quantity, values: Sequence[Value]) -> Iterator[Part]:
    if len(set(values)) == 1 and quantity.is_plain:
        yield Part(quantity, "==", values[0])
        return
    numbers = [value for value in values if is_number(value)]
    if len(numbers) == len(values):
        yield Part(quantity, ">=", min(numbers))
        yield Part(quantity, "<=", max(numbers))


def _cheapest(parts: Sequence[Part], finished: Sequence[Configuration]) -> list[tuple[Part, ...]]:
    """Return the cheapest minimal sets of parts that exclude all finished configurations."""
    ruled_out = {
        part: frozenset(n for n, config in enumerate(finished) if not part.holds(config))
        for part in parts
    }
    everything = frozenset(range(len(finished)))
    found: list[tuple[Part, ...]] = []
    for size in range(1, _MOST_PARTS + 1):
        for chosen in combinations(parts, size):
            if frozenset().union(*(ruled_out[part] for part in chosen)) == everything:
                found.append(chosen)
        if found:  # A larger set says nothing that a smaller one does not.
            break
    found.sort(key=_cost)
    limit = _cost(found[0]) + _ALTERNATIVES_COST if found else 0.0
    return [chosen for chosen in _distinct(found) if _cost(chosen) <= limit][:_MOST_CONDITIONS]


def _distinct(found: Sequence[tuple[Part, ...]]) -> Iterator[tuple[Part, ...]]:
    """Drop sets with a product whose factor already occurs in a simpler set."""
    named: set[str] = set()
    for chosen in found:
        names = {name for part in chosen for name in part.quantity.names}
        plain = all(part.quantity.is_plain for part in chosen)
        if not plain and names & named:
            continue
        named |= names if plain else set()
        yield chosen


def _cost(parts: Sequence[Part]) -> float:
    return sum(part.cost for part in parts)


def _counted(
    parts: tuple[Part, ...], stuck: Sequence[Configuration], finished: Sequence[Configuration]
) -> ChoiceCondition:
    found = ChoiceCondition(parts, 0, len(stuck), 0, len(finished))
    return replace(
        found, stuck=sum(map(found.holds, stuck)), finished=sum(map(found.holds, finished))
    )


def _with_decision(condition: ChoiceCondition, all_: Sequence[ChoiceCondition]) -> ChoiceCondition:
    """Add the configuration that would decide between this condition and another."""
    other = next((one for one in all_ if one is not condition), None)
    if other is None:
        return condition
    apart = next((part for part in other.parts if part not in condition.parts), other.parts[0])
    text = f"a choice with {condition.text} and {apart.negation}: stuck if this is the cause"
    return replace(condition, decided_by=text)


def _closest(
    stuck: Sequence[Configuration], finished: Sequence[Configuration]
) -> list[ChoiceCondition]:
    """Return the single value that separates best, if it separates well enough."""
    values = dict.fromkeys(item for configuration in stuck for item in configuration.items())
    parts = (Part(Quantity((name,)), "==", value) for name, value in values)
    counted = [_counted((part,), stuck, finished) for part in parts]
    best = max(counted, key=_accuracy, default=None)
    return [best] if best is not None and _accuracy(best) >= _LEAST_ACCURACY else []


def _accuracy(condition: ChoiceCondition) -> float:
    """Return the mean of the shares of stuck choices found and of finished choices spared."""
    found = condition.stuck / condition.of_stuck
    spared = 1 - condition.finished / condition.of_finished
    return (found + spared) / 2 if found > 0.5 else 0.0


def _is_whole(value: Value) -> bool:
    return isinstance(value, float) and value.is_integer()


def _number(value: Value) -> str:
    return str(int(value) if _is_whole(value) else value)
