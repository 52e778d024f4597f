"""Proves that a polynomial is nowhere negative, from the ranges of what it depends on.

Each step replaces one atom by a bound of it. What remains is larger in no place: the slope of the
atom says whether its lower or its upper bound gives the smallest value, and where the sign of the
slope is open, both are tried, since a linear function is smallest at an end. In the end only
constants and sizes are left. Every step is sound for all values, so a proof is one for all sizes;
a proof that is not found says nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from inductoscope.analysis.bounds.context import Context, NameRange
from inductoscope.analysis.bounds.expressions import (
    ZERO,
    Applied,
    Expression,
    Name,
    NotUnderstood,
    add,
    conjuncts,
    minus,
)
from inductoscope.analysis.bounds.polynomials import (
    Atom,
    Coefficient,
    Polynomial,
    number,
    one,
    polynomial,
)

_CASES = ("abs", "min", "max", "where")
_DEEPEST = 24
_ALMOST_ONE = Fraction(4095, 4096)
# What these give need not be a whole number.
_FRACTIONS = ("truediv", "pow", "float", "rounded")


@dataclass
class Effort:
    """How many steps are left for one question."""

    steps: int = 500

    def take(self) -> bool:
        """Use one; False if there is none left."""
        self.steps -= 1
        return self.steps > 0


@dataclass
class Prover:
    """Answers questions about one context, and remembers the answers."""

    context: Context
    # Of time.monotonic: from then on, no proof is found.
    until: float = math.inf
    effort: Effort = field(default_factory=Effort)
    _known: dict[tuple[Polynomial, frozenset[Atom]], bool] = field(default_factory=dict)
    _held: dict[Polynomial, bool] = field(default_factory=dict)
    _bounds: dict[tuple[Atom, bool], list[Polynomial]] = field(default_factory=dict)

    def never_negative(self, found: Polynomial) -> bool:
        """Whether that is proven; False if no proof was found."""
        goals = [found]
        if _is_whole(found):
            # Bounds of quotients are fractions; a whole number above -1 is not negative.
            goals.append(found + number(_ALMOST_ONE))
        try:
            return any(self._starts(goal) for goal in goals)
        except (NotUnderstood, RecursionError):
            return False

    def _starts(self, goal: Polynomial) -> bool:
        self.effort = Effort()
        return self.proves(goal, frozenset(), 0)

    def proves(self, goal: Polynomial, gone: frozenset[Atom], depth: int) -> bool:
        """`gone`: atoms that were replaced; a bound that holds one of them leads in a circle."""
        key = (goal, gone)
        if key not in self._known:
            self._known[key] = False  # Met again on the way, it would prove itself.
            self._known[key] = self._proves(goal, gone, depth)
        return self._known[key]

    def _proves(self, goal: Polynomial, gone: frozenset[Atom], depth: int) -> bool:
        if goal.constant is not None:
            return goal.constant >= 0
        if depth > _DEEPEST or not self.effort.take() or time.monotonic() > self.until:
            return False
        if self._is_plainly_positive(goal):
            return True
        choice = next((a for a in _ordered(goal.atoms) if _is_case(a)), None)
        if choice is not None:
            return self._in_every_case(goal, choice, gone, depth)
        return any(self._without(goal, atom, gone, depth) for atom in self._candidates(goal, gone))

    def _is_plainly_positive(self, goal: Polynomial) -> bool:
        """With each atom counted from its lowest value, no coefficient is negative."""
        if all(value < 0 for value in goal.terms.values()):
            return False
        for atom in goal.atoms:
            low = self._lowest(atom)
            if low is None:
                return False
            if low:
                goal = goal.put(atom, one(atom) + number(low))
        return all(value >= 0 for value in goal.terms.values())

    def _lowest(self, atom: Atom) -> Coefficient | None:
        constants = [
            low.constant for low in self.lows(atom, frozenset()) if low.constant is not None
        ]
        return max(constants, default=None)

    def _candidates(self, goal: Polynomial, gone: frozenset[Atom]) -> list[Atom]:
        """Atoms to replace, those that depend on others first: one way is mostly enough."""
        linear = [atom for atom in goal.atoms if goal.degree(atom) == 1 and atom not in gone]
        inner = [atom for atom in linear if not self._is_size(atom)]
        return sorted(inner or linear, key=lambda atom: (isinstance(atom, Name), str(atom)))[:4]

    def _is_size(self, atom: Atom) -> bool:
        return _names(atom) <= self.context.sizes

    def _without(self, goal: Polynomial, atom: Atom, gone: frozenset[Atom], depth: int) -> bool:
        slope, _ = goal.split(atom)
        after = gone | {atom}
        rises = self.proves(slope, gone, depth + 1)
        falls = not rises and self.proves(slope.times(-1), gone, depth + 1)
        ends = []
        if not falls:
            ends.append(self.lows(atom, after))
        if not rises:
            ends.append(self.highs(atom, after))
        return all(
            any(self.proves(goal.put(atom, end), after, depth + 1) for end in bounds)
            for bounds in ends
        )

    # --- cases ------------------------------------------------------------------------------------

    def _in_every_case(
        self, goal: Polynomial, choice: Atom, gone: frozenset[Atom], depth: int
    ) -> bool:
        assert isinstance(choice, Applied)
        for value, conditions in _cases(choice):
            chosen = polynomial(value)
            facts = tuple(fact.put(choice, chosen) for fact in self.context.facts)
            context = replace(self.context, facts=facts).assuming(conditions)
            inside = Prover(context, self.until, self.effort)
            if not inside.proves(goal.put(choice, chosen), gone, depth + 1):
                return False
        return True

    # --- bounds of one atom -----------------------------------------------------------------------

    def lows(self, atom: Atom, gone: frozenset[Atom]) -> list[Polynomial]:
        """Polynomials that the atom is nowhere below."""
        return _usable(self._all_bounds(atom, is_upper=False), gone)

    def highs(self, atom: Atom, gone: frozenset[Atom]) -> list[Polynomial]:
        """Polynomials that the atom is nowhere above."""
        return _usable(self._all_bounds(atom, is_upper=True), gone)

    def _all_bounds(self, atom: Atom, *, is_upper: bool) -> list[Polynomial]:
        """Those by constants first. One that contains the atom itself leads nowhere."""
        key = (atom, is_upper)
        if key not in self._bounds:
            self._bounds[key] = []  # Asked again on the way.
            found: list[Polynomial | None] = []
            if isinstance(atom, Name):
                found.append(self._span(atom).high if is_upper else self._span(atom).low)
            found += self._of_operation(atom, is_upper=is_upper)
            found += self._from_facts(atom, is_upper=is_upper)
            known = {b: None for b in found if b is not None and not _contains(b, atom)}
            self._bounds[key] = sorted(known, key=lambda bound: len(bound.atoms))[:6]
        return self._bounds[key]

    def _span(self, name: Name) -> NameRange:
        return self.context.spans.get(name.name, NameRange(None, None))

    def _from_facts(self, atom: Atom, *, is_upper: bool) -> Iterator[Polynomial]:
        for fact in self.context.facts:
            if atom not in fact.atoms or fact.degree(atom) != 1:
                continue
            slope, rest = fact.split(atom)
            # slope * atom + rest >= 0
            if slope.constant and (slope.constant < 0) is is_upper:
                yield rest.times(_inverse(-slope.constant))

    def _of_operation(self, atom: Atom, *, is_upper: bool) -> list[Polynomial]:
        if not isinstance(atom, Applied):
            return []
        if atom.operation == "floordiv":
            return list(self._quotient(atom, is_upper=is_upper))
        if atom.operation in ("mod", "modular"):
            return list(self._remainder(atom, is_upper=is_upper))
        return []

    def _quotient(self, atom: Applied, *, is_upper: bool) -> Iterator[Polynomial]:
        value, divisor = map(polynomial, atom.operands)
        if not self._at_least_one(divisor):
            return
        for end in self._ends(value, is_upper=is_upper):
            yield from self._rounded(end, divisor, is_upper=is_upper)
        if divisor.constant is not None:
            exact = Applied("mod", atom.operands) in self.context.zeros
            lost = number(0) if is_upper or exact else divisor - number(1)
            yield (value - lost).times(_inverse(divisor.constant))

    def _rounded(
        self, end: Polynomial, divisor: Polynomial, *, is_upper: bool
    ) -> Iterator[Polynomial]:
        """The quotient of an end, if it is plain what rounding makes of it."""
        quotient, rest = _whole_quotient(end, divisor)
        if quotient is None:
            return
        if is_upper and self._holds(divisor - number(1) - rest):
            yield quotient - number(1) if self._holds(number(-1) - rest) else quotient
        elif not is_upper and self._holds(rest):
            yield quotient

    def _remainder(self, atom: Applied, *, is_upper: bool) -> Iterator[Polynomial]:
        value, modulus = polynomial(atom.operands[0]), polynomial(atom.operands[-1])
        # Of a number below zero, C++ and Python have different remainders.
        if not self._at_least_one(modulus) or not self._holds(value):
            return
        if not is_upper:
            yield number(0)
            return
        yield modulus - number(1)
        if atom.operation == "modular":
            quotient = Applied("floordiv", atom.operands[:2])
            yield polynomial(quotient)
        else:
            yield value

    def _ends(self, value: Polynomial, *, is_upper: bool) -> Iterator[Polynomial]:
        """The value with everything but sizes replaced by an end of its range."""
        found = value
        for _ in range(8):
            inner = [a for a in _ordered(found.atoms) if not self._is_size(a) and not _is_case(a)]
            if not inner:
                break
            step = self._ended(found, inner, is_upper=is_upper)
            if step is None:
                break
            found = step
        yield found

    def _ended(self, value: Polynomial, atoms: list[Atom], *, is_upper: bool) -> Polynomial | None:
        for atom in atoms:
            if value.degree(atom) != 1:
                continue
            slope, _ = value.split(atom)
            if self._holds(slope):
                ends = self.highs(atom, frozenset()) if is_upper else self.lows(atom, frozenset())
            elif self._holds(slope.times(-1)):
                ends = self.lows(atom, frozenset()) if is_upper else self.highs(atom, frozenset())
            else:
                continue
            if ends:
                return value.put(atom, ends[0])
        return None

    def _at_least_one(self, found: Polynomial) -> bool:
        return self._holds(found - number(1))

    def _holds(self, found: Polynomial) -> bool:
        if found.constant is not None:
            return found.constant >= 0
        if found not in self._held:
            self._held[found] = False  # Asked again on the way.
            whole = self.effort, self._known
            self.effort, self._known = Effort(min(40, self.effort.steps)), {}
            try:
                self._held[found] = self.proves(found, frozenset(), _DEEPEST - 8)
            finally:
                self.effort, self._known = whole
        return self._held[found]


def _ordered(atoms: Iterable[Atom]) -> list[Atom]:
    return sorted(atoms, key=str)


def _is_case(atom: Atom) -> bool:
    return isinstance(atom, Applied) and atom.operation in _CASES


def _cases(choice: Applied) -> Iterator[tuple[Expression, list[Expression]]]:
    """What a choice between operands can be, and what holds then."""
    if choice.operation == "where":
        condition, first, second = choice.operands
        yield first, list(conjuncts(condition))
        yield second, list(conjuncts(Applied("not", (condition,))))
        return
    if choice.operation == "abs":
        value = choice.operands[0]
        yield value, [Applied("ge", (value, ZERO))]
        yield minus(value), [Applied("lt", (value, ZERO))]
        return
    order = "le" if choice.operation == "min" else "ge"
    for value in choice.operands:
        others = [other for other in choice.operands if other is not value]
        yield value, [Applied(order, (value, other)) for other in others]


def _usable(bounds: list[Polynomial], gone: frozenset[Atom]) -> list[Polynomial]:
    """Bounds that lead on: not by what was replaced already."""
    if not gone:
        return bounds
    return [b for b in bounds if not any(gone & _parts(atom) for atom in b.atoms)]


def _contains(bound: Polynomial, atom: Atom) -> bool:
    return any(atom in _parts(part) for part in bound.atoms)


def _is_whole(found: Polynomial) -> bool:
    return all(value.denominator == 1 for value in found.terms.values()) and not any(
        isinstance(part, Applied) and part.operation in _FRACTIONS
        for atom in found.atoms
        for part in _parts(atom)
    )


def _inverse(value: Coefficient) -> Coefficient:
    return value if value in (1, -1) else 1 / Fraction(value)


@lru_cache(maxsize=1 << 14)
def _parts(expression: Expression) -> frozenset[Atom]:
    if isinstance(expression, Applied):
        inner = (_parts(operand) for operand in expression.operands)
        return frozenset((expression,)).union(*inner)
    return frozenset((expression,))


@lru_cache(maxsize=1 << 14)
def _names(expression: Expression) -> frozenset[str]:
    return frozenset(part.name for part in _parts(expression) if isinstance(part, Name))


def _whole_quotient(value: Polynomial, divisor: Polynomial) -> tuple[Polynomial | None, Polynomial]:
    """Quotient and remainder in whole numbers; no quotient where it is a fraction."""
    if divisor.constant is not None:
        terms = {m: v // divisor.constant for m, v in value.terms.items()}
        quotient = Polynomial({monomial: factor for monomial, factor in terms.items() if factor})
        return quotient, value - quotient.times(divisor.constant)
    quotient, rest = value.divided(divisor)
    if any(factor.denominator != 1 for factor in quotient.terms.values()):
        return None, value
    # A negative rest is a smaller quotient: (s0*s1 - 1) // s1 is s0 - 1.
    if rest.constant is not None and rest.constant < 0:
        quotient, rest = quotient - number(1), rest + divisor
    return quotient, rest


def difference(left: Expression, right: Expression) -> Polynomial:
    """left - right."""
    return polynomial(add(left, minus(right)))
