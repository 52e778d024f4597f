"""Kernels added, removed and changed, told by the operations inside them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from inductoscope.analysis.diff.entities import KernelChange
from inductoscope.analysis.diff.fusions import Identities, identities
from inductoscope.analysis.diff.matching import match
from inductoscope.analysis.diff.materials import kernel_material
from inductoscope.analysis.diff.side import Side
from inductoscope.analysis.diff.stages import unified
from inductoscope.model.entities import Kernel


def kernel_changes(first: Side, second: Side) -> Iterator[KernelChange]:
    """Changed ones, then those that are in one run alone."""
    if not (first.graph and second.graph and first.graph.kernels and second.graph.kernels):
        return
    ours, theirs, _ = identities(first, second)
    found = match(
        first.graph.kernels,
        second.graph.kernels,
        (lambda k: _identity(k, ours), lambda k: _identity(k, theirs)),
        (lambda k: k.name, lambda k: k.name),
    )
    for one, other in found.pairs:
        yield from _changed(first, second, one, other)
    if bool(first.before) != bool(second.before):
        return  # Names alone do not tell that a kernel is gone.
    for item in found.only_first:
        yield _alone("removed", first, item, _doing(item, ours, second, theirs))
    for item in found.only_second:
        yield _alone("added", second, item, _doing(item, theirs, first, ours))


def _identity(item: Kernel, names: Identities) -> Hashable:
    inside = frozenset(names[node] for node in item.nodes if node in names)
    library = item.name if item.language == "extern" else ""
    return (item.language, library, inside) if inside else None


def _changed(first: Side, second: Side, one: Kernel, other: Kernel) -> Iterator[KernelChange]:
    if one.digest and (one.digest, one.name) == (other.digest, other.name):
        return
    ours, theirs = kernel_material(first, one), kernel_material(second, other)
    if ours is None or theirs is None or ours.canonical == theirs.canonical:
        return
    yield KernelChange(
        what="changed",
        name=one.name,
        language=one.language,
        operations=_operations(first, one),
        others=(other.name,),
        diff=unified(ours, theirs),
    )


def _alone(what: str, side: Side, item: Kernel, others: tuple[str, ...]) -> KernelChange:
    return KernelChange(
        what="removed" if what == "removed" else "added",
        name=item.name,
        language=item.language,
        operations=_operations(side, item),
        others=others,
    )


def _doing(item: Kernel, names: Identities, other: Side, others: Identities) -> tuple[str, ...]:
    """The kernels of the other run that hold nodes of this one."""
    inside = {names[node] for node in item.nodes if node in names}
    kernels = other.graph.kernels if other.graph else ()
    return tuple(k.name for k in kernels if inside & {others.get(node) for node in k.nodes})


def _operations(side: Side, item: Kernel) -> tuple[str, ...]:
    leaves = [leaf for leaf in side.before if leaf.name in item.nodes]
    words = [word for leaf in leaves for word in side.operations(leaf)]
    return tuple(dict.fromkeys(words)) or item.origins
