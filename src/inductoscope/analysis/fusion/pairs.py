"""Which scheduler nodes might gain from sharing a kernel: one reads what the other writes, or both
read the same data. Taken from the schedule before fusion.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inductoscope.model.schedule import Buffer, ScheduledNode
from inductoscope.recording.codec import NOT_IN_JSON
from inductoscope.torch_facts.index_expressions import bytes_of
from inductoscope.torch_facts.loop_bodies import read_lengths, read_sum

PRODUCER = "producer-consumer"
SHARED = "shared input"
UNRELATED = "no common data"

# A buffer that a thousand nodes read makes half a million pairs. torch looks at the next 64, so
# each reader is paired with a few more than that.
MOST_READERS = 80


@dataclass(frozen=True)
class Moved:
    """The bytes of a buffer that a pair costs because it is not one kernel."""

    buffer: str
    read_bytes: int | None
    # The buffer itself, if nothing else needs it: fused, it would not have to exist.
    written_bytes: int | None = None
    # Whether `read_bytes` is exact, or only an upper bound.
    certain: bool = field(default=True, metadata=NOT_IN_JSON)

    @property
    def bytes(self) -> int | None:
        """The bytes of reads and writes together; None if the size is unknown."""
        return None if self.read_bytes is None else self.read_bytes + (self.written_bytes or 0)


@dataclass(frozen=True)
class Pair:
    """Two scheduler nodes, in the order of the schedule."""

    first: str
    second: str
    relation: str
    moved: tuple[Moved, ...] = ()

    @property
    def bytes(self) -> int | None:
        """The bytes that a single kernel would not have to move; None if unknown."""
        known = [moved.bytes for moved in self.moved if moved.bytes is not None]
        return sum(known) if known else None

    @property
    def certain(self) -> bool:
        """Whether `bytes` is exact, or only an upper bound."""
        return all(moved.certain for moved in self.moved)


def related_pairs(
    nodes: Iterable[ScheduledNode], input_bytes: Mapping[str, int]
) -> dict[tuple[str, str], Pair]:
    """Return all pairs of nodes that share data, by their names in schedule order."""
    schedule = _Schedule(tuple(nodes), input_bytes)
    found: dict[tuple[str, str], Pair] = {}
    for first, second, buffer in schedule.producers():
        key = (first.name, second.name)
        _add(found, key, PRODUCER, schedule.between(first, second, buffer))
    produced = set(found)
    for first, second, name in schedule.shared():
        key = (first.name, second.name)
        if key not in produced:
            _add(found, key, SHARED, schedule.read_twice(first, second, name))
    return found


def _add(
    found: dict[tuple[str, str], Pair], key: tuple[str, str], relation: str, moved: Moved
) -> None:
    before = found[key].moved if key in found else ()
    found[key] = Pair(*key, relation, (*before, moved))


class _Schedule:
    """The readers and writers of each buffer."""

    def __init__(self, nodes: tuple[ScheduledNode, ...], input_bytes: Mapping[str, int]) -> None:
        self.position = {node.name: number for number, node in enumerate(nodes)}
        self.input_bytes = input_bytes
        self.buffers: dict[str, tuple[ScheduledNode, Buffer]] = {}
        self.readers: dict[str, list[ScheduledNode]] = defaultdict(list)
        for node in nodes:
            for buffer in node.buffers:
                self.buffers.setdefault(buffer.name, (node, buffer))
            for name in node.reads:
                self.readers[name].append(node)

    def producers(self) -> Iterator[tuple[ScheduledNode, ScheduledNode, Buffer]]:
        for name, (writer, buffer) in self.buffers.items():
            for reader in self.readers.get(name, ()):
                if self.position[writer.name] < self.position[reader.name]:
                    yield writer, reader, buffer

    def shared(self) -> Iterator[tuple[ScheduledNode, ScheduledNode, str]]:
        for name, readers in self.readers.items():
            for number, first in enumerate(readers):
                for second in readers[number + 1 : number + 1 + MOST_READERS]:
                    if first.name != second.name:
                        yield first, second, name

    def between(self, first: ScheduledNode, second: ScheduledNode, buffer: Buffer) -> Moved:
        only_user = set(buffer.users) <= {second.name, first.name}
        written = self._moved(first, buffer.name) if only_user else None
        return Moved(buffer.name, self._moved(second, buffer.name), written)

    def read_twice(self, first: ScheduledNode, second: ScheduledNode, name: str) -> Moved:
        sizes = [self._moved(node, name) for node in (first, second)]
        known = [size for size in sizes if size is not None]
        return Moved(name, min(known) if known else None, certain=False)

    def _moved(self, node: ScheduledNode, name: str) -> int | None:
        """Return the bytes of a buffer that a node reads or writes; all of it if not recorded."""
        if node.kind == "NopKernelSchedulerNode":
            return 0
        if name in node.bytes:
            return node.bytes[name]
        if name in self.buffers:
            buffer = self.buffers[name][1]
            return bytes_of(buffer.dtype, buffer.size)
        return self.input_bytes.get(name)


# --- How many elements two nodes read in common, from the index expressions of their loops --------
#
# Understands only sums of constants times loop variables, over ranges that are numbers. For
# everything else the answer is None, for unknown.

_MOST_STEPS = 12


@dataclass(frozen=True)
class Region:
    """The positions offset + sum of step * (0 .. count - 1); steps increase, no two sums collide.

    Contiguous steps are merged: rows of 64 elements with a stride of 64 are one long row.
    """

    offset: int
    steps: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> int:
        return math.prod(count for _, count in self.steps)

    @property
    def end(self) -> int:
        return self.offset + sum(step * (count - 1) for step, count in self.steps) + 1

    @property
    def is_whole(self) -> bool:
        return self.end - self.offset == self.elements


def read_region(index: str, ranges: Mapping[str, int]) -> Region | None:
    """Return the positions that an index covers; None if it is too complex."""
    found = read_sum(index, ranges)
    return None if found is None else _normal(*found)


def _normal(offset: int, steps: list[tuple[int, int]]) -> Region | None:
    merged: list[tuple[int, int]] = []
    for step, count in sorted((step, count) for step, count in steps if count > 1):
        if step < sum(one * (times - 1) for one, times in merged) + 1:
            return None  # Places are visited more than once, as in a convolution.
        if merged and step == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0], merged[-1][1] * count)
        else:
            merged.append((step, count))
    return Region(offset, tuple(merged)) if len(merged) <= _MOST_STEPS else None


def common_elements(first: Region, second: Region) -> int | None:
    """Return the number of positions in both regions; None if unknown."""
    if first.end <= second.offset or second.end <= first.offset:
        return 0
    if first.steps == second.steps:
        return _shifted(first.steps, abs(first.offset - second.offset))
    for whole, other in ((first, second), (second, first)):
        if whole.is_whole and whole.offset <= other.offset and other.end <= whole.end:
            return other.elements
    return None


def _shifted(steps: tuple[tuple[int, int], ...], distance: int) -> int:
    """Return how many positions a region shares with itself shifted by a distance."""
    if not steps:
        return 1 if distance == 0 else 0
    step, count = steps[-1]
    quotient = distance // step
    found = 0
    # The smaller steps must cover the rest, forwards or backwards.
    for times in (quotient, quotient + 1):
        if times < count:
            rest = abs(distance - times * step)
            found += (count - times) * _shifted(steps[:-1], rest)
    return found


def common_share(
    first: Iterable[str], first_ranges: str, second: Iterable[str], second_ranges: str
) -> float | None:
    """Return the fraction of the smaller read that the other reads too; None if unknown."""
    regions = [
        [read_region(index, read_lengths(ranges)) for index in indices]
        for indices, ranges in ((first, first_ranges), (second, second_ranges))
    ]
    known = [[region for region in side if region is not None] for side in regions]
    if [len(side) for side in known] != [len(side) for side in regions] or not all(known):
        return None
    smaller = min(sum(region.elements for region in side) for side in known)
    common = 0
    for one in known[0]:
        for other in known[1]:
            found = common_elements(one, other)
            if found is None:
                return None
            common += found
    return min(1.0, common / smaller)
