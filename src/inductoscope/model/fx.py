"""FX graphs decoded from a recording: nodes, their origins, and the user's source lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from inductoscope.model.entities import Recording
from inductoscope.recording.values import members, texts
from inductoscope.torch_facts.frames import Frame, frames_in, innermost_users
from inductoscope.torch_facts.printed_graphs import Module, modules_in

Item = TypeVar("Item")


@dataclass(frozen=True)
class FxNode:
    name: str
    op: str
    target: str
    args: str
    kwargs: str
    value: Any
    aten: str
    origins: tuple[str, ...]
    stack: tuple[Frame, ...]
    # The modules whose code created the node, outermost first.
    modules: tuple[Module, ...] = ()

    @cached_property
    def place(self) -> Frame | None:
        """The user's own line: the innermost frame outside of torch and installed libraries."""
        return innermost_users(self.stack, lambda frame: frame.file)

    @property
    def operation(self) -> str:
        """The bare name of the operation: 'relu' for aten.relu.default and for torch.relu."""
        return bare_operation(self.target)

    def __str__(self) -> str:
        arguments = self.args.removeprefix("(").removesuffix(")").removesuffix(",")
        if self.kwargs:
            arguments += f", **{self.kwargs}"
        return f"%{self.name} = {self.target}({arguments})"


@dataclass(frozen=True)
class FxGraph:
    """An FX graph as one stage left it."""

    nodes: tuple[FxNode, ...]
    code: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # Names that the graph's code uses, with their imports.
    globals: Mapping[str, str | None] = field(default_factory=dict)

    def node(self, name: str) -> FxNode | None:
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, FxNode]:
        return {node.name: node for node in reversed(self.nodes)}

    @cached_property
    def calls(self) -> tuple[FxNode, ...]:
        return tuple(
            n for n in self.nodes if n.op in ("call_function", "call_method", "call_module")
        )


def bare_operation(target: str) -> str:
    """Strip the namespace and overload from the name of an operation."""
    parts = [part for part in target.split(".") if part]
    if not parts:
        return target
    if parts[0] == "aten" or "::" in target:
        return parts[1] if len(parts) > 1 else parts[0]
    if parts[-1] == "default" and len(parts) > 1:
        return parts[-2]
    return parts[-1]


def read_graph(recording: Recording, digest: str) -> FxGraph | None:
    return recording.once("graph", (digest,), lambda: graph_from(recording.data(digest)))


def graph_from(data: Any) -> FxGraph | None:
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
        return None
    stacks = [frames_in(text) for text in texts(data.get("stacks"))]
    recorded = data.get("modules")
    modules = list(map(modules_in, recorded)) if isinstance(recorded, list) else []
    nodes = [_node(item, stacks, modules) for item in data["nodes"] if isinstance(item, dict)]
    return FxGraph(
        nodes=tuple(nodes),
        code=str(data.get("code", "")),
        attributes=members(data.get("attributes")),
        globals=members(data.get("globals")),
    )


def _node(
    item: dict[str, Any], stacks: list[tuple[Frame, ...]], modules: list[tuple[Module, ...]]
) -> FxNode:
    return FxNode(
        name=str(item.get("name", "")),
        op=str(item.get("op", "")),
        target=str(item.get("target", "")),
        args=str(item.get("args", "")),
        kwargs=str(item.get("kwargs", "")),
        value=item.get("value"),
        aten=str(item.get("aten", "")),
        origins=texts(item.get("from")),
        stack=_at(stacks, item.get("stack")),
        modules=_at(modules, item.get("modules")),
    )


def describe_value(value: Any) -> str:
    """Format the dtype and shape of a recorded value as torch users write it: f32[10, 100]."""
    if isinstance(value, list):
        return ", ".join(describe_value(item) for item in value)
    if not isinstance(value, dict):
        return ""
    if "dtype" not in value:
        return str(value.get("text", ""))
    shape = ", ".join(texts(value.get("shape")))
    kind = str(value["dtype"]).removeprefix("torch.")
    device = str(value.get("device", ""))
    return f"{kind}[{shape}]" + (f" {device}" if device != "cpu" else "")


def _at(known: list[tuple[Item, ...]], index: Any) -> tuple[Item, ...]:
    """Look up a tuple that several nodes share, by its index; empty if out of range."""
    return known[index] if isinstance(index, int) and 0 <= index < len(known) else ()
