"""Polynomials over names and over parts that are no polynomials, such as a quotient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from inductoscope.analysis.bounds.expressions import (
    Applied,
    Expression,
    Name,
    NotUnderstood,
    Number,
)

# A part that is taken as a whole: a name, or an operation that is neither sum nor product.
Atom = Expression
Monomial = frozenset[tuple[Atom, int]]
CONSTANT: Monomial = frozenset()
# Whole numbers are several times faster than fractions, and nearly all of them are whole.
Coefficient = int | Fraction

# Products of sums grow quickly; past this nobody can use them.
_MOST_TERMS = 400
_HIGHEST_POWER = 8
# No size is that large; computing with such numbers takes ever longer.
_MOST_BITS = 256


@dataclass(frozen=True)
class Polynomial:
    """A sum of terms: each a coefficient and what it multiplies."""

    terms: Mapping[Monomial, Coefficient]

    @cached_property
    def key(self) -> frozenset[tuple[Monomial, Coefficient]]:
        """What two polynomials have in common if they are the same."""
        return frozenset(self.terms.items())

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.key == other.key

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """Everything that it depends on."""
        return frozenset(atom for monomial in self.terms for atom, _ in monomial)

    @property
    def constant(self) -> Coefficient | None:
        """Its value, if it is the same everywhere."""
        return self.terms.get(CONSTANT, 0) if not self.atoms else None

    def __add__(self, other: Polynomial) -> Polynomial:
        return _collect((*self.terms.items(), *other.terms.items()))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other.times(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        if len(self.terms) * len(other.terms) > _MOST_TERMS:
            raise NotUnderstood("a product of too many terms")
        return _collect(
            (_product(left, right), one * two)
            for left, one in self.terms.items()
            for right, two in other.terms.items()
        )

    def times(self, factor: Coefficient) -> Polynomial:
        """A multiple of it."""
        return Polynomial(
            {monomial: _bounded(value * factor) for monomial, value in self.terms.items()}
        )

    def degree(self, atom: Atom) -> int:
        """The highest power of an atom."""
        return max((dict(monomial).get(atom, 0) for monomial in self.terms), default=0)

    def split(self, atom: Atom) -> tuple[Polynomial, Polynomial]:
        """What the atom is multiplied by, and the rest. The atom must be linear in it."""
        slope, rest = {}, {}
        for monomial, value in self.terms.items():
            if (atom, 1) in monomial:
                slope[monomial - {(atom, 1)}] = value
            else:
                rest[monomial] = value
        return Polynomial(slope), Polynomial(rest)

    def put(self, atom: Atom, value: Polynomial) -> Polynomial:
        """The polynomial with an atom replaced."""
        if atom not in self.atoms:
            return self
        powers = [number(1), value]
        terms: list[tuple[Monomial, Coefficient]] = []
        for monomial, coefficient in self.terms.items():
            power = next((power for part, power in monomial if part == atom), 0)
            if not power:
                terms.append((monomial, coefficient))
                continue
            while len(powers) <= power:
                powers.append(powers[-1] * value)
            others = monomial - {(atom, power)}
            terms += [
                (_product(others, inner), coefficient * factor)
                for inner, factor in powers[power].terms.items()
            ]
        return _collect(terms)

    def divided(self, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Quotient and remainder: self = quotient * divisor + remainder."""
        lead, value = max(divisor.terms.items(), key=_rank)
        quotient, remainder = number(0), self
        for _ in range(_MOST_TERMS):
            found = next(
                (m for m in sorted(remainder.terms, key=_text) if _quotient(m, lead) is not None),
                None,
            )
            if found is None:
                break
            step = _quotient(found, lead)
            assert step is not None
            part = Polynomial({step: _whole_if_possible(Fraction(remainder.terms[found]) / value)})
            quotient, remainder = quotient + part, remainder - part * divisor
        return quotient, remainder


def number(value: Coefficient) -> Polynomial:
    """A constant."""
    return Polynomial({CONSTANT: value} if value else {})


def _whole_if_possible(value: Fraction) -> Coefficient:
    return value.numerator if value.denominator == 1 else value


def one(atom: Atom) -> Polynomial:
    """The atom itself."""
    return Polynomial({frozenset(((atom, 1),)): 1})


@lru_cache(maxsize=1 << 14)
def polynomial(expression: Expression) -> Polynomial:
    """An expression as a polynomial."""
    if isinstance(expression, Number):
        return number(_bounded(_whole_if_possible(Fraction(expression.value))))
    if not isinstance(expression, Applied):
        return one(expression)
    if expression.operation == "add":
        return _sum(map(polynomial, expression.operands))
    if expression.operation == "mul":
        found = number(1)
        for operand in expression.operands:
            found = found * polynomial(operand)
        return found
    if expression.operation == "pow":
        return _power(expression)
    return _whole(expression)


def _whole(expression: Applied) -> Polynomial:
    """An operation as an atom, in one way of writing it."""
    operands = tuple(written(polynomial(operand)) for operand in expression.operands)
    if expression.operation == "truediv" and isinstance(operands[1], Number):
        if operands[1].value == 0:
            raise NotUnderstood("a division by zero")
        return polynomial(operands[0]).times(1 / Fraction(operands[1].value))
    if expression.operation == "float":
        return polynomial(operands[0])
    if expression.operation == "floor":
        return _floor(polynomial(operands[0]))
    if expression.operation == "ceil":
        return _floor(polynomial(operands[0]).times(-1)).times(-1)
    return one(Applied(expression.operation, operands))


def _floor(value: Polynomial) -> Polynomial:
    """`floor(p0/2)` is `p0//2`, which is how torch mostly writes it."""
    divisor = math.lcm(*(factor.denominator for factor in value.terms.values()))
    if divisor == 1 and all(isinstance(atom, Name) for atom in value.atoms):
        return value
    whole = value.times(divisor)
    whole = Polynomial({m: _whole_if_possible(Fraction(v)) for m, v in whole.terms.items()})
    return one(Applied("floordiv", (written(whole), Number(divisor))))


def _power(expression: Applied) -> Polynomial:
    base, exponent = expression.operands
    if not isinstance(exponent, Number) or exponent.value not in range(_HIGHEST_POWER):
        return _whole(expression)
    found = number(1)
    for _ in range(int(exponent.value)):
        found = found * polynomial(base)
    return found


@lru_cache(maxsize=1 << 14)
def written(found: Polynomial) -> Expression:
    """A polynomial as an expression: equal polynomials give the same one."""
    terms = [_term(monomial, found.terms[monomial]) for monomial in sorted(found.terms, key=_text)]
    if not terms:
        return Number(0)
    return terms[0] if len(terms) == 1 else Applied("add", tuple(terms))


def _term(monomial: Monomial, value: Coefficient) -> Expression:
    atoms = sorted(monomial, key=lambda item: str(item[0]))
    factors: list[Expression] = [atom for atom, power in atoms for _ in range(power)]
    if value.denominator != 1:
        factors.append(Applied("truediv", (Number(value.numerator), Number(value.denominator))))
    elif value != 1 or not factors:
        factors.insert(0, Number(value.numerator))
    return factors[0] if len(factors) == 1 else Applied("mul", tuple(factors))


def _sum(parts: Iterable[Polynomial]) -> Polynomial:
    return _collect(term for part in parts for term in part.terms.items())


def _collect(terms: Iterable[tuple[Monomial, Coefficient]]) -> Polynomial:
    found: dict[Monomial, Coefficient] = {}
    for monomial, value in terms:
        found[monomial] = _bounded(found.get(monomial, 0) + value)
    if len(found) > _MOST_TERMS:
        raise NotUnderstood("a sum of too many terms")
    return Polynomial({monomial: value for monomial, value in found.items() if value})


def _bounded(value: Coefficient) -> Coefficient:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise NotUnderstood("a number that is too large")
    return value


def _product(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return frozenset(powers.items())


def _quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for atom, power in divisor:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return frozenset((atom, power) for atom, power in powers.items() if power)


def _rank(term: tuple[Monomial, Coefficient]) -> tuple[int, str]:
    return sum(power for _, power in term[0]), _text(term[0])


@lru_cache(maxsize=1 << 14)
def _text(monomial: Monomial) -> str:
    return " ".join(sorted(f"{atom}^{power}" for atom, power in monomial))


def names(found: Polynomial) -> frozenset[str]:
    """The plain names among its atoms."""
    return frozenset(atom.name for atom in found.atoms if isinstance(atom, Name))
