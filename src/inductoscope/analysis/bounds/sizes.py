"""The sizes that guards admit: their ranges, and edge cases to try."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from inductoscope.analysis.bounds.proof import Ends
from inductoscope.model.memory import GraphMemory
from inductoscope.torch_facts.index_expressions import (
    Applied,
    Expression,
    NotUnderstood,
    Number,
    conjuncts,
    holds,
    names_in,
    read_expression,
    replaced,
)

# Sizes near the smallest, at the ends of vectors, and around powers of two.
_STEPS = (0, 1, 2, 3, 5, 6)
_VALUES = (4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)
# Larger bounds mean none: torch writes the largest integer for an unbounded range.
_ENDLESS = 1 << 40
_MOST_TRIED = 160
_MOST_REPLACED = 8


@dataclass(frozen=True)
class AdmittedSizes:
    """The symbols of a graph, and the guards on them."""

    memory: GraphMemory

    def read(self, text: str) -> Expression:
        """Parse an expression and apply torch's replacements of symbols."""
        return self.resolved(read_expression(text))

    def resolved(self, expression: Expression) -> Expression:
        """Apply torch's replacements of symbols to an expression."""
        for _ in range(_MOST_REPLACED):
            if self._replaced.keys().isdisjoint(names_in(expression)):
                break
            expression = replaced(expression, self._replaced)
        return expression

    @cached_property
    def _replaced(self) -> dict[str, Expression]:
        """Torch's replacements of symbols, as far as they are understood."""
        found = {name: _understood(text) for name, text in self.memory.replaced.items()}
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def assumed(self) -> tuple[Expression, ...]:
        """The guards on the symbols, as far as they are understood."""
        return tuple(found for found in self._guards if found is not None)

    @cached_property
    def _guards(self) -> tuple[Expression | None, ...]:
        found: list[Expression | None] = []
        for text in self.memory.assumed:
            try:
                found.extend(conjuncts(self.read(text)))
            except NotUnderstood:
                found.append(None)
        return tuple(found)

    @property
    def has_unknown_guards(self) -> bool:
        """Whether some guard or replacement is not understood, so no size is surely admitted."""
        return None in self._guards or len(self._replaced) < len(self.memory.replaced)

    @cached_property
    def spans(self) -> dict[str, Ends]:
        ends = {name: self.ends(name) for name in self.memory.symbols}
        return {
            name: Ends(*(None if end is None else Number(end) for end in both))
            for name, both in ends.items()
        }

    @cached_property
    def usual(self) -> dict[str, int]:
        """The sizes of the run, as far as they were known before it."""
        symbols = self.memory.symbols.items()
        return {name: int(one.value) for name, one in symbols if one.value.isdecimal()}

    def ends(self, name: str) -> tuple[int | None, int | None]:
        """Return the smallest and the largest value of a symbol; None where unbounded."""
        symbol = self.memory.symbols[name]
        return _end(symbol.lower), _end(symbol.upper)

    def unknown(self, names: Iterable[str]) -> list[str]:
        return sorted(name for name in names if name not in self.memory.symbols)

    def is_data(self, name: str) -> bool:
        """Check whether a size is only known at run time."""
        symbol = self.memory.symbols.get(name)
        return symbol is None or not symbol.value

    def tried(self, names: frozenset[str]) -> Iterator[dict[str, int]]:
        """Yield sizes that satisfy every guard: those of the run first, then edge cases."""
        wanted = sorted(self.with_neighbours(names))
        if not wanted:
            yield {}
            return
        seen = []
        for sizes in itertools.islice(self._combinations(wanted), _MOST_TRIED):
            if sizes not in seen and self.admits(sizes):
                seen.append(sizes)
                yield sizes

    def with_neighbours(self, names: frozenset[str]) -> frozenset[str]:
        """Return the sizes and those that a guard relates to them."""
        found = names & self.memory.symbols.keys()
        for _ in range(len(self.assumed)):
            related = [names_in(guard) for guard in self.assumed if names_in(guard) & found]
            grown = found.union(*related) & self.memory.symbols.keys()
            if grown == found:
                break
            found = grown
        return found

    def _combinations(self, names: list[str]) -> Iterator[dict[str, int]]:
        choices = {name: self._choices(name) for name in names}
        usual = {name: values[0] for name, values in choices.items()}
        yield usual
        # One size after the other takes an unusual value, then all of them together.
        for name, values in choices.items():
            yield from ({**usual, name: value} for value in values[1:])
        for row in range(max(map(len, choices.values()))):
            yield {name: values[row % len(values)] for name, values in choices.items()}
            for ahead in names:
                yield {
                    name: values[(row + 1 + (name == ahead)) % len(values)]
                    for name, values in choices.items()
                }

    def _choices(self, name: str) -> list[int]:
        low, high = self.ends(name)
        lowest = 0 if low is None else max(low, 0)
        usual = [self.usual[name]] if name in self.usual else []
        found = [*usual, *(lowest + step for step in _STEPS), *_VALUES]
        if high is not None and high < 1 << 20:
            found += [high, high - 1]
        admitted = [v for v in found if v >= lowest and (high is None or v <= high)]
        return list(dict.fromkeys(admitted)) or [lowest]

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Check whether every guard holds.

        A guard on one of these sizes that cannot be evaluated counts as violated.
        """
        concerning = [g for g in self.assumed if not names_in(g) or names_in(g) & sizes.keys()]
        return all(holds(guard, sizes) is True for guard in concerning)


def _understood(text: str) -> Expression | None:
    try:
        return read_expression(text)
    except NotUnderstood:
        return None


def _end(text: str) -> int | None:
    """Parse a bound of a range; None if it is infinite."""
    digits = text.removeprefix("-")
    if not digits.isdecimal() or len(digits) > 20:
        return None
    value = int(text)
    return value if abs(value) < _ENDLESS else None


# --------------------------------------------------------------------------------------------------
# Sizes at which generated code is most likely to differ: ends of ranges, and where a part begins.
#
# One size at a time leaves its usual value: to the ends of the range that the guards or the export
# admit, to multiples of what the code divides it by, and to where vectors and tiles end.

# The widths of CPU vectors and of small tiles.
_WIDTHS = (8, 16, 32)
_DIVISIONS = ("floordiv", "mod", "modular")
# Larger tensors take long to compute, and show nothing new.
_LARGEST = 4096
_MOST_FOR_ONE = 14


@dataclass(frozen=True)
class EdgeSize:
    """A set of sizes to try: `symbol` has an unusual value, for the reason `why`."""

    symbol: str
    value: int
    why: str
    sizes: Mapping[str, int]


def edge_sizes(sizes: AdmittedSizes, indices: Iterable[Expression]) -> Iterator[EdgeSize]:
    """Yield edge cases that every guard admits, without duplicates."""
    usual = sizes.usual
    parts = [*indices, *_sizes_and_guards(sizes)]
    for name in sorted(usual):
        tried = 0
        for value, why in _choices(sizes, name, usual[name], parts).items():
            found = {**usual, name: value}
            if tried < _MOST_FOR_ONE and value != usual[name] and sizes.admits(found):
                tried += 1
                yield EdgeSize(name, value, why, found)


def _choices(
    sizes: AdmittedSizes, name: str, usual: int, parts: list[Expression]
) -> dict[int, str]:
    """Return unusual values of a size, each with its reason; the first reason counts."""
    low, high = sizes.ends(name)
    lowest = 0 if low is None else max(low, 0)
    found = {lowest: "the smallest that is admitted"}
    if high is not None and high <= _LARGEST:
        found.setdefault(high, "the largest that is admitted")
    found.setdefault(lowest + 1, "one more than the smallest that is admitted")
    divisors = sorted({d for part in parts for d in _divisors(part, name)})
    places = [
        *(
            (max(usual // d, 1) * d, f"a multiple of {d}, by which the code divides it")
            for d in divisors
        ),
        *((width, f"{width}, where vectors and tiles end") for width in _WIDTHS),
    ]
    for value, why in places:
        found.setdefault(value + 1, f"one more than {why}")
        found.setdefault(value - 1, f"one less than {why}")
        found.setdefault(value, why)
    if high is not None and high <= _LARGEST:
        found.setdefault(high - 1, "one less than the largest that is admitted")
    return {v: why for v, why in found.items() if lowest <= v <= (high or _LARGEST)}


def _sizes_and_guards(sizes: AdmittedSizes) -> Iterator[Expression]:
    yield from sizes.assumed
    for room in sizes.memory.rooms.values():
        for text in (*room.size, *room.stride):
            try:
                yield sizes.read(text)
            except NotUnderstood:
                continue


def _divisors(expression: Expression, name: str) -> Iterator[int]:
    """Yield the numbers by which expressions with this size are divided."""
    if not isinstance(expression, Applied):
        return
    if expression.operation in _DIVISIONS and name in names_in(expression.operands[0]):
        for divisor in expression.operands[1:]:
            if isinstance(divisor, Number) and 1 < divisor.value <= _LARGEST:
                yield int(divisor.value)
    for operand in expression.operands:
        yield from _divisors(operand, name)
