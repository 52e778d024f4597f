"""A program that AOTInductor has compiled, as a graph whose calls can be checked."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.utils._pytree import tree_leaves, treespec_loads

from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.compare.graphs import snapshot
from inductoscope.inside.compare.values import copy_values
from inductoscope.inside.doctor.checked_graph import CheckedGraph
from inductoscope.inside.hooks.aot_inductor import compile_id_of
from inductoscope.inside.search.other_sizes import exported_sizes
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.stages import AOT_INDUCTOR

# Settings that torch adds to the user's.
_INTERNAL = (
    "aot_inductor.output_path",
    "aot_inductor.package",
    "aot_inductor.serialized_in_spec",
    "aot_inductor.serialized_out_spec",
    "cpp_wrapper",
)


@dataclass
class CompiledProgram:
    """A program compiled by AOTInductor: the graph, its weights, and the settings."""

    compile_id: str
    lifted: LiftedGraph
    settings: Mapping[str, Any]
    examples: tuple[Any, ...]
    instructions: Instructions
    folder: Path

    def new_graph(self) -> CheckedGraph:
        """Return a new checked graph of this program."""
        options = {name: value for name, value in self.settings.items() if name not in _INTERNAL}
        graph = CheckedGraph(
            self.lifted.module, self.compile_id, self.instructions, self.folder, options, None, ""
        )
        graph.flow = AOT_INDUCTOR
        graph.constants = frozenset(self.lifted.attributes)
        graph.marks = exported_sizes(self.lifted.module)
        graph.first = self.with_attributes(self.examples)
        if self.instructions.stop_at == self.compile_id:
            graph.to_investigate = self.instructions.failure
        return graph

    def with_attributes(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return the inputs of the lifted graph: those of a call, then the weights."""
        return (*inputs, *self.lifted.attributes.values())

    @property
    def structures(self) -> tuple[Any, Any]:
        """The tree specs of arguments and results; None where unknown."""
        texts = [self.settings.get(f"aot_inductor.serialized_{n}_spec") for n in ("in", "out")]
        given, returned = (treespec_loads(text) if text else None for text in texts)
        return given, returned


def compiled_program(
    module: GraphModule,
    examples: Sequence[Any],
    settings: Mapping[str, Any] | None,
    instructions: Instructions,
    folder: Path,
) -> CompiledProgram:
    """Describe a program that AOTInductor is about to compile."""
    copies = tuple(copy_values(list(examples)))
    compile_id, graph = compile_id_of(module), lifted(module)
    return CompiledProgram(compile_id, graph, dict(settings or {}), copies, instructions, folder)


def stop_if_asked(program: CompiledProgram) -> None:
    """Investigate here, if the compile itself hangs or kills the process."""
    wanted = program.instructions
    if wanted.stop_at != program.compile_id or wanted.failure is None:
        return
    if wanted.failure.stage != stages.RUNTIME:
        _investigate(program, program.new_graph())


def investigate_error(program: CompiledProgram, error: BaseException) -> None:
    graph = program.new_graph()
    graph.to_investigate = graph.failure_at_run(error)
    _investigate(program, graph)


def _investigate(program: CompiledProgram, graph: CheckedGraph) -> None:
    """Investigate the failure that `graph` holds back, on the inputs of the export."""
    with _outside_of_export():
        graph.check(program.with_attributes(program.examples))


@contextlib.contextmanager
def _outside_of_export() -> Iterator[None]:
    """Clear torch's flags inside the block, since an export marks all calls as traced."""
    before = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = False
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = before


# --- A graph whose tensors are all inputs: parameters, buffers and constants as well --------------
#
# Only inputs are compared, shrunk and written into scripts. An exported program keeps its weights
# as attributes instead.


@dataclass
class LiftedGraph:
    """A graph whose tensor attributes are inputs after its own inputs."""

    # The graph with all outputs, and with tensor outputs alone, which can be compared.
    whole: GraphModule
    module: GraphModule
    # The indices of the compared tensors among all outputs.
    compared: tuple[int, ...]
    # Values by the name of the new input, in order; and the program's names for them.
    attributes: dict[str, torch.Tensor]
    named: dict[str, str]
    # Whether the graph mutates its own attributes, so that every call depends on the last one.
    changes_itself: bool = False
    _versions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.note_values()

    def note_values(self) -> None:
        """Remember the versions of all attributes; a package does not see later changes."""
        self._versions = {name: value._version for name, value in self.attributes.items()}

    @property
    def changed_since(self) -> str:
        """An attribute that the program has changed since `note_values`; empty if there is none.

        The attributes are the model's own tensors, of which a package has a copy.
        """
        changed = (
            name
            for name, value in self.attributes.items()
            if value._version != self._versions[name]
        )
        return next((self.named[name] for name in changed), "")


def lifted(module: GraphModule) -> LiftedGraph:
    """Copy the graph with its tensor attributes as inputs."""
    graph, copies = Graph(), dict[Node, Node]()

    def copy(node: Node) -> None:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta = dict(node.meta)

    for node in module.graph.find_nodes(op="placeholder"):
        copy(node)
    inputs, attributes, named = _inputs_for_attributes(graph, module)
    for node in module.graph.nodes:
        if node.op == "get_attr" and str(node.target) in inputs:
            copies[node] = inputs[str(node.target)]
        elif node not in copies:
            copy(node)
    with _use_lazy_graph_module(False):
        whole = GraphModule(module, graph)
    # A package returns numbers as tensors, so numbers cannot be compared directly.
    compared = tuple(number for number, item in enumerate(_returned(whole)) if _is_tensor(item))
    returning = snapshot(whole)
    output = returning.graph.output_node()
    output.args = (tuple(_returned(returning)[place] for place in compared),)
    returning.recompile()
    is_written = any(_is_written(node, set()) for node in graph.nodes if node.name in attributes)
    return LiftedGraph(whole, returning, compared, attributes, named, is_written)


def _inputs_for_attributes(
    graph: Graph, module: GraphModule
) -> tuple[dict[str, Node], dict[str, torch.Tensor], dict[str, str]]:
    """Return new inputs by attribute, their values by name, and attributes by name."""
    inputs: dict[str, Node] = {}
    attributes, named = {}, {}
    for node in module.graph.find_nodes(op="get_attr"):
        target = str(node.target)
        value = operator.attrgetter(target)(module)
        if target in inputs or not isinstance(value, torch.Tensor):
            continue
        inputs[target] = graph.placeholder(target.replace(".", "_"))
        attributes[inputs[target].name] = value.detach()
        named[inputs[target].name] = target
    return inputs, attributes, named


def _returned(module: GraphModule) -> list[Any]:
    items = module.graph.output_node().args[0]
    return list(items) if isinstance(items, (tuple, list)) else [items]


def _is_tensor(item: Any) -> bool:
    value = item.meta.get("val") if isinstance(item, Node) else 0
    return value is None or isinstance(value, torch.Tensor)


# --- what it writes to ----------------------------------------------------------------------------


def _is_written(node: Node, seen: set[Node]) -> bool:
    """Check whether the graph writes to a tensor, or to a view of it."""
    if node in seen:
        return False
    seen.add(node)
    return any(
        _writes_to(user, node) or (_may_be_view(user) and _is_written(user, seen))
        for user in node.users
    )


def _writes_to(user: Node, node: Node) -> bool:
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    declared = user.target._schema.arguments
    given = {one.name: value for one, value in zip(declared, user.args, strict=False)}
    given |= user.kwargs
    return any(
        one.alias_info is not None
        and one.alias_info.is_write
        and node in tree_leaves(given.get(one.name))
        for one in declared
    )


def _may_be_view(user: Node) -> bool:
    """Check whether a result may share memory with an argument."""
    if not isinstance(user.target, torch._ops.OpOverload):
        return user.op != "output"  # getitem may return a view.
    returns: list[Any] = user.target._schema.returns
    return any(one.alias_info is not None for one in returns)
