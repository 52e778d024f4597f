"""What holds of the names in an index: ranges, and facts from guards, masks and assertions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from inductoscope.analysis.bounds.expressions import Applied, Expression, NotUnderstood
from inductoscope.analysis.bounds.polynomials import Atom, Polynomial, number, polynomial


@dataclass(frozen=True)
class NameRange:
    """All values of a name, ends included; None where there is no end."""

    low: Polynomial | None
    high: Polynomial | None


@dataclass(frozen=True)
class Context:
    """What holds of the names: their ranges, and polynomials that are not negative."""

    spans: Mapping[str, NameRange]
    facts: tuple[Polynomial, ...] = ()
    # AdmittedSizes come last: the others are bounded by them.
    sizes: frozenset[str] = frozenset()
    zeros: frozenset[Atom] = frozenset()

    def assuming(self, conditions: Iterable[Expression]) -> Context:
        """What holds where all of the conditions do."""
        conditions = list(conditions)
        facts = [fact for condition in conditions for fact in facts_of(condition)]
        zeros = {atom for condition in conditions for atom in _zeros(condition)}
        return replace(self, facts=(*self.facts, *facts), zeros=self.zeros | zeros)


def facts_of(condition: Expression) -> Iterator[Polynomial]:
    """Polynomials that are not negative where a comparison of integers holds."""
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
    """`Eq(Mod(s0, 8), 0)`: the remainder, which is zero."""
    if isinstance(condition, Applied) and condition.operation == "eq":
        left, right = map(polynomial, condition.operands)
        difference = left - right
        if len(difference.terms) == 1 and len(difference.atoms) == 1:
            yield next(iter(difference.atoms))
