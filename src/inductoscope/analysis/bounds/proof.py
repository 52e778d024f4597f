"""Prover for index bounds: polynomials, the known facts about their names, and proofs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from inductoscope.torch_facts.index_expressions import (
    ZERO,
    Applied,
    Expression,
    Name,
    NotUnderstood,
    Number,
    add,
    conjuncts,
    minus,
    names_in,
)

# An indivisible part: a name, or an operation that is neither a sum nor a product.
Atom = Expression
Monomial = frozenset[tuple[Atom, int]]
CONSTANT: Monomial = frozenset()
# Integers are several times faster than fractions, and nearly all coefficients are integers.
Coefficient = int | Fraction

# Products of sums grow quickly; beyond this size they are useless.
_MOST_TERMS = 400
_HIGHEST_POWER = 8
# No size is that large, and arithmetic on such numbers is slow.
_MOST_BITS = 256


@dataclass(frozen=True)
class Polynomial:
    """A polynomial over atoms: the coefficient of each monomial."""

    terms: Mapping[Monomial, Coefficient]

    @cached_property
    def key(self) -> frozenset[tuple[Monomial, Coefficient]]:
        """A hashable form, equal for equal polynomials."""
        return frozenset(self.terms.items())

    def __hash__(self) -> int:
        return hash(self.key)  # A frozenset keeps its hash.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.key == other.key

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        return frozenset(atom for monomial in self.terms for atom, _ in monomial)

    @property
    def constant(self) -> Coefficient | None:
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
        return Polynomial(
            {monomial: _bounded(value * factor) for monomial, value in self.terms.items()}
        )

    def degree(self, atom: Atom) -> int:
        return max((dict(monomial).get(atom, 0) for monomial in self.terms), default=0)

    def split(self, atom: Atom) -> tuple[Polynomial, Polynomial]:
        """Return the atom's coefficient and the rest. The polynomial must be linear in the atom."""
        slope, rest = {}, {}
        for monomial, value in self.terms.items():
            if (atom, 1) in monomial:
                slope[monomial - {(atom, 1)}] = value
            else:
                rest[monomial] = value
        return Polynomial(slope), Polynomial(rest)

    def put(self, atom: Atom, value: Polynomial) -> Polynomial:
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
        """Return quotient and remainder: self = quotient * divisor + remainder."""
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
    return Polynomial({CONSTANT: value} if value else {})


def _whole_if_possible(value: Fraction) -> Coefficient:
    return value.numerator if value.denominator == 1 else value


def one(atom: Atom) -> Polynomial:
    return Polynomial({frozenset(((atom, 1),)): 1})


@lru_cache(maxsize=1 << 14)
def polynomial(expression: Expression) -> Polynomial:
    if isinstance(expression, Number):
        return number(_bounded(_whole_if_possible(Fraction(expression.value))))
    if not isinstance(expression, Applied):
        return one(expression)
    if expression.operation == "add":
        parts = map(polynomial, expression.operands)
        return _collect(term for part in parts for term in part.terms.items())
    if expression.operation == "mul":
        found = number(1)
        for operand in expression.operands:
            found = found * polynomial(operand)
        return found
    if expression.operation == "pow":
        return _power(expression)
    return _whole(expression)


def _whole(expression: Applied) -> Polynomial:
    """Return an operation as an atom in canonical form."""
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
    """Rewrite `floor(p0/2)` as `p0//2`, the form that torch mostly prints."""
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
    """Convert a polynomial to an expression; equal polynomials give equal expressions."""
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


# --- What holds of the names in an index: ranges, and facts from guards, masks and assertions -----


@dataclass(frozen=True)
class Ends:
    """Expressions that bound a value from below and from above; None where no bound is known."""

    low: Expression | None
    high: Expression | None


OPEN = Ends(None, None)


@dataclass(frozen=True)
class Context:
    """The known facts about names: their ranges, and polynomials that are not negative."""

    spans: Mapping[str, Ends]
    facts: tuple[Polynomial, ...] = ()
    # Sizes are replaced last: other names are bounded by sizes.
    sizes: frozenset[str] = frozenset()
    zeros: frozenset[Atom] = frozenset()

    def assuming(self, conditions: Iterable[Expression]) -> Context:
        """Return the context in which all of the conditions hold too."""
        conditions = list(conditions)
        facts = [fact for condition in conditions for fact in facts_of(condition)]
        zeros = {atom for condition in conditions for atom in _zeros(condition)}
        return replace(self, facts=(*self.facts, *facts), zeros=self.zeros | zeros)


def facts_of(condition: Expression) -> Iterator[Polynomial]:
    """Yield polynomials that are nonnegative if an integer comparison holds."""
    if not isinstance(condition, Applied) or len(condition.operands) != 2:
        return
    try:
        left, right = map(polynomial, condition.operands)
        if condition.operation in ("lt", "le", "eq"):
            yield right - left - number(1 if condition.operation == "lt" else 0)
        if condition.operation in ("gt", "ge", "eq"):
            yield left - right - number(1 if condition.operation == "gt" else 0)
    except NotUnderstood:
        return


def _zeros(condition: Expression) -> Iterator[Atom]:
    """Yield atoms that a condition sets to zero, such as the remainder in `Eq(Mod(s0, 8), 0)`."""
    if isinstance(condition, Applied) and condition.operation == "eq":
        left, right = map(polynomial, condition.operands)
        difference = left - right
        if len(difference.terms) == 1 and len(difference.atoms) == 1:
            yield next(iter(difference.atoms))


# --- Proves that a polynomial is nowhere negative, from the ranges of what it depends on ----------
#
# Each step replaces one atom by a bound of it. What remains is larger in no place: the slope of the
# atom says whether its lower or its upper bound gives the smallest value, and where the sign of the
# slope is open, both are tried, since a linear function is smallest at an end. In the end only
# constants and sizes are left. Every step is sound for all values, so a proof is one for all sizes;
# a proof that is not found says nothing.

_CASES = ("abs", "min", "max", "where")
_DEEPEST = 24
_ALMOST_ONE = Fraction(4095, 4096)
# The results of these operations need not be integers.
_FRACTIONS = ("truediv", "pow", "float", "rounded")


@dataclass
class Effort:
    """The number of steps left for one question."""

    steps: int = 500

    def take(self) -> bool:
        self.steps -= 1
        return self.steps > 0


@dataclass
class Prover:
    """A prover for one context, which remembers its answers."""

    context: Context
    # A time.monotonic deadline, after which every proof fails.
    until: float = math.inf
    effort: Effort = field(default_factory=Effort)
    _known: dict[tuple[Polynomial, frozenset[Atom]], bool] = field(default_factory=dict)
    _held: dict[Polynomial, bool] = field(default_factory=dict)
    _bounds: dict[tuple[Atom, bool], list[Polynomial]] = field(default_factory=dict)

    def never_negative(self, found: Polynomial) -> bool:
        """Prove that a polynomial is never negative; False if no proof was found."""
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
        """Prove a goal. Bounds with atoms in `gone`, which were replaced already, would be
        circular.
        """
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
        """Check that no coefficient is negative once atoms count from their lower bounds."""
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
        lows = self.bounds(atom, is_upper=False)
        return max((low.constant for low in lows if low.constant is not None), default=None)

    def _candidates(self, goal: Polynomial, gone: frozenset[Atom]) -> list[Atom]:
        """Return atoms to replace, those that depend on others first; one is mostly enough."""
        linear = [atom for atom in goal.atoms if goal.degree(atom) == 1 and atom not in gone]
        inner = [atom for atom in linear if not self._is_size(atom)]
        return sorted(inner or linear, key=lambda atom: (isinstance(atom, Name), str(atom)))[:4]

    def _is_size(self, atom: Atom) -> bool:
        return names_in(atom) <= self.context.sizes

    def _without(self, goal: Polynomial, atom: Atom, gone: frozenset[Atom], depth: int) -> bool:
        slope, _ = goal.split(atom)
        after = gone | {atom}
        rises = self.proves(slope, gone, depth + 1)
        falls = not rises and self.proves(slope.times(-1), gone, depth + 1)
        ends = []
        if not falls:
            ends.append(self.bounds(atom, is_upper=False, gone=after))
        if not rises:
            ends.append(self.bounds(atom, is_upper=True, gone=after))
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

    def bounds(
        self, atom: Atom, *, is_upper: bool, gone: frozenset[Atom] = frozenset()
    ) -> list[Polynomial]:
        """Return upper or lower bounds of an atom, those with the fewest atoms first.

        Bounds that contain the atom itself or atoms that were replaced already are useless.
        """
        key = (atom, is_upper)
        if key not in self._bounds:
            self._bounds[key] = []  # Asked again on the way.
            bounds: list[Polynomial | None] = []
            if isinstance(atom, Name):
                ends = self.context.spans.get(atom.name, OPEN)
                end = ends.high if is_upper else ends.low
                bounds.append(None if end is None else polynomial(end))
            bounds += self._of_operation(atom, is_upper=is_upper)
            bounds += self._from_facts(atom, is_upper=is_upper)
            known = {
                bound: None
                for bound in bounds
                if bound is not None and not any(atom in _parts(part) for part in bound.atoms)
            }
            self._bounds[key] = sorted(known, key=lambda bound: len(bound.atoms))[:6]
        found = self._bounds[key]
        return [b for b in found if not any(gone & _parts(a) for a in b.atoms)] if gone else found

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
        yield from self._rounded(self._end(value, is_upper=is_upper), divisor, is_upper=is_upper)
        if divisor.constant is not None:
            exact = Applied("mod", atom.operands) in self.context.zeros
            lost = number(0) if is_upper or exact else divisor - number(1)
            yield (value - lost).times(_inverse(divisor.constant))

    def _rounded(
        self, end: Polynomial, divisor: Polynomial, *, is_upper: bool
    ) -> Iterator[Polynomial]:
        """Yield the quotient of a bound, if the effect of rounding is known."""
        quotient, rest = _whole_quotient(end, divisor)
        if quotient is None:
            return
        if is_upper and self._holds(divisor - number(1) - rest):
            yield quotient - number(1) if self._holds(number(-1) - rest) else quotient
        elif not is_upper and self._holds(rest):
            yield quotient

    def _remainder(self, atom: Applied, *, is_upper: bool) -> Iterator[Polynomial]:
        value, modulus = polynomial(atom.operands[0]), polynomial(atom.operands[-1])
        # C++ and Python differ in the remainder of a negative number.
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

    def _end(self, value: Polynomial, *, is_upper: bool) -> Polynomial:
        """Replace atoms except sizes by a bound, as far as bounds are known."""
        for _ in range(8):
            inner = [a for a in _ordered(value.atoms) if not self._is_size(a) and not _is_case(a)]
            step = self._ended(value, inner, is_upper=is_upper)
            if step is None:
                break
            value = step
        return value

    def _ended(self, value: Polynomial, atoms: list[Atom], *, is_upper: bool) -> Polynomial | None:
        for atom in atoms:
            if value.degree(atom) != 1:
                continue
            slope, _ = value.split(atom)
            if self._holds(slope):
                ends = self.bounds(atom, is_upper=is_upper)
            elif self._holds(slope.times(-1)):
                ends = self.bounds(atom, is_upper=not is_upper)
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
    """Yield the values of min, max, abs or where, each with the conditions that select it."""
    if choice.operation == "where":
        condition, first, second = choice.operands
        yield first, list(conjuncts(condition))
        yield second, list(conjuncts(condition, is_negated=True))
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


def _whole_quotient(value: Polynomial, divisor: Polynomial) -> tuple[Polynomial | None, Polynomial]:
    """Divide in integers: quotient and remainder; no quotient if it would be fractional."""
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
    return polynomial(add(left, minus(right)))
