"""The buffers of one graph: who makes and reads each, and whose memory it takes over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from inductoscope.analysis.fusion.sizes import bytes_of
from inductoscope.model.entities import Reuse
from inductoscope.model.join import GraphJoin
from inductoscope.model.memory import GraphMemory, Room, read_memory
from inductoscope.model.schedule import Buffer, ScheduledNode
from inductoscope.recording.values import filled, members, texts
from inductoscope.views.page.chunk_contract import BufferRow
from inductoscope.views.page.stage_panes import kernel_id


def buffer_rows(join: GraphJoin) -> Iterator[BufferRow]:
    """Buffers in the order in which they are made, then inputs and constants."""
    leaves = [leaf for item in (join.after or join.before) for leaf in item.leaves]
    made = {buffer.name: (leaf, buffer) for leaf in leaves for buffer in leaf.buffers}
    memory = read_memory(join.recording, join.compile, join.graph)
    listed = members(join.recording.data(join.graph.buffers))
    context = _Context(join, leaves, memory)
    for name in dict.fromkeys([*made, *listed]):
        leaf, buffer = made.get(name, (None, None))
        origins = members(listed.get(name))
        yield context.row(name, leaf, buffer, origins)
    for name, room in memory.rooms.items():
        if name not in made and name not in listed:
            yield context.outside(name, room)


class _Context:
    """What is looked up for each buffer."""

    def __init__(
        self, join: GraphJoin, leaves: Iterable[ScheduledNode], memory: GraphMemory
    ) -> None:
        self._rooms = memory.rooms
        self._kernels = {
            node: kernel_id(kernel) for kernel in join.graph.kernels for node in kernel.nodes
        }
        self._readers: dict[str, list[str]] = defaultdict(list)
        for leaf in leaves:
            for name in leaf.reads:
                self._readers[name].append(leaf.name)
        self._taken = _by_name((reuse.new, reuse.old, reuse) for reuse in join.graph.reuses)
        self._given = _by_name((reuse.old, reuse.new, reuse) for reuse in join.graph.reuses)

    def row(
        self,
        name: str,
        leaf: ScheduledNode | None,
        buffer: Buffer | None,
        origins: Mapping[str, object],
    ) -> BufferRow:
        room = self._rooms.get(name, _NO_ROOM)
        size = buffer.size if buffer else room.size
        operation = str(origins.get("origin") or (buffer.origin if buffer else ""))
        return filled(
            BufferRow,
            name=name,
            kind="buffer",
            dtype=_short(buffer.dtype) if buffer else "",
            size=_listed(size),
            stride=_listed(buffer.stride if buffer else room.stride),
            bytes=bytes_of(buffer.dtype, size) if buffer and not buffer.mutates else None,
            operation=operation,
            led_here=tuple(o for o in texts(origins.get("origins")) if o != operation),
            node=leaf.name if leaf else "",
            kernel=self._kernels.get(leaf.name, "") if leaf else "",
            read_by=tuple(dict.fromkeys(self._readers[name])),
            takes_over=self._taken.get(name, ""),
            given_to=self._given.get(name, ""),
            part_of=room.same_as or room.inside or ", ".join(buffer.mutates if buffer else ()),
        )

    def outside(self, name: str, room: Room) -> BufferRow:
        size = room.bytes
        return filled(
            BufferRow,
            name=name,
            kind="input" if room.is_input else "constant",
            dtype="",
            size=_listed(room.size),
            stride=_listed(room.stride),
            bytes=int(size) if size.isdecimal() and len(size) < 16 else None,
            operation="",
            led_here=(),
            node="",
            kernel="",
            read_by=tuple(dict.fromkeys(self._readers[name])),
            takes_over="",
            given_to=self._given.get(name, ""),
            part_of=room.same_as or room.inside,
        )


_NO_ROOM = Room((), ())


def _by_name(found: Iterable[tuple[str, str, Reuse]]) -> dict[str, str]:
    """For each buffer the other one, and how: `buf0 (in place)`."""
    ways: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for name, other, reuse in found:
        ways[name][other][reuse.how] = None
    return {
        name: ", ".join(f"{other} ({' and '.join(how)})" for other, how in others.items())
        for name, others in ways.items()
    }


def _short(dtype: str) -> str:
    return dtype.removeprefix("torch.")


def _listed(sizes: Iterable[str]) -> str:
    return f"[{', '.join(sizes)}]"
