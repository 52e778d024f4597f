"""Rebuilds the graph that Dynamo captured from its record.

Names of nodes and lines of the user's program are kept, so that every view of the new recording
leads back to the program. Inputs are fake tensors: they have a shape, and no memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.model.fx import FxGraph, FxNode, graph_from
from inductoscope.recording.values import members
from inductoscope.targets.recompile.arguments import Names, read_arguments
from inductoscope.targets.recompile.moving import Call, move_call
from inductoscope.targets.recompile.operations import (
    ATTRIBUTES,
    COMPUTES_NOTHING,
    check_method,
    resolve_function,
    written_calls,
)
from inductoscope.targets.recompile.own_operators import is_own, stand_in
from inductoscope.targets.recompile.sizes import Sizes
from inductoscope.targets.recompile.unbuildable import Unbuildable
from inductoscope.vocabulary.frames import Frame

_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,200}", re.ASCII)
_ATTENTION = (
    "scaled_dot_product_attention is decomposed here; a real GPU would call a fused kernel for it"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass
class Rebuilt:
    """A graph that can be compiled, its inputs, and how it differs from the original."""

    module: Any
    inputs: list[Any]
    notes: list[str] = field(default_factory=list)
    # Operators of the program's own: how their gradients are computed is not in the recording.
    own_operators: tuple[str, ...] = ()


class Rebuilder:
    """Builds graphs for one device, in one fake-tensor mode."""

    def __init__(self, fake_mode: Any, devices: Mapping[str, str]) -> None:
        self._mode = fake_mode
        self._sizes = Sizes(fake_mode.shape_env)
        self._devices = devices
        self._notes: list[str] = []
        self._own: dict[str, None] = {}

    def build(self, graph: FxGraph) -> Rebuilt:
        """The graph with its inputs; raises Unbuildable if the recording lacks something."""
        self._learn_sizes(graph)
        inputs: list[Any] = []
        module = self._module(graph, inputs)
        return Rebuilt(module, inputs, self._notes, tuple(self._own))

    def _learn_sizes(self, graph: FxGraph) -> None:
        for node in graph.nodes:
            value = members(node.value)
            if node.op == "placeholder" and "hints" in value:
                self._sizes.learn(_list(value.get("shape")), _list(value.get("hints")))
            elif node.op == "placeholder" and "hint" in value:
                self._sizes.learn([value.get("text")], [value.get("hint")])

    # --- nodes ------------------------------------------------------------------------------------

    def _module(self, graph: FxGraph, inputs: list[Any] | None) -> Any:
        """A GraphModule; `inputs`, if given, is filled in order."""
        from torch.fx import Graph, GraphModule
        from torch.nn import Module

        built, root = Graph(), Module()
        nodes: dict[str, Any] = {}
        written = written_calls(graph.code)
        for node in self._ordered(graph):
            made = self._node(built, root, graph, node, nodes, written)
            made.meta["is_size"] = members(node.value).get("type") in ("SymInt", "int")
            nodes[node.name] = made
            _keep_place(made, node)
            if _is_input(graph, node):
                self._input(made, node, graph, inputs)
        return GraphModule(root, built)

    def _ordered(self, graph: FxGraph) -> list[FxNode]:
        """Constants become inputs, and inputs come first."""
        nodes = [node for node in graph.nodes if node.target not in COMPUTES_NOTHING]
        return sorted(nodes, key=lambda node: not _is_input(graph, node))

    def _node(
        self,
        built: Any,
        root: Any,
        graph: FxGraph,
        node: FxNode,
        nodes: Mapping[str, Any],
        written: Mapping[str, str],
    ) -> Any:
        if not _IDENTIFIER.fullmatch(node.name) or node.name in nodes:
            raise Unbuildable(f"a node has the name {node.name[:40]!r}")
        names = Names(nodes, self._devices)
        if _is_input(graph, node):
            return built.create_node("placeholder", node.name, name=node.name)
        if node.op == "get_attr":
            return self._inner_graph(built, root, graph, node)
        arguments = read_arguments(node.args, names)
        keywords = read_arguments(node.kwargs, names) or {}
        if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
            raise Unbuildable(f"the arguments of {node.name} cannot be read")
        if node.op == "output":
            return built.output(arguments[0] if arguments else ())
        if node.op == "call_method":
            target: Any = check_method(node.target)
        elif node.op == "call_function":
            called = written.get(node.name, "")
            if is_own(called):
                self._own[node.target] = None
                made = stand_in(called, arguments, keywords, node.value, names)
                return built.create_node(node.op, made, arguments, keywords, name=node.name)
            target = resolve_function(node.target, called)
            _check_attribute(target, arguments)
        else:
            raise Unbuildable(f"{node.name} calls a module whose code is not in the recording")
        if self._devices and node.target.endswith("scaled_dot_product_attention"):
            self._note(_ATTENTION)
        call = move_call(Call(target, arguments, keywords), names)
        return built.create_node(
            node.op, call.target, call.arguments, call.keywords, name=node.name
        )

    def _inner_graph(self, built: Any, root: Any, graph: FxGraph, node: FxNode) -> Any:
        inner = graph_from(members(graph.attributes.get(node.target)).get("graph"))
        if inner is None or not _IDENTIFIER.fullmatch(node.target):
            raise Unbuildable(f"{node.target[:60]}, which the graph reads, is not in the recording")
        setattr(root, node.target, self._module(inner, None))
        return built.create_node("get_attr", node.target, name=node.name)

    # --- inputs -----------------------------------------------------------------------------------

    def _input(self, made: Any, node: FxNode, graph: FxGraph, inputs: list[Any] | None) -> None:
        value = members(node.value) or members(graph.attributes.get(node.target))
        if inputs is None:
            return  # Inner graphs are called by the outer one.
        if node.op == "get_attr":
            self._note(f"the constant {node.target[:60]} is taken as an input")
        example = self._example(value, node.name)
        inputs.append(example)
        made.meta["example_value"] = example

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _example(self, value: dict[str, Any], name: str) -> Any:
        import torch

        if "dtype" not in value:
            return self._number(value, name)
        dtype = getattr(torch, str(value["dtype"]).removeprefix("torch."), None)
        if not isinstance(dtype, torch.dtype) or "stride" not in value:
            raise Unbuildable(f"the input {name} is not a dense tensor")
        shape = [self._sizes.size(size) for size in _list(value.get("shape"))]
        stride = [self._sizes.size(size) for size in _list(value.get("stride"))]
        if len(shape) != len(stride):
            raise Unbuildable(f"the input {name} has no strides")
        device = Names({}, self._devices).device(str(value.get("device", "cpu")))
        with self._mode:
            tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        learns = value.get("requires_grad") is True
        return tensor.requires_grad_() if learns and dtype.is_floating_point else tensor

    def _number(self, value: dict[str, Any], name: str) -> Any:
        if value.get("type") in ("SymInt", "int") and "text" in value:
            text = str(value["text"])
            return self._sizes.size(int(text) if text.isdecimal() else text)
        raise Unbuildable(f"the input {name} is neither a tensor nor a size")


def _is_input(graph: FxGraph, node: FxNode) -> bool:
    """An input, or a tensor of the graph's module: the recording has only its shape."""
    held = node.op == "get_attr" and "dtype" in members(graph.attributes.get(node.target))
    return held or node.op == "placeholder"


def _check_attribute(target: Any, arguments: tuple[Any, ...]) -> None:
    if target is getattr and (len(arguments) != 2 or arguments[1] not in ATTRIBUTES):
        raise Unbuildable(f"the attribute {str(arguments[1:])[:40]} is read")


def _keep_place(made: Any, node: FxNode) -> None:
    """The user's lines and modules, as torch writes them. They may end up in generated comments."""
    if node.stack:
        made.meta["stack_trace"] = "".join(_frame_text(frame) for frame in node.stack)
    if node.modules:
        stack = [tuple(_CONTROL.sub("?", text) for text in (m.path, m.kind)) for m in node.modules]
        made.meta["nn_module_stack"] = {path: (path, kind) for path, kind in stack}


def _frame_text(frame: Frame) -> str:
    file, function, code = (
        _CONTROL.sub("?", text) for text in (frame.file, frame.function, frame.code)
    )
    return f'  File "{file}", line {frame.line}, in {function}\n    {code}\n'


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
