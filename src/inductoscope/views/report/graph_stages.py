"""Views of the stages that work on FX graphs: Dynamo, AOTAutograd and the passes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from inductoscope.model.entities import Compile, PassChange, Recording
from inductoscope.model.fx import FxGraph, FxNode, describe_value, read_graph
from inductoscope.views.report.sections import Section
from inductoscope.vocabulary import stages


def dynamo(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Graphs that Dynamo took from the user's frames, with the lines that they came from."""
    for compile_ in compiles:
        graphs = [graph for graph in compile_.graphs if graph.stage == stages.DYNAMO]
        for graph in graphs:
            yield Section(
                f"{compile_.id} dynamo: {compile_.function}",
                {"source": compile_.place, "guards": compile_.guard_count},
                graph_text(read_graph(recording, graph.digest)),
            )
        if not graphs:
            yield Section(
                f"{compile_.id}: {compile_.function}",
                {"source": compile_.place, "outcome": compile_.outcome, "reason": compile_.reason},
                "Dynamo captured no graph from this frame",
            )


def aot(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Joint, forward, backward and inference graphs, and the decompositions applied."""
    for compile_ in compiles:
        if compile_.decompositions:
            yield Section(
                f"{compile_.id} decompositions", {"times_applied": dict(compile_.decompositions)}
            )
        for graph in compile_.graphs:
            if graph.stage.startswith("aot-"):
                yield Section(
                    f"{compile_.id} {graph.stage}",
                    text=graph_text(read_graph(recording, graph.digest)),
                )


def passes(recording: Recording, compiles: Iterable[Compile]) -> Iterator[Section]:
    """Passes that changed a graph, each with the difference that it made."""
    for compile_ in compiles:
        for change in compile_.passes:
            yield Section(
                f"{change.graph or compile_.id} {change.stage}: {change.name}",
                {"seconds": change.seconds, "inside": list(change.inside)},
                _difference(recording, change),
            )
        for graph in compile_.graphs:
            if graph.stage == "post-grad":
                yield Section(
                    f"{graph.key} after the post-grad passes",
                    text=graph_text(read_graph(recording, graph.digest)),
                )


def graph_text(graph: FxGraph | None) -> str:
    """A graph as lines, each line of the user's program ahead of what it became."""
    if graph is None:
        return "(the graph is missing from the recording)"
    lines: list[str] = []
    place = ""
    for node in graph.nodes:
        here = f"# {node.place}  {node.place.code}" if node.place else ""
        if here and here != place:
            lines.append(here)
            place = here
        lines.append("  " + node_text(node))
    return "\n".join(lines)


def node_text(node: FxNode) -> str:
    """One node of a graph in a line."""
    value = describe_value(node.value)
    if node.op == "placeholder":
        return f"%{node.name}: {value}" if value else f"%{node.name}"
    if node.op == "output":
        return f"return {node.args.removeprefix('(').removesuffix(')').removesuffix(',')}"
    return f"{node}" + (f"  # {value}" if value else "")


def node_texts(graph: FxGraph) -> list[str]:
    """The nodes of a graph, each in a line."""
    return [node_text(node) for node in graph.nodes]


def _difference(recording: Recording, change: PassChange) -> str:
    before, after = (read_graph(recording, digest) for digest in (change.before, change.after))
    if before is None or after is None:
        return "(one of the two graphs is missing from the recording)"
    old, new = node_texts(before), node_texts(after)
    lines = difflib.unified_diff(old, new, "before", "after", lineterm="", n=1)
    return "\n".join(lines) or "(only details that are not printed changed)"
