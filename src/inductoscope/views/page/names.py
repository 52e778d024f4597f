"""Everything that has a name, for the search: operations, buffers, nodes, source lines."""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.model.fx import FxNode
from inductoscope.model.join import GraphJoin
from inductoscope.recording.values import filled, members, texts
from inductoscope.views.page.chunk_contract import NamedThing
from inductoscope.vocabulary.frames import Frame

# Operations of one source line that a link leads to.
_MOST = 40


def named_things(number: int, join: GraphJoin) -> Iterator[NamedThing]:
    """The names of a graph; `number` is its position in the index."""
    yield from _operations(number, join)
    yield from _source_lines(number, join)
    yield from _scheduled(number, join)


def _operations(number: int, join: GraphJoin) -> Iterator[NamedThing]:
    for node in join.final.calls if join.final else ():
        told = [node.target, node.aten if node.aten not in node.target else ""]
        told += [_place(node.place), node.place.code] if node.place else []
        note = " · ".join(filter(None, told))
        yield _named("operation", node.name, note, number, (node.name,))


def _source_lines(number: int, join: GraphJoin) -> Iterator[NamedThing]:
    """Every line on the way to an operation, of the program and of the libraries it uses."""
    lines: dict[tuple[str, int], tuple[Frame, list[FxNode]]] = {}
    for node in join.final.calls if join.final else ():
        for frame in node.stack:
            lines.setdefault((frame.file, frame.line), (frame, []))[1].append(node)
    for frame, nodes in lines.values():
        names = tuple(node.name for node in nodes[:_MOST])
        yield _named("source", _place(frame), frame.code, number, names)


def _place(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _scheduled(number: int, join: GraphJoin) -> Iterator[NamedThing]:
    for item in join.before:
        for leaf in item.leaves:
            computed = ", ".join(join.computed.get(leaf.name, ()))
            yield _named("node", leaf.name, f"{leaf.kind} {computed}".strip(), number)
    for name, entry in members(join.recording.data(join.graph.buffers)).items():
        found = members(entry)
        note = str(found.get("origin") or "") or ", ".join(texts(found.get("origins")))
        yield _named("buffer", str(name), note, number)


def _named(
    kind: str, name: str, note: str, graph: int, operations: tuple[str, ...] = ()
) -> NamedThing:
    return filled(NamedThing, kind=kind, name=name, note=note, graph=graph, operations=operations)
