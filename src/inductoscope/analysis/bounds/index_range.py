"""Checks whether the indices of a kernel fit into the type that it computes them with.

Inductor gives a Triton kernel 32-bit indices if the sizes of the run allow it, and guards on that.
A package has no guards: a size that the export left unbounded is never checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from inductoscope.analysis.bounds.accesses import UNJUDGED, BodyJudge, out_of_reach
from inductoscope.analysis.bounds.proof import number, polynomial
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import OutOfReach, Proven
from inductoscope.model.memory import GraphMemory
from inductoscope.torch_facts.index_expressions import (
    ZERO,
    Applied,
    Expression,
    Number,
    add,
    holds,
    names_in,
    replaced,
    value_of,
)
from inductoscope.torch_facts.triton_indices import LARGEST_NARROW, WIDE, KernelIntegers

# The end of the assumption that torch makes when it chooses 32 bits.
_ASSUMED_END = " <= 2147483647"
_ENDLESS = "int_oo"
# The most loops for which all combinations of both ends are tried.
_MOST_LOOPS = 5
# A size may have to be a multiple, so this many after the first are tried.
_NEAR = 130
_FARTHEST = 1 << 42


@dataclass(frozen=True)
class Overflows:
    """A verdict: at these sizes, which the guards admit, an index overflows its type."""

    kind: ClassVar[str] = "broken"
    sizes: Mapping[str, int]
    # The name and the size of the value that is too large.
    what: str
    value: int


@dataclass(frozen=True)
class Limited:
    """A verdict: indices fit only under an assumption of torch's that nothing checks."""

    kind: ClassVar[str] = "limited"
    assumed: tuple[str, ...]
    # The first sizes that violate the assumption; empty if none were found.
    sizes: Mapping[str, int]


IndexVerdict = Proven | Overflows | Limited | OutOfReach

INDEX_KINDS = tuple(one.kind for one in (Overflows, Limited, OutOfReach, Proven))


@dataclass(frozen=True)
class JudgedIndexType:
    """A kernel with indices narrower than 64 bits, and the verdict on them."""

    kernel: str
    bits: int
    verdict: IndexVerdict
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexedBody:
    """A loop body of a kernel: its iteration counts and the kernel lines of its accesses."""

    judge: BodyJudge
    # The pointwise and the reduction count.
    counts: tuple[Expression, Expression]
    # Lines of the kernel, by the line of the loop body.
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def reduces(self) -> bool:
        return self.counts[1] != Number(1)


@dataclass(frozen=True)
class _Need:
    """A value that must fit into the index type."""

    what: str
    value: Expression
    body: BodyJudge
    conditions: tuple[Expression, ...] = ()
    # Whether the kernel is known to compute just this with the narrow type.
    is_sure: bool = False

    def at_ends(self) -> Iterator[_Need]:
        """Yield the value at the ends of the loops, as an expression of sizes alone."""
        lengths = self.body.lengths
        loops = [name for name in lengths if name in names_in(self.value)]
        if len(loops) > _MOST_LOOPS:
            return
        rest = {name: ZERO for name in lengths if name not in loops}
        for ends in itertools.product((True, False), repeat=len(loops)):
            pairs = zip(loops, ends, strict=True)
            point = {name: _last(lengths[name]) if is_high else ZERO for name, is_high in pairs}
            at: dict[str, Expression] = {**rest, **point}
            conditions = tuple(replaced(condition, at) for condition in self.conditions)
            yield replace(self, value=replaced(self.value, at), conditions=conditions)


def unchecked(memory: GraphMemory) -> GraphMemory:
    """Drop the assumptions under which torch chose 32 bits, so sizes are as exported."""
    chosen = [text for text in memory.assumed if text.endswith(_ASSUMED_END)]
    symbols = {
        name: replace(symbol, upper=_ENDLESS) if f"{name}{_ASSUMED_END}" in chosen else symbol
        for name, symbol in memory.symbols.items()
    }
    assumed = tuple(text for text in memory.assumed if text not in chosen)
    return replace(memory, symbols=symbols, assumed=assumed)


def judge_indices(
    types: KernelIntegers,
    bodies_for: Callable[[AdmittedSizes], Iterable[IndexedBody]],
    memory: GraphMemory,
    *,
    guards_are_checked: bool,
) -> IndexVerdict:
    """Judge a kernel's narrow indices. `bodies_for` returns its loop bodies for given sizes."""
    demanded = memory if guards_are_checked else unchecked(memory)
    try:
        found = _judged(types, bodies_for(AdmittedSizes(demanded)))
        if isinstance(found, Proven) or demanded == memory:
            return found
        with_all = _judged(types, bodies_for(AdmittedSizes(memory)))
    except UNJUDGED as why:
        return out_of_reach(why)
    if not isinstance(with_all, Proven):
        return found
    gone = tuple(text for text in memory.assumed if text not in demanded.assumed)
    return Limited(gone, found.sizes if isinstance(found, Overflows) else {})


def _judged(types: KernelIntegers, bodies: Iterable[IndexedBody]) -> IndexVerdict:
    needs = [need for body in bodies for need in _needs(types, body)]
    open_ = [need for need in needs if not _fits(need, LARGEST_NARROW)]
    if not open_:
        return Proven("for all sizes, from the ranges of its parts")
    at_ends = (end for need in open_ if need.is_sure for end in need.at_ends())
    found = [over for end in at_ends if (over := _overflow(end, LARGEST_NARROW)) is not None]
    if found:
        return min(found, key=lambda over: sum(over.sizes.values()))
    return OutOfReach(f"no proof was found that {open_[0].what} fits")


# --- what has to fit ------------------------------------------------------------------------------


def _needs(types: KernelIntegers, body: IndexedBody) -> Iterator[_Need]:
    judge = body.judge
    if types.axes:
        yield from _counts(types, body)
    else:
        for name, length in judge.lengths.items():
            yield _Need(f"the loop over {name}", _last(length), judge, is_sure=True)
        return
    for access in judge.body.accesses:
        width = types.of_access(body.lines.get(access.line, ()))
        if access.is_search or width == WIDE:
            continue
        made = judge.prepared(access)
        what = f"the index of {access.buffer}"
        yield _Need(what, made.index, judge, made.conditions, is_sure=width is not None)


def _counts(types: KernelIntegers, body: IndexedBody) -> Iterator[_Need]:
    """Yield the iteration counts: per axis, and the product of all, which is what torch checks."""
    is_flat = types.axes == ("x",) or (body.reduces and types.axes == ("x", "r0_"))
    for axis, count in zip(("x", "r0_"), body.counts, strict=True):
        if is_flat and axis in types.narrow_axes:
            yield _Need(f"{axis}index", _last(count), body.judge, is_sure=True)
    if not is_flat:
        whole = Applied("mul", body.counts)
        yield _Need("the number of elements", _last(whole), body.judge)


def _last(length: Expression) -> Expression:
    return add(length, Number(-1))


def _fits(need: _Need, limit: int) -> bool:
    """Check whether the value provably fits for all sizes."""
    prover = need.body.prover(need.conditions)
    goal = number(limit) - polynomial(need.value)
    # A guard on a product of sizes bounds no single size: the goal is also tried minus each fact.
    return prover.never_negative(goal) or any(
        prover.never_negative(goal - fact) for fact in prover.context.facts
    )


# --- sizes at which it does not -------------------------------------------------------------------


def _overflow(need: _Need, limit: int) -> Overflows | None:
    sizes = need.body.sizes
    runs = [Applied("ge", (length, Number(1))) for length in need.body.lengths.values()]
    conditions = (*need.conditions, *runs)
    names = names_in(need.value).union(*map(names_in, conditions))
    if sizes.has_unknown_guards or not names <= sizes.memory.symbols.keys():
        return None
    usual = {
        name: sizes.usual.get(name, max(sizes.ends(name)[0] or 0, 2))
        for name in sorted(sizes.with_neighbours(names))
    }
    if any(sizes.is_data(name) for name in usual):
        return None
    for found in _beyond(sizes, need.value, usual, limit):
        if all(holds(condition, found) is True for condition in conditions):
            return Overflows(found, need.what, value_of(need.value, found))
    return None


def _beyond(
    sizes: AdmittedSizes, value: Expression, usual: dict[str, int], limit: int
) -> Iterator[dict[str, int]]:
    """Yield admitted sizes at which a value exceeds the limit: one size grown, or all largest."""
    names = names_in(value)
    if not names:
        if value_of(value, {}) > limit:
            yield usual
        return
    for name in sorted(names):
        first = _first_past(value, usual, name, limit)
        near = range(first, first + _NEAR) if first is not None else ()
        yield from itertools.islice(_admitted(sizes, ({**usual, name: v} for v in near)), 1)
    largest = {name: sizes.ends(name)[1] or usual[name] for name in usual}
    if value_of(value, largest) > limit:
        yield from _admitted(sizes, (largest,))


def _admitted(sizes: AdmittedSizes, choices: Iterable[dict[str, int]]) -> Iterator[dict[str, int]]:
    for choice in choices:
        ends = ((sizes.ends(name), value) for name, value in choice.items())
        inside = all(
            (low is None or low <= value) and (high is None or value <= high)
            for (low, high), value in ends
        )
        if inside and sizes.admits(choice):
            yield choice


def _first_past(value: Expression, usual: Mapping[str, int], name: str, limit: int) -> int | None:
    """Return the smallest size at which the value exceeds the limit, if the value is monotonic."""
    low, high = usual[name], max(usual[name], 1)
    while value_of(value, {**usual, name: high}) <= limit:
        low, high = high, 2 * high
        if high > _FARTHEST:
            return None
    while low < high:
        middle = (low + high) // 2
        if value_of(value, {**usual, name: middle}) > limit:
            high = middle
        else:
            low = middle + 1
    return high
