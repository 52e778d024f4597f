"""FX graphs and scheduler graphs as GraphViz files: dot -Tsvg FILE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import FxGraph, FxNode, describe_value, read_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages
from inductoscope.views.export.folder import Item, safe_name

_QUOTED_OR_NAME = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_]\w*")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST_LABEL = 400


def graphviz(recording: Recording) -> Iterator[Item]:
    for compile_ in recording.compiles:
        yield from _fx_items(recording, compile_)
        for graph in compile_.inductor:
            yield from _schedule_items(recording, graph)


def _fx_items(recording: Recording, compile_: Compile) -> Iterator[Item]:
    for graph in compile_.graphs:
        key = graph.graph or compile_.id
        fx = read_graph(recording, graph.payload)
        if fx is not None:
            yield Item(
                f"graphviz/{safe_name(key)}-{safe_name(graph.stage)}.dot",
                f"FX graph after {graph.stage}",
                partial(fx_picture, fx, f"{key} {graph.stage}"),
                graph=key,
                stage=graph.stage,
            )


def _schedule_items(recording: Recording, graph: InductorGraph) -> Iterator[Item]:
    digests = {"before": graph.scheduled_before, "after": graph.scheduled_after}
    for when, digest in digests.items():
        nodes = read_schedule(recording, digest)
        if nodes:
            yield Item(
                f"graphviz/{safe_name(graph.key)}-scheduler-{when}-fusion.dot",
                f"scheduler nodes {when} fusion",
                partial(schedule_picture, nodes, f"{graph.key} {when} fusion"),
                graph=graph.key,
                stage=stages.SCHEDULER,
            )


# --- pictures -------------------------------------------------------------------------------------


def fx_picture(graph: FxGraph, title: str) -> str:
    numbers = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = [
        f"  {numbers[node.name]} [label={_quoted(_fx_label(node))}{_fx_style(node)}];"
        for node in graph.nodes
    ]
    for node in graph.nodes:
        for name in _inputs(node, numbers):
            lines.append(f"  {numbers[name]} -> {numbers[node.name]};")
    return _picture(title, lines)


def _fx_label(node: FxNode) -> str:
    value = describe_value(node.value)
    target = node.target if node.op not in ("placeholder", "output") else node.op
    return "\n".join(filter(None, (node.name, target, value)))


def _fx_style(node: FxNode) -> str:
    return ', style="filled", fillcolor="gray92"' if node.op in ("placeholder", "output") else ""


def _inputs(node: FxNode, known: Iterable[str]) -> list[str]:
    words = _QUOTED_OR_NAME.findall(f"{node.args} {node.kwargs}")
    return list(dict.fromkeys(word for word in words if word in known and word != node.name))


def schedule_picture(nodes: tuple[ScheduledNode, ...], title: str) -> str:
    """Draw the unfused scheduler nodes, with a box around those that were fused."""
    leaves = [leaf for node in nodes for leaf in node.leaves]
    numbers = {leaf.name: f"n{number}" for number, leaf in enumerate(leaves)}
    lines: list[str] = []
    for number, node in enumerate(nodes):
        own = [_leaf_line(leaf, numbers[leaf.name]) for leaf in node.leaves]
        lines += _cluster(node, number, own) if node.parts else own
    return _picture(title, [*lines, *_edges(leaves, numbers)])


def _cluster(node: ScheduledNode, number: int, inside: list[str]) -> list[str]:
    label = _quoted(f"{node.kind}\n{node.kernel}".strip())
    head = [f"  subgraph cluster_{number} {{", f"    label={label};", '    style="rounded";']
    return [*head, *(f"  {line}" for line in inside), "  }"]


def _leaf_line(leaf: ScheduledNode, number: str) -> str:
    sizes = " ".join(f"({', '.join(size)})" for size in leaf.sizes)
    text = "\n".join(filter(None, (leaf.name, ", ".join(leaf.origins), leaf.kernel, sizes)))
    return f"  {number} [label={_quoted(text)}];"


def _edges(leaves: list[ScheduledNode], numbers: dict[str, str]) -> Iterator[str]:
    writers = {b.name: (leaf, b) for leaf in leaves for b in leaf.buffers}
    for leaf in leaves:
        for name in leaf.reads:
            if name in writers and writers[name][0] is not leaf:
                writer, buffer = writers[name]
                shape = f"{buffer.dtype.removeprefix('torch.')}[{', '.join(buffer.size)}]"
                label = _quoted(f"{name}\n{shape}")
                yield f"  {numbers[writer.name]} -> {numbers[leaf.name]} [label={label}];"


def _picture(title: str, lines: list[str]) -> str:
    head = [
        f"digraph {_quoted(title)} {{",
        f"  label={_quoted(title)};",
        '  node [shape="box", fontname="monospace"];',
        '  edge [fontname="monospace", fontsize="10"];',
    ]
    return "\n".join([*head, *lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """Quote a GraphViz string, neutralizing escapes, quotes and control characters."""
    shown = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    shown = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", shown)
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
