"""The compiler's output as files: graphs, IR, loop bodies, kernels, wrappers, PTX."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from inductoscope.analysis.rules import diagnose
from inductoscope.model.entities import (
    Compile,
    CompileError,
    InductorGraph,
    NativeCompile,
    Recording,
)
from inductoscope.model.fx import describe_value, read_graph
from inductoscope.model.kernels import NativeIndex
from inductoscope.model.schedule import read_schedule
from inductoscope.model.timeline import timeline
from inductoscope.recording.events import FusionRound, GraphState, Kernel, LoweredNode
from inductoscope.version import __version__
from inductoscope.views.export.folder import Item, safe_name

_SUFFIXES = {"C++": "cpp", "Triton": "py"}


def raw(recording: Recording) -> Iterator[Item]:
    natives = NativeIndex(recording)
    for compile_ in recording.compiles:
        folder = f"raw/{safe_name(compile_.id)}-{safe_name(compile_.function, 'frame')}"
        yield from _of_compile(recording, compile_, folder)
        for graph in compile_.inductor:
            inner = f"{folder}/{safe_name(graph.key.partition(' ')[2], 'graph')}"
            yield from _of_graph(recording, graph, inner)
            for kernel in graph.kernels:
                yield from _forms(recording, natives, graph, kernel, inner)
    yield from _natives(recording)


def _of_compile(recording: Recording, compile_: Compile, folder: str) -> Iterator[Item]:
    for graph in compile_.graphs:
        phase = safe_name(graph.graph.partition(" ")[2], "") if graph.graph else ""
        place = f"{folder}/{phase}" if phase else folder
        fx = read_graph(recording, graph.payload)
        if fx is None:
            continue
        name = safe_name(graph.stage)
        key = graph.graph or compile_.id
        if fx.code:
            code = fx.code + "\n"
            yield Item(f"{place}/{name}.py", "FX graph as code", partial(str, code), key, name)
        yield Item(
            f"{place}/{name}.txt",
            "FX graph, node by node",
            partial(_nodes_text, recording, graph.payload),
            key,
            name,
        )
    yield from _passes(recording, compile_, folder)
    if compile_.guards:
        yield _text(recording, compile_.guards, f"{folder}/guards.json", "guards", compile_.id)


def _nodes_text(recording: Recording, digest: str) -> str:
    graph = read_graph(recording, digest)
    nodes = graph.nodes if graph else ()
    return "".join(f"{node}  # {describe_value(node.value)}\n" for node in nodes)


def _passes(recording: Recording, compile_: Compile, folder: str) -> Iterator[Item]:
    for number, change in enumerate(compile_.passes, start=1):
        name = f"{folder}/passes/{number:03}-{safe_name(change.name)}"
        for when, digest in (("before", change.before), ("after", change.after)):
            yield Item(
                f"{name}-{when}.txt",
                f"graph {when} pass {change.name}",
                partial(_nodes_text, recording, digest),
                change.graph or compile_.id,
                change.stage,
            )


def _of_graph(recording: Recording, graph: InductorGraph, folder: str) -> Iterator[Item]:
    if graph.lowered:
        make = partial(_ir_text, graph.lowered)
        yield Item(f"{folder}/ir.txt", "IR of every node", make, graph.key, "ir")
    schedules = {"before": graph.scheduled_before, "after": graph.scheduled_after}
    for when, digest in schedules.items():
        path = f"{folder}/scheduler-{when}-fusion.json"
        yield from _maybe(recording, digest, path, f"scheduler nodes {when} fusion", graph.key)
    yield from _bodies(recording, graph, folder)
    for kernel in graph.kernels:
        yield from _kernel(recording, graph, kernel, folder)
    if graph.wrapper:
        is_cpp = recording.payload(graph.wrapper).lstrip().startswith("#include")
        path = f"{folder}/wrapper.{'cpp' if is_cpp else 'py'}"
        yield _text(recording, graph.wrapper, path, "wrapper", graph.key)
    path = f"{folder}/buffers.json"
    yield from _maybe(recording, graph.buffers, path, "where buffers come from", graph.key)


def _ir_text(lowered: Sequence[LoweredNode]) -> str:
    parts = (
        f"{item.node} = {item.target}\n{json.dumps(item.ir, indent=1)}\n".replace("\\n", "\n    ")
        for item in lowered
    )
    return "\n".join(parts)


def _bodies(recording: Recording, graph: InductorGraph, folder: str) -> Iterator[Item]:
    nodes = read_schedule(recording, graph.scheduled_after or graph.scheduled_before)
    for leaf in (leaf for node in nodes for leaf in node.leaves if leaf.body):
        path = f"{folder}/loop-bodies/{safe_name(leaf.name)}.txt"
        yield _text(recording, leaf.body, path, f"loop body of {leaf.name}", graph.key)


def _kernel(
    recording: Recording, graph: InductorGraph, kernel: Kernel, folder: str
) -> Iterator[Item]:
    suffix = _SUFFIXES.get(kernel.language)
    if suffix is None:
        return
    path = f"{folder}/kernels/{safe_name(kernel.name)}.{suffix}"
    yield _text(recording, kernel.payload, path, f"kernel {kernel.name}", graph.key)


def _forms(
    recording: Recording, natives: NativeIndex, graph: InductorGraph, kernel: Kernel, folder: str
) -> Iterator[Item]:
    """Yield a Triton kernel's forms from TTIR to machine code, for each configuration."""
    for native in natives.of(kernel):
        config = f"-{safe_name(native.config)}" if native.config else ""
        for form, digest in native.forms.items():
            path = f"{folder}/kernels/{safe_name(kernel.name)}{config}.{safe_name(form)}"
            what = f"{form} of {kernel.name} {native.config}".strip()
            yield _text(recording, str(digest), path, what, graph.key)


def _natives(recording: Recording) -> Iterator[Item]:
    for number, native in enumerate(recording.natives, start=1):
        file = native.source.rpartition("/")[2].removesuffix(".cpp")
        name = f"raw/native/{number:03}-{safe_name(file, safe_name(native.tool))}"
        if native.tool == "c++" and native.payload:
            yield _text(recording, native.payload, f"{name}.cpp", native.command[:200], "")
        if native.messages:
            yield _text(recording, native.messages, f"{name}.messages.txt", "messages", "")


def _maybe(recording: Recording, digest: str, path: str, what: str, graph: str) -> Iterator[Item]:
    if digest:
        yield _text(recording, digest, path, what, graph)


def _text(recording: Recording, digest: str, path: str, what: str, graph: str) -> Item:
    make: Callable[[], str] = partial(_payload, recording, digest)
    return Item(path, what, make, graph)


def _payload(recording: Recording, digest: str) -> str:
    text = recording.payloads.payload(digest)
    return "(missing from the recording)\n" if text is None else text


# --- The whole recording as one JSON file: the model, the findings, the timeline and all texts ----

SCHEMA = 1
_DIGEST = re.compile(r"[0-9a-f]{32}")


def everything(recording: Recording) -> Iterator[Item]:
    yield Item("recording.json", "everything", lambda: json.dumps(as_data(recording), indent=1))


def as_data(recording: Recording) -> dict[str, Any]:
    """Convert the recording to plain data. `payloads` maps its digests to their texts."""
    data = {
        "schema": SCHEMA,
        "tool": f"inductoscope {__version__}",
        "recording": plain(recording),
        "findings": plain(diagnose(recording)),
        "timeline": plain(timeline(recording)),
    }
    return {**data, "payloads": _payloads(recording, data["recording"])}


# Additional JSON names for fields of events.
_ALSO_CALLED: dict[type, dict[str, str]] = {
    Compile: {"id": "compile"},
    CompileError: {"causes": "cause"},
    FusionRound: {"number": "round"},
    GraphState: {"digest": "payload", "key": "graph"},
    Kernel: {"digest": "payload"},
    NativeCompile: {"digest": "payload"},
}


def plain(value: Any) -> Any:
    """Convert dataclasses to dicts and tuples to lists, without payload readers."""
    if is_dataclass(value) and not isinstance(value, type):
        names = {one.name: one.name for one in fields(value) if not _is_kept_back(one.name)}
        names |= _ALSO_CALLED.get(type(value), {})
        return {name: plain(getattr(value, field)) for name, field in names.items()}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _is_kept_back(name: str) -> bool:
    return name.startswith("_") or name in ("payloads", "latest")


def _payloads(recording: Recording, data: Any) -> dict[str, str]:
    """Collect all payloads that the data references, directly or through other payloads."""
    found: dict[str, str] = {}
    waiting = _digests(data)
    while waiting:
        digest = waiting.pop()
        text = recording.payloads.payload(digest) if digest not in found else None
        if text is not None:
            found[digest] = text
            # A list of scheduler nodes references loop bodies.
            waiting += _DIGEST.findall(text) if text.startswith("[") else []
    return found


def _digests(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [digest for item in value.values() for digest in _digests(item)]
    if isinstance(value, list):
        return [digest for item in value for digest in _digests(item)]
    return [value] if isinstance(value, str) and _DIGEST.fullmatch(value) else []
