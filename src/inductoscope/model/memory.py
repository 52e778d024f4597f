"""Buffer layouts and size symbols, decoded from a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import final_graph
from inductoscope.model.schedule import read_schedule
from inductoscope.recording.decoding import fitted
from inductoscope.recording.values import members, texts


class Room(msgspec.Struct, frozen=True):
    """The layout of a buffer in elements: sizes, strides, offset and the enclosing storage."""

    size: tuple[str, ...] = ()
    stride: tuple[str, ...] = ()
    is_input: bool = msgspec.field(default=False, name="input")
    # The buffer is an alias of this one, without memory of its own.
    same_as: str = ""
    # The enclosing buffer, and the offset in it.
    inside: str = ""
    offset: str = "0"
    # For an input: its storage offset in elements, and its storage size in bytes.
    before: str = ""
    bytes: str = ""
    recorded_itemsize: int | str = msgspec.field(default=0, name="itemsize")

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes; 0 if unknown."""
        size = str(self.recorded_itemsize)
        return int(size) if size.isdecimal() and len(size) < 4 else 0


class SizeSymbol(msgspec.Struct, frozen=True):
    """A dynamic size: its range, its value in the recorded run, and its source."""

    lower: str = ""
    upper: str = ""
    value: str = ""
    source: str = ""


@dataclass(frozen=True)
class GraphMemory:
    rooms: Mapping[str, Room] = field(default_factory=dict)
    symbols: Mapping[str, SizeSymbol] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    # False for recordings older than recorded sizes: symbol ranges are unknown.
    is_recorded: bool = True

    @property
    def hints(self) -> dict[str, int]:
        values = {name: symbol.value for name, symbol in self.symbols.items()}
        return {name: int(text) for name, text in values.items() if text.lstrip("-").isdecimal()}


def read_memory(recording: Recording, compile_: Compile, graph: InductorGraph) -> GraphMemory:
    """Decode the memory of a graph; infer it from shapes for older recordings."""
    if not graph.memory:
        return GraphMemory(_rooms_from_shapes(recording, compile_, graph), is_recorded=False)
    return recording.once("memory", graph.memory, lambda: _recorded(recording, graph))


def _recorded(recording: Recording, graph: InductorGraph) -> GraphMemory:
    lists = [members(recording.data(digest)) for digest in graph.memory]

    def every(key: str) -> Iterator[tuple[str, Any]]:
        return (item for found in lists for item in members(found.get(key)).items())

    assumed = (text for found in lists for text in texts(found.get("assumed")))
    return GraphMemory(
        rooms={name: fitted(Room, members(item)) for name, item in every("buffers")},
        symbols={name: fitted(SizeSymbol, members(item)) for name, item in every("symbols")},
        replaced={name: str(text) for name, text in every("replaced")},
        assumed=tuple(dict.fromkeys(assumed)),
    )


def _rooms_from_shapes(
    recording: Recording, compile_: Compile, graph: InductorGraph
) -> dict[str, Room]:
    rooms: dict[str, Room] = {}
    final = read_graph(recording, final_graph(compile_, graph))
    for node in final.nodes if final else ():
        value = members(node.value)
        if node.op == "placeholder" and "stride" in value:
            size, stride = texts(value.get("shape")), texts(value.get("stride"))
            rooms[node.name] = Room(size, stride, is_input=True)
    for scheduled in read_schedule(recording, graph.scheduled_after or graph.scheduled_before):
        for leaf in scheduled.leaves:
            for buffer in leaf.buffers:
                if buffer.mutates:
                    rooms[buffer.name] = Room((), (), same_as=buffer.mutates[0])
                elif buffer.dtype and len(buffer.size) == len(buffer.stride):
                    rooms[buffer.name] = Room(buffer.size, buffer.stride)
    return rooms
