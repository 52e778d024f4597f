"""The graphs that a child process compiles, sent to it as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.model.entities import Compile, Recording
from inductoscope.recording.events import Settings
from inductoscope.recording.values import members
from inductoscope.torch_facts.stages import AOT_INDUCTOR, DYNAMO

# Arguments of torch.compile that Dynamo passes on to the backend.
_FOR_BACKEND = ("backend", "mode", "options")
_COMPILE_ID = re.compile(r"(?:\[?!?\d+\]?/)?(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True)
class GraphOrder:
    """A graph that Dynamo captured, or that was exported."""

    compile: str
    function: str
    resumed: str
    file: str
    line: int
    # Whether gradients are needed, so that there is a backward graph as well.
    learns: bool
    graph: Mapping[str, Any]
    # Settings of the program that the new compile lacks, as the program wrote them.
    left_out: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[int, int]:
        """The numbers of the frame and of its compile, as torch counts them."""
        found = _COMPILE_ID.match(self.compile)
        return (int(found[1]), int(found[2])) if found else (0, 0)


@dataclass(frozen=True)
class Order:
    """All graphs of a recording, and how to compile them."""

    graphs: tuple[GraphOrder, ...]
    settings: Mapping[str, Any]
    target: str
    # Compile kernels to machine code, or only write them.
    machine_code: bool


def captured_graphs(recording: Recording, *, exported: bool = False) -> Iterator[GraphOrder]:
    """Yield the graph of every compile without repeats: ranks compile the same graphs.

    With `exported`, the graphs that AOTInductor compiled are included.
    """
    seen: set[tuple[str, str]] = set()
    for compile_ in recording.compiles:
        is_exported = exported and compile_.flow == AOT_INDUCTOR
        first = "pre-grad" if is_exported else DYNAMO
        captured = [graph for graph in compile_.graphs if graph.stage == first]
        data = recording.data(captured[-1].payload) if captured else None
        if not isinstance(data, dict) or (compile_.id, captured[-1].payload) in seen:
            continue
        seen.add((compile_.id, captured[-1].payload))
        yield GraphOrder(
            compile=compile_.id,
            function=compile_.function,
            resumed=compile_.resumed,
            file=compile_.file,
            line=compile_.line,
            learns=_learns(compile_, data),
            graph=data,
            left_out=tuple(_left_out(compile_.settings)),
        )


def _left_out(settings: Settings | None) -> Iterator[str]:
    """Yield settings for AOTAutograd and Inductor; those for Dynamo are in the graph."""
    if settings is None:
        return
    given = {name: value for name, value in settings.arguments.items() if name in _FOR_BACKEND}
    yield from Settings(arguments=given).lines
    for name, value in settings.config.items():
        if not name.startswith("torch._dynamo."):
            yield f"{name} = {value}"


def _learns(compile_: Compile, data: dict[str, Any]) -> bool:
    """Check whether a graph needs gradients, by AOTAutograd's graphs or else captured values."""
    stages = {graph.stage for graph in compile_.graphs}
    if "aot-joint" in stages:
        return True
    if "aot-inference" in stages:
        return False
    nodes = data.get("nodes")
    computed = [
        members(members(node).get("value"))
        for node in (nodes if isinstance(nodes, list) else [])
        if str(members(node).get("op")).startswith("call_")
    ]
    return any(value.get("requires_grad") is True for value in computed)


def devices_for_graphs(graphs: Iterable[GraphOrder]) -> dict[str, str]:
    """Map recorded devices to existing ones: what was on the main device goes to the GPU.

    Graphs of a GPU program keep their CPU tensors on the CPU; graphs of a CPU program move as a
    whole.
    """
    kinds = {kind for graph in graphs for kind in _kinds(graph.graph)}
    accelerators = kinds - {"cpu", "meta"}
    return dict.fromkeys(accelerators or {"cpu"}, "cuda:0")


def _kinds(data: Any) -> Iterator[str]:
    if isinstance(data, list):
        for item in data:
            yield from _kinds(item)
    elif isinstance(data, dict):
        device = data.get("device")
        if "dtype" in data and isinstance(device, str):
            yield device.partition(":")[0]
        for item in data.values():
            yield from _kinds(item)


@dataclass(frozen=True)
class TrialOrder:
    """An order for the child: a graph as recorded, and with concrete sizes for its symbols."""

    recorded: GraphOrder
    # The graphs are called one after the other, up to the first fault.
    sized: tuple[GraphOrder, ...]
    # Values that inputs must hold somewhere, by the input's name.
    values: Mapping[str, int]
