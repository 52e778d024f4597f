"""Links drawn at random, with the texts on both sides, to be read by a person.

    python -m bench.links RECORDING [COUNT [SEED]]

Prints for each link the operation, its arguments, its loop body and the kernel lines it leads to.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from inductoscope.model.fold import load
from inductoscope.model.fx import FxNode
from inductoscope.model.join import GraphJoin, lines_of_steps


def links(join: GraphJoin) -> Iterator[tuple[GraphJoin, FxNode]]:
    """Every operation of the graph that has lines in a kernel."""
    for node in join.final.calls if join.final else ():
        if lines(join, node):
            yield join, node


def lines(join: GraphJoin, node: FxNode) -> list[str]:
    """The kernel lines of an operation, with their numbers."""
    leaves = join.leaves(node)
    steps = join.steps(node, leaves)
    found = []
    for kernel in join.kernels(leaves):
        text = join.text(kernel.payload)
        numbered = text.splitlines()
        for number in sorted(lines_of_steps(kernel, text, steps)):
            found.append(f"{kernel.name}:{number}: {numbered[number - 1].strip()}")
    return found


def describe(join: GraphJoin, node: FxNode) -> Iterator[str]:
    """One link as text."""
    yield f"{join.graph.key}  {node}"
    if node.place:
        place = f"{node.place.file.rpartition('/')[2]}:{node.place.line}"
        yield f"    python  {place}: {node.place.code}"
    for owner, steps in join.steps(node, join.leaves(node)).items():
        yield from (f"    body    {owner}: {step.name} = {step.text}" for step in steps)
    yield from (f"    kernel  {line}" for line in lines(join, node))


def main() -> None:
    path, count, seed = [*sys.argv[1:], *("10", "0")[len(sys.argv) - 2 :]]
    recording = load(Path(path))
    found = [
        link
        for compile_ in recording.compiles
        for graph in compile_.inductor
        for link in links(GraphJoin(recording, compile_, graph))
    ]
    chosen = random.Random(int(seed)).sample(found, min(int(count), len(found)))
    print(f"{len(found)} operations have kernel lines")
    for number, (join, node) in enumerate(chosen, start=1):
        print(f"{number}. " + "\n".join(describe(join, node)))


if __name__ == "__main__":
    main()
