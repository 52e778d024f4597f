"""Tensors that are copied into another memory order on every call.

What it finds: a scheduler node that does nothing but copy at least 1 MiB from one memory order into
another, where the program asks for no copy: Inductor inserted it for a kernel that needs its input
in a certain order.

Why it matters: The copy takes as long as any other kernel that reads and writes as much, and it is
made again on every call, also of weights that never change.

Example: the weights of a large convolution, converted to channels_last on every call.

What to do: Keep the tensor in that memory order from the start
(`.to(memory_format=torch.channels_last)`, `.contiguous()`). For inference,
`torch._inductor.config.freezing = True` converts weights once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import FxNode, read_graph
from inductoscope.model.join import final_graph, place_of
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.tensor_sizes import bytes_of

FEWEST_BYTES = 1 << 20
_OPERATION = re.compile(r"= ops\.(\w+)\(")
_INDEX = re.compile(r"^index\d+ = (.+)$", re.MULTILINE)
# The program's own copies, however they are written.
_ASKED = ("clone", "copy", "contiguous", "cat", "stack", "pad", "repeat", "expand", "slice_scatter")


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per copy; a function that is compiled again repeats none."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            for leaf in _copies(recording, graph):
                key = (compile_.function, leaf.origins)
                size = _bytes(leaf)
                if size >= FEWEST_BYTES and key not in seen:
                    seen.add(key)
                    yield _finding(recording, compile_, graph, leaf)


def _copies(recording: Recording, graph: InductorGraph) -> Iterator[ScheduledNode]:
    for node in read_schedule(recording, graph.scheduled_after):
        for leaf in node.leaves:
            asked = any(known in origin for origin in leaf.origins for known in _ASKED)
            if leaf.loops == "Pointwise" and leaf.body and not asked and leaf.origins:
                body = recording.payload(leaf.body)
                indices = _INDEX.findall(body)
                reorders = len(indices) == 2 and indices[0] != indices[1]
                if _OPERATION.findall(body) == ["load", "store"] and reorders:
                    yield leaf


def _bytes(leaf: ScheduledNode) -> int:
    sizes = [bytes_of(buffer.dtype, buffer.size) for buffer in leaf.buffers]
    return sum(size for size in sizes if size)


def _finding(
    recording: Recording, compile_: Compile, graph: InductorGraph, leaf: ScheduledNode
) -> Finding:
    where, code = place_of(recording, compile_, graph, leaf.origins)
    buffer = leaf.buffers[0]
    read = ", ".join(leaf.reads) or "a tensor"
    is_weight = _is_input(recording, compile_, graph, leaf)
    shape = f"({', '.join(buffer.size)})"
    advice = f"Keep it with strides ({', '.join(buffer.stride)}) from the start."
    if is_weight:
        advice += " For inference, torch._inductor.config.freezing = True converts weights once."
    return Finding(
        rule="layout_copies",
        title=f"A tensor of shape {shape} is copied into another memory order on every call",
        is_problem=False,
        confidence="proven",
        evidence=(
            f"{leaf.name} copies {read} into {buffer.name}, {_bytes(leaf):,} bytes, and computes "
            f"nothing; {leaf.origins[-1]} needs it so",
        ),
        advice=advice,
        stage=stages.LOWERING,
        source=where,
        compile=compile_.id,
        code=code,
    )


def _is_input(
    recording: Recording, compile_: Compile, graph: InductorGraph, leaf: ScheduledNode
) -> bool:
    """Whether what is copied comes from outside of the graph, as weights do."""
    final = read_graph(recording, final_graph(compile_, graph))
    nodes: dict[str, FxNode] = {node.name: node for node in (final.nodes if final else ())}
    return any(nodes[name].op == "placeholder" for name in leaf.reads if name in nodes)
