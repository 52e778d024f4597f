"""Converts an FX graph to a readable Python function."""

from __future__ import annotations

import inspect
import keyword
import operator
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import inplace_methods, magic_methods
from torch.fx.node import _get_qualified_name

from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.operators import is_custom
from inductoscope.inside.repro.source_text import SourceParts, literal
from inductoscope.inside.search.user_kernels import (
    constants_of,
    function_of,
    is_user_kernel,
    kernel_of,
)

_TAKEN = ("torch", "fn", "run", "inputs", "float", "complex")

# The decoration that Dynamo adds to the name of a local variable or a parameter.
_DYNAMO_NAME = re.compile(r"^(l_|L_)|(self_|modules_|parameters_|buffers_)|_+$")


def input_name(name: str) -> str:
    """Return the program's name for a graph input, recovered from Dynamo's name."""
    return _DYNAMO_NAME.sub("", name) or name


def function_text(module: GraphModule) -> tuple[str, list[str]]:
    """Return the graph as the source of `fn`, and the names of its parameters.

    Custom operators, and subgraphs such as the branches of a `cond`, are defined before it.
    """
    texts, parameters = _definitions(module, "fn")
    return "\n\n\n".join(dict.fromkeys(texts)), parameters


def _definitions(module: GraphModule, name: str) -> tuple[list[str], list[str]]:
    writer = _Writer(module, is_inner=name != "fn")
    nodes = list(module.graph.nodes)
    body = "\n".join(f"    {line}" for node in nodes for line in writer.lines(node))
    parameters = [writer.names[node.name] for node in nodes if node.op == "placeholder"]
    own = [operator_text(node.target) for node in nodes if is_custom(node.target)]
    kernels = kernel_definitions(module.graph)
    inner = [text for item in writer.inner.items() for text in _definitions(item[1], item[0])[0]]
    before = [*([kernels] if kernels else []), *own, *inner]
    return [*before, f"def {name}({', '.join(parameters)}):\n{body}"], parameters


def operator_text(target: Any) -> str:
    """Return the source of a custom operator, as the program defines it.

    Running the reproducer shows whether the operator depends on more of the program.
    """
    from torch._library.custom_ops import OPDEFS

    definition = OPDEFS.get(f"{target.namespace}::{target._opname}")
    parts = [getattr(definition, name, None) for name in ("_init_fn", "_abstract_fn")]
    try:
        texts = [textwrap.dedent(inspect.getsource(part)).strip() for part in parts if part]
    except (OSError, TypeError):
        texts = []
    if not texts or not texts[0].startswith("@"):
        raise ToolFailure(
            f"the graph calls {target}, a custom operator whose definition cannot be read"
        )
    return "\n\n\n".join(texts)


class _Writer:
    def __init__(self, module: GraphModule, *, is_inner: bool) -> None:
        self._module = module
        self._is_inner = is_inner
        self._kernels = {kernel_name(n) for n in module.graph.nodes if is_user_kernel(n)}
        self.names: dict[str, str] = {}
        self.inner: dict[str, GraphModule] = {}

    def lines(self, node: Node) -> list[str]:
        if node.op == "output":
            return [f"return {self._outputs(node)}"]
        self.names[node.name] = self._new_name(node)
        if node.op == "placeholder":
            return []
        graph = getattr(self._module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(graph, GraphModule):
            self.inner[self.names[node.name]] = graph
            return []
        if node.op not in ("call_function", "call_method"):
            raise ToolFailure(
                f"the graph calls {node.target}, which cannot be written as Python code"
            )
        return self._call(node)

    def _outputs(self, node: Node) -> str:
        outputs = node.args[0]
        if isinstance(outputs, (tuple, list)) and len(outputs) == 1 and not self._is_inner:
            return self._text(outputs[0])
        return self._text(outputs)

    def _new_name(self, node: Node) -> str:
        wanted = input_name(node.name) if node.op == "placeholder" else node.name
        if node.op == "get_attr":
            wanted = f"body_of_{wanted}"  # Dynamo uses the name itself for its own graphs.
        wanted = re.sub(r"\W|^(?=\d)", "_", wanted)
        if keyword.iskeyword(wanted) or wanted in _TAKEN:
            wanted += "_"
        taken = {*self.names.values(), *self._kernels}
        unique, number = wanted, 1
        while unique in taken:
            unique, number = f"{wanted}_{number}", number + 1
        return unique

    def _call(self, node: Node) -> list[str]:
        if is_user_kernel(node):
            return [kernel_call(node, self._text)]
        name = self.names[node.name]
        arguments = [self._text(argument) for argument in node.args]
        if node.target is operator.setitem:
            return [f"{arguments[0]}[{self._index(node.args[1])}] = {arguments[2]}"]
        if in_place := _form(node.target, inplace_methods):
            return [f"{name} = {arguments[0]}", in_place.format(name, arguments[1])]
        text = self._expression(node, arguments)
        return [f"{name} = {text}"] if node.users else [text]

    def _expression(self, node: Node, arguments: list[str]) -> str:
        target: Any = node.target
        if target is operator.getitem:
            return f"{arguments[0]}[{self._index(node.args[1])}]"
        if target is getattr:
            return f"{arguments[0]}.{node.args[1]}"
        if operation := _form(target, magic_methods):
            return operation.format(*map(_operand, arguments))
        named = [f"{key}={self._text(value)}" for key, value in node.kwargs.items()]
        if node.op == "call_method":
            return f"{arguments[0]}.{target}({', '.join([*arguments[1:], *named])})"
        return f"{qualified_name(target)}({', '.join([*arguments, *named])})"

    def _index(self, index: Any) -> str:
        if isinstance(index, tuple) and index:
            return ", ".join(self._index(item) for item in index) + ("," if len(index) == 1 else "")
        if isinstance(index, slice):
            ends = [index.start, index.stop, index.step]
            texts = ["" if end is None else self._text(end) for end in ends]
            return ":".join(texts[:2] if index.step is None else texts)
        return "..." if index is Ellipsis else self._text(index)

    def _text(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.names[value.name]
        if isinstance(value, (list, tuple)):
            inner = ", ".join(self._text(item) for item in value)
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, slice):
            ends = ", ".join(self._text(end) for end in (value.start, value.stop, value.step))
            return f"slice({ends})"
        return literal(value)


def _form(target: Any, forms: Mapping[str, str]) -> str | None:
    """Return how torch.fx writes a function of the operator module, such as '{} + {}'."""
    name = getattr(target, "__name__", "")
    return forms.get(name) if getattr(operator, name, None) is target else None


def _operand(text: str) -> str:
    """Parenthesize a negative number, because -2 ** x is -(2 ** x)."""
    return f"({text})" if text.startswith("-") else text


def qualified_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        is_cond = target.name() == "cond"
        return "torch.cond" if is_cond else f"torch.ops.higher_order.{target.name()}"
    name = str(_get_qualified_name(target))
    last = name.rpartition(".")[2]
    for owner, prefix in ((torch, "torch"), (torch.nn.functional, "torch.nn.functional")):
        if getattr(owner, last, None) is target:
            return f"{prefix}.{last}"
    if not name.startswith("torch."):
        raise ToolFailure(f"the graph calls {name}, which is not part of torch")
    return name


# --- Triton kernels that the user wrote, as text: their definitions, and calls of them ------------


def kernel_name(node: Node) -> str:
    """Return the name under which a script defines the kernel that a node calls."""
    return str(function_of(kernel_of(node)).__name__)


def kernel_definitions(graph: Graph) -> str:
    """Return the kernels that a graph calls, with dependencies; may raise `ToolFailure`."""
    kernels = {kernel_name(node): kernel_of(node) for node in graph.nodes if is_user_kernel(node)}
    if not kernels:
        return ""
    parts = SourceParts()
    for kernel in kernels.values():
        parts.add_kernel(function_of(kernel))
    return parts.text


def kernel_call(node: Node, text: Callable[[Any], str]) -> str:
    """Return the launch as the user would write it; `text` formats an argument."""
    if node.kwargs.get("tma_descriptor_metadata"):
        raise ToolFailure(f"the kernel {kernel_name(node)} gets TMA descriptors")
    given: Any = node.kwargs["kwargs"]
    arguments = {**given, **constants_of(node)}
    written = ", ".join(f"{name}={text(value)}" for name, value in arguments.items())
    return f"{kernel_name(node)}[{_grid(node, text)}]({written})"


def _grid(node: Node, text: Callable[[Any], str]) -> str:
    """Return the grid; an autotuned kernel has one for each of its configurations."""
    grids: Any = node.kwargs["grid"]
    texts = [text(tuple(grid)) for grid in grids]
    if len(set(texts)) == 1:
        return texts[0]
    choices: Sequence[Any] = getattr(kernel_of(node), "configs", ())
    if len(choices) != len(texts):
        raise ToolFailure(f"the kernel {kernel_name(node)} has grids that cannot be told apart")
    names = sorted(choices[0].kwargs)
    keys = [tuple(choice.kwargs[name] for name in names) for choice in choices]
    table = ", ".join(f"{key!r}: {grid}" for key, grid in zip(keys, texts, strict=True))
    chosen = ", ".join(f"meta[{name!r}]" for name in names)
    return f"lambda meta: {{{table}}}[({chosen},)]"
