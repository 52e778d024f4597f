"""Which scheduler nodes might gain from sharing a kernel: one reads what the other writes, or both
read the same data. Taken from the schedule before fusion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inductoscope.analysis.fusion.sizes import buffer_bytes
from inductoscope.model.as_json import NOT_IN_JSON
from inductoscope.model.schedule import Buffer, ScheduledNode

PRODUCER = "producer-consumer"
SHARED = "shared input"
UNRELATED = "no common data"

# A buffer that a thousand nodes read makes half a million pairs. torch looks at the next 64, so
# each reader is paired with a few more than that.
MOST_READERS = 80


@dataclass(frozen=True)
class Moved:
    """Bytes of one buffer that a pair costs because it is not one kernel."""

    buffer: str
    read_bytes: int | None
    # The buffer itself, if nothing else needs it: fused, it would not have to exist.
    written_bytes: int | None = None
    # Whether `read_bytes` is exact, or only an upper bound.
    certain: bool = field(default=True, metadata=NOT_IN_JSON)

    @property
    def bytes(self) -> int | None:
        """Both together; None if the size is unknown."""
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
        """Bytes that one kernel would not have to move; None if unknown."""
        known = [moved.bytes for moved in self.moved if moved.bytes is not None]
        return sum(known) if known else None

    @property
    def certain(self) -> bool:
        """Whether `bytes` is exact, or only an upper bound."""
        return all(moved.certain for moved in self.moved)


def related_pairs(
    nodes: Iterable[ScheduledNode], input_bytes: Mapping[str, int]
) -> dict[tuple[str, str], Pair]:
    """All pairs of nodes that share data, by their names in the order of the schedule."""
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
    """Who writes and who reads each buffer."""

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
        """Bytes of a buffer that a node reads or writes; all of it if that was not recorded."""
        if node.kind == "NopKernelSchedulerNode":
            return 0
        if name in node.bytes:
            return node.bytes[name]
        if name in self.buffers:
            return buffer_bytes(self.buffers[name][1])
        return self.input_bytes.get(name)
