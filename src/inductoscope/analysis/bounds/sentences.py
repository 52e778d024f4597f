"""Sentences about verdicts on accesses and index types."""

from __future__ import annotations

from collections.abc import Mapping

from inductoscope.analysis.bounds.index_range import JudgedIndexType, Limited, Overflows
from inductoscope.analysis.bounds.kernels import JudgedGraph
from inductoscope.analysis.bounds.verdicts import Broken, DataDependent, JudgedAccess, OutOfReach
from inductoscope.wording import count_of

_LONGEST_INDEX = 100
_DONE = {"load": "reads", "load_seed": "reads", "part": "has a part"}


def sentence(judged: JudgedGraph, access: JudgedAccess) -> str:
    verdict = access.verdict
    if isinstance(verdict, Broken):
        return broken_sentence(access, verdict)
    if not access.buffer and isinstance(verdict, OutOfReach):
        return f"{who(access)}: {verdict.why}"
    where = f"{who(access)} {does(access)} {access.buffer} at {_short(access.index)}"
    if isinstance(verdict, DataDependent):
        return f"{where}: {_about_data(verdict)}"
    if isinstance(verdict, OutOfReach):
        tried = count_of(verdict.sizes_tried, "combination")
        more = f"; inside at {tried} of sizes that were computed" if verdict.sizes_tried else ""
        return f"{where}: {verdict.why}{more}"
    return f"{where}: {verdict.how}"


def broken_sentence(access: JudgedAccess, found: Broken) -> str:
    """Describe the position outside the buffer, and the sizes that lead there."""
    positions = (
        f"has the positions {found.first} to {found.end - 1}"
        if found.end > found.first
        else "has no elements"
    )
    when = [
        _equal(found.sizes),
        _equal(found.point),
        *(f"a value {value} in {buffer}" for buffer, value in found.values.items()),
    ]
    at = " and ".join(part for part in when if part)
    text = f"{who(access)} {does(access)} {access.buffer} at {_short(access.index)}"
    where = f"position {found.position} with {at or 'these sizes'}"
    return f"{text}: {where}, but {access.buffer} {positions}"


def sizes_sentence(judged: JudgedGraph, found: Mapping[str, int]) -> str:
    """Name the sizes of a counterexample by their sources: L['x'].size()[0] = 7."""
    symbols = judged.memory.symbols
    named = ((symbols[name], name, value) for name, value in found.items() if name in symbols)
    return ", ".join(f"{symbol.source or name} = {value}" for symbol, name, value in named)


def index_sentence(judged: JudgedGraph, found: JudgedIndexType) -> str:
    verdict, own = found.verdict, f"{found.kernel} indexes with {found.bits} bits"
    largest = (1 << (found.bits - 1)) - 1
    if isinstance(verdict, Overflows):
        at = sizes_sentence(judged, verdict.sizes)
        reached = f"{verdict.what} reaches {verdict.value:,}" + (f" where {at}" if at else "")
        return f"{own}, which hold up to {largest:,}: {reached}, and the guards admit that"
    if isinstance(verdict, Limited):
        at = sizes_sentence(judged, verdict.sizes)
        first = f"; {at} is more" if at else ""
        return (
            f"{own}: enough as long as {' and '.join(verdict.assumed)}{first}. torch takes that "
            "for granted, since the export sets no upper limit, and the package does not check it"
        )
    if isinstance(verdict, OutOfReach):
        return f"{own}: {verdict.why}"
    return f"{own}: enough {verdict.how}"


def who(access: JudgedAccess) -> str:
    """Name the kernel or node that makes the access; the graph places a part of a buffer."""
    return access.kernel or access.node or "the graph"


def does(access: JudgedAccess) -> str:
    return _DONE.get(access.operation, "searches" if access.operation == "bucketize" else "writes")


def _about_data(verdict: DataDependent) -> str:
    source = f"values of {', '.join(verdict.buffers)}" if verdict.buffers else "values"
    if verdict.is_asserted:
        return f"the index is data ({source}); the kernel asserts its range, and is inside then"
    if verdict.is_asserted is None:
        return f"the index is data ({source}); whether the kernel asserts its range is not known"
    return f"the index is data ({source}), and the kernel does not assert its range"


def _equal(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_INDEX else f"{text[:_LONGEST_INDEX]}…"
