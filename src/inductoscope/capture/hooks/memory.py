"""What is known of memory when kernels are generated: the room of every buffer, and of sizes.

A loop body says where it reads and writes, in symbols. Whether that is inside a buffer depends
on the buffer's layout, on the range of each symbol, and on what the guards say of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inductoscope.capture.observe import Arguments, Keywords, watch
from inductoscope.capture.scope import BROKEN, SCOPE
from inductoscope.recording.events.code import MemoryListed
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

TORCH_NAMES = {
    "torch._inductor.virtualized": ("V.graph",),
}

# Guards are short. A longer one is not worth its place, and is counted as not understood.
_LONGEST = 2000
_TOO_LONG = "<too long>"


def _listed(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    described = {"buffers": dict(_buffers(graph)), **_describe_sizes(graph.sizevars)}
    SCOPE.emit(MemoryListed(graph=SCOPE.graph, payload=SCOPE.json(described)))


def _buffers(graph: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Inputs, constants and buffers; those that can be described."""
    values = _input_values(graph)
    for name, given in graph.graph_inputs.items():
        found = SCOPE.guard(_describe_input, given, values.get(name))
        if found is not BROKEN and found:
            yield name, found
    for name, constant in graph.constants.items():
        if hasattr(constant, "stride"):
            yield name, {"size": _texts(constant.shape), "stride": _texts(constant.stride())}
    for name, buffer in graph.name_to_buffer.items():
        found = SCOPE.guard(_describe_buffer, buffer)
        if found is not BROKEN and found:
            yield name, found


def _input_values(graph: Any) -> dict[str, Any]:
    nodes = graph.module.graph.nodes
    return {node.target: node.meta.get("val") for node in nodes if node.op == "placeholder"}


def _describe_input(given: Any, value: Any) -> dict[str, Any] | None:
    layout = given.get_layout() if hasattr(given, "get_layout") else None
    if layout is None:
        return None
    found = {"size": _texts(layout.size), "stride": _texts(layout.stride), "input": True}
    # A kernel may address all of the memory that a view lies in: as_strided does.
    around = SCOPE.guard(_memory_around, value)
    return found if around is BROKEN else {**found, **around}


def _memory_around(value: Any) -> dict[str, str]:
    if not hasattr(value, "untyped_storage"):
        return {}
    length = value.untyped_storage().size()
    return {"before": _text(value.storage_offset()), "bytes": _text(length)} | {
        "itemsize": str(value.dtype.itemsize)
    }


def _describe_buffer(buffer: Any) -> dict[str, Any] | None:
    layout: Any = getattr(buffer, "layout", None)
    mutated = getattr(layout, "get_buffer", None)
    if mutated is not None:
        return {"same_as": mutated().get_name()}
    if not all(hasattr(layout, name) for name in ("size", "stride", "offset")):
        return None  # An operation that only writes to others has no memory.
    found: dict[str, Any] = {"size": _texts(layout.size), "stride": _texts(layout.stride)}
    view = getattr(layout, "view", None)
    if view is not None:
        found["inside"] = view.get_name()
        found["offset"] = _text(view.get_layout().offset)
    elif str(layout.offset) != "0":
        found["offset"] = _text(layout.offset)
    return found


def _describe_sizes(sizes: Any) -> dict[str, Any]:
    environment: Any = sizes.shape_env
    precomputed = getattr(sizes, "inv_precomputed_replacements", {})
    replaced = {**environment.replacements, **precomputed}
    asserted = getattr(environment, "deferred_runtime_asserts", {}).values()
    assumed = [
        *(guard.expr for guard in environment.guards),
        *(check.expr for checks in asserted for check in checks),
    ]
    return {
        "symbols": dict(_symbols(environment)),
        "replaced": {str(symbol): _text(value) for symbol, value in replaced.items()},
        "assumed": list(dict.fromkeys(map(_text, assumed))),
    }


def _symbols(environment: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    values = getattr(environment, "backed_var_to_val", None)
    if values is None:
        values = getattr(environment, "var_to_val", {})
    sources = getattr(environment, "var_to_sources", {})
    for symbol, span in environment.var_to_range.items():
        found = {"lower": str(span.lower), "upper": str(span.upper)}
        if symbol in values:
            found["value"] = str(values[symbol])
        for source in list(sources.get(symbol, ()))[:1]:
            name = source.name
            found["source"] = str(name() if callable(name) else name)
        yield str(symbol), found


def _texts(values: Any) -> list[str]:
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    # A size under tracing prints as its expression too, but asks for its hint on the way.
    node = getattr(value, "node", None)
    text = str(value if node is None else node.expr)
    # A part of an expression could be read as another expression.
    return text if len(text) <= _LONGEST else _TOO_LONG


MEMORY = Hook(
    stage=stages.CODEGEN,
    records="the room of every buffer, and what guards say of sizes",
    wraps=(
        Wrap(
            TorchName("torch._inductor.scheduler", "Scheduler.codegen"),
            watch(after=_listed),
        ),
    ),
)
