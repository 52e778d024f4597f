"""Which compile of one run corresponds to which of the other, and which graph to which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Generic, TypeVar

from inductoscope.analysis.diff.canonical import graph_lines
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import captured_graph, final_graph

Item = TypeVar("Item")
Key = Callable[[Item], Hashable]


@dataclass(frozen=True)
class Matched(Generic[Item]):
    """Pairs in the order of the first run, and what has no counterpart."""

    pairs: tuple[tuple[Item, Item], ...]
    only_first: tuple[Item, ...]
    only_second: tuple[Item, ...]


def match(
    first: Sequence[Item], second: Sequence[Item], *keys: tuple[Key[Item], Key[Item]]
) -> Matched[Item]:
    """Pair what has the same key, in order; what is left over is tried with the next key.

    Each key is one function per side; a key of None never matches.
    """
    left, right = dict(enumerate(first)), dict(enumerate(second))
    found: dict[int, int] = {}
    for of_first, of_second in keys:
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for number, item in right.items():
            waiting[of_second(item)].append(number)
        for number, item in list(left.items()):
            key = of_first(item)
            if key is not None and waiting[key]:
                found[number] = waiting[key].pop(0)
                del left[number], right[found[number]]
    pairs = tuple((first[number], second[found[number]]) for number in sorted(found))
    return Matched(pairs, tuple(left.values()), tuple(right.values()))


# --- compiles -------------------------------------------------------------------------------------


def match_compiles(first: Recording, second: Recording) -> Matched[Compile]:
    """By function and place, in the order in which they were compiled, then by content."""
    sides = (first, second)
    ranks = [_ranks(recording) for recording in sides]

    def both(make: Callable[[int], Key[Compile]]) -> tuple[Key[Compile], Key[Compile]]:
        return make(0), make(1)

    return match(
        first.compiles,
        second.compiles,
        both(lambda side: lambda c: (ranks[side].get(c.process), *_frame(c), c.line)),
        both(lambda side: lambda c: (ranks[side].get(c.process), *_frame(c))),
        both(lambda side: lambda c: _captured(sides[side], c)),
        both(lambda side: lambda c: c.function or None),
    )


def _frame(compile_: Compile) -> tuple[str, str]:
    """Folders are those of a machine; the file's own name is not."""
    return compile_.function, PurePosixPath(compile_.file).name


def _captured(recording: Recording, compile_: Compile) -> Hashable:
    graph = captured_graph(recording, compile_)
    return graph_lines(graph) if graph is not None else None


def _ranks(recording: Recording) -> dict[str, str]:
    """What distinguishes the processes that compile: their rank, or their order."""
    compiling = dict.fromkeys(compile_.process for compile_ in recording.compiles)
    known = {process.stream: process.rank for process in recording.processes}
    return {name: known.get(name) or f"#{n}" for n, name in enumerate(compiling)}


# --- graphs ---------------------------------------------------------------------------------------

Sides = tuple[Recording, Recording]


def match_graphs(sides: Sides, first: Compile, second: Compile) -> Matched[InductorGraph]:
    """By phase (forward, backward, inference), then by what the final graph computes."""

    def content(recording: Recording, compile_: Compile) -> Key[InductorGraph]:
        def key(graph: InductorGraph) -> Hashable:
            final = read_graph(recording, final_graph(compile_, graph))
            return graph_lines(final) if final is not None else None

        return key

    by_content = content(sides[0], first), content(sides[1], second)
    return match(first.inductor, second.inductor, (_phase, _phase), by_content)


def _phase(graph: InductorGraph) -> Hashable:
    """The key without the number of the compile: 'forward', 'forward#2'."""
    return graph.key.partition(" ")[2] or graph.phase or None
