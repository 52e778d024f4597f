"""Extracts any part of a graph as a graph of its own, with real values as inputs at the cut.

The graph runs once in eager, and every value is kept as each user of the node saw it. Any set of
nodes then makes a candidate: values from outside the set become inputs. So no subset is invalid,
and most of the work is done before any search begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from inductoscope.inside.compare.values import (
    copy_values,
    is_plain,
    memory_of,
    same_generators,
    same_modes,
)
from inductoscope.inside.search.candidate import (
    Candidate,
    is_operation,
    is_unpacking,
    writes_in_place,
)
from inductoscope.inside.search.placement import eager_values

_WRITTEN_DOWN = (
    *(bool, int, float, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout),
)


@dataclass
class RecordedGraph:
    candidate: Candidate
    # The value of a node as a user saw it, {(user, node): value}, and right after the node ran.
    seen: dict[tuple[str, str], Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    # The recorded values of an earlier call that the failure needs.
    earlier: RecordedGraph | None = None
    # The node that raises in eager, if the candidate is about that: it is the last that runs.
    raising: str = ""

    @property
    def names(self) -> list[str]:
        """The nodes that can be kept or removed, in order."""
        names = [node.name for node in self.candidate.operations if not is_unpacking(node)]
        return names[: names.index(self.raising) + 1] if self.raising else names


def record_values(candidate: Candidate) -> RecordedGraph:
    """Run the candidate's graph in eager and record every value in main memory."""
    recorded = _in_this_process_or_a_fork(candidate)
    if candidate.earlier is not None:
        before = replace(candidate, inputs=candidate.earlier)
        recorded.earlier = _in_this_process_or_a_fork(before)
    return recorded


def _in_this_process_or_a_fork(candidate: Candidate) -> RecordedGraph:
    if not candidate.device:
        return _record(candidate)
    seen, made, on_cpu, raising = eager_values(candidate, _in_main_memory)
    there = replace(candidate, on_cpu=candidate.on_cpu | on_cpu)
    return RecordedGraph(there, seen, made, raising=raising)


def record_values_of(
    candidate: Candidate, names: Collection[str], inputs: Sequence[Any], written: Collection[int]
) -> RecordedGraph:
    """Run the graph in eager on inputs that may be large, and record what these nodes read.

    It runs no further than to the last of these nodes.
    `written` are the inputs that the graph writes to; what is read of the others is not copied.
    """
    recorded = RecordedGraph(candidate)
    read_only = [v for n, v in enumerate(inputs) if n not in written]
    memories = {memory_of(value) for value in read_only if isinstance(value, torch.Tensor)}
    recorder = _ValueRecorder(candidate.module, recorded, frozenset(names), memories)
    with torch.no_grad(), same_generators(), same_modes(), contextlib.suppress(_AllRecorded):
        recorder.run(*inputs, enable_io_processing=False)
    return recorded


def _record(candidate: Candidate) -> RecordedGraph:
    recorded = RecordedGraph(candidate)
    inputs = copy_values(candidate.inputs)
    recorder = _ValueRecorder(candidate.module, recorded)
    with torch.set_grad_enabled(candidate.backward), same_modes():
        try:
            recorder.run(*inputs)
        except Exception:
            if not candidate.eager_raises:
                raise
            recorded.raising = recorder.running
    return recorded


def _in_main_memory(candidate: Candidate) -> tuple[Any, Any, frozenset[str], str]:
    """In a fork with a GPU, return all values on the CPU, the nodes there, and one that raises."""
    recorded = _record(candidate)
    leaves = tree_leaves((list(recorded.seen.values()), list(recorded.made.values())))
    unique = list({id(v): v for v in leaves if isinstance(v, torch.Tensor)}.values())
    moved = dict(zip(map(id, unique), copy_values(unique, device="cpu"), strict=True))

    def move(value: Any) -> Any:
        return moved.get(id(value), value)

    tensors = {k: v for k, v in recorded.made.items() if isinstance(v, torch.Tensor)}
    here = frozenset(name for name, value in tensors.items() if value.device.type == "cpu")
    seen = {key: tree_map(move, value) for key, value in recorded.seen.items()}
    moved_made = {key: tree_map(move, value) for key, value in recorded.made.items()}
    return seen, moved_made, here, recorded.raising


class _AllRecorded(Exception):
    """Raised when the values of all wanted nodes are recorded."""


class _ValueRecorder(Interpreter):
    """An interpreter that copies a tensor for every version of it that a node reads."""

    def __init__(
        self,
        module: GraphModule,
        recorded: RecordedGraph,
        wanted: Collection[str] | None = None,
        shared: Collection[Any] = (),
    ) -> None:
        """Record what the wanted nodes read and make, or all do; shared memory is not copied."""
        super().__init__(module)
        self._recorded = recorded
        self._wanted = wanted
        self._shared = shared
        self._copies: dict[tuple[str, int], Any] = {}
        of_wanted = [node.name for node in module.graph.nodes if self._is_wanted(node)]
        self._last = of_wanted[-1] if wanted is not None and of_wanted else ""
        self.running = ""

    def _is_wanted(self, node: Node) -> bool:
        wanted = self._wanted
        return wanted is None or node.name in wanted or _unpacks(node, wanted)

    def run_node(self, n: Node) -> Any:
        self.running, is_wanted = n.name, self._is_wanted(n)
        for argument in n.all_input_nodes if is_wanted else ():
            if n.op != "output":
                value = self._kept(argument.name, self.env[argument])
                self._recorded.seen[n.name, argument.name] = value
        value = super().run_node(n)
        if is_wanted:
            self._recorded.made[n.name] = self._kept(n.name, value)
        if n.name == self._last:
            raise _AllRecorded
        return value

    def _kept(self, name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        key = (name, value._version if is_plain(value) else 0)
        if key not in self._copies:
            is_shared = memory_of(value) in self._shared
            self._copies[key] = value if is_shared else copy_values([value])[0]
        return self._copies[key]


def _unpacks(node: Node, names: Collection[str]) -> bool:
    return is_unpacking(node) and any(read.name in names for read in node.all_input_nodes)


def subgraph(
    recorded: RecordedGraph, keep: Collection[str], *, separate: bool = False
) -> Candidate | None:
    """Build a candidate of the nodes in `keep`; None if no node is left.

    With `separate`, every node stands alone: it reads only inputs, and is an output.
    """
    return _Subgraph(recorded, keep, separate).candidate()


class _Subgraph:
    def __init__(self, recorded: RecordedGraph, keep: Collection[str], separate: bool) -> None:
        self._recorded = recorded
        self._keep = set(keep)
        self._separate = separate
        self._graph = Graph()
        self._new: dict[str, Node] = {}
        # Each input, with its value in the earlier call.
        self._inputs: dict[str, tuple[Any, Any]] = {}
        self._placeholders: dict[tuple[str, int], Node] = {}
        self._last_placeholder: Node | None = None
        self._source = recorded.candidate.module

    def candidate(self) -> Candidate | None:
        copied = [node for node in self._source.graph.nodes if self._copy(node)]
        if not copied:
            return None
        outputs = self._outputs(copied)
        if not outputs:
            return None
        self._graph.output(tuple(self._new[node.name] for node in outputs))
        self._drop_unused_inputs()
        self._graph.lint()
        given = self._inputs.values()
        return replace(
            self._recorded.candidate,
            module=GraphModule(self._source, self._graph),
            inputs=tuple(value for value, _ in given),
            earlier=tuple(before for _, before in given) if self._recorded.earlier else None,
            recipes=(),
            earlier_recipes=(),
        )

    def _drop_unused_inputs(self) -> None:
        """Remove inputs that were created for a node that could not be copied."""
        for node in [n for n in self._graph.nodes if n.op == "placeholder" and not n.users]:
            self._inputs.pop(node.name)
            self._graph.erase_node(node)

    def _copy(self, node: Node) -> bool:
        """Copy a node if it is kept and everything it reads is available."""
        wanted = node.name in self._keep
        if is_unpacking(node):
            source = node.args[0]
            wanted = isinstance(source, Node) and source.name in self._new
        if not wanted or not is_operation(node):
            return False
        try:
            arguments = map_arg((node.args, node.kwargs), lambda item: self._argument(node, item))
        except _CannotCut:
            return False
        copy = self._graph.create_node(
            node.op, node.target, arguments[0], arguments[1], name=node.name
        )
        copy.meta = dict(node.meta)
        self._new[node.name] = copy
        return True

    def _argument(self, user: Node, node: Node) -> Any:
        if node.name in self._new and not (self._separate and not is_unpacking(user)):
            return self._new[node.name]
        if node.op == "get_attr" and not isinstance(self._value(user, node), torch.Tensor):
            return self._at_front(lambda: self._graph.get_attr(str(node.target)))
        value = self._value(user, node)
        before = self._earlier_value(user, node)
        if isinstance(value, int) and (node.op == "placeholder" or before not in (None, value)):
            return self._placeholder(node.name, value, before)  # A size that may be dynamic.
        if isinstance(value, torch.Tensor):
            name = f"{user.name}_{node.name}" if self._separate else node.name
            return self._placeholder(name, value, before)
        if before is not None and _literal(before) != _literal(value):
            raise _CannotCut  # No literal is right for both calls.
        return _literal(value)

    def _value(self, user: Node, node: Node) -> Any:
        try:
            return self._recorded.seen[user.name, node.name]
        except KeyError:
            raise _CannotCut from None

    def _earlier_value(self, user: Node, node: Node) -> Any:
        earlier = self._recorded.earlier
        return None if earlier is None else earlier.seen.get((user.name, node.name))

    def _placeholder(self, name: str, value: Any, before: Any) -> Node:
        # A node that is mutated is one input before that and another one after it.
        known = self._placeholders.get((name, id(value)))
        if known is not None:
            return known
        unique = f"{name}_{len(self._inputs)}" if name in self._inputs else name
        new = self._at_front(lambda: self._graph.placeholder(unique))
        self._placeholders[name, id(value)] = new
        self._inputs[new.name] = _as_input(value), _as_input(before)
        return new

    def _at_front(self, make: Any) -> Node:
        """Insert an input before all other nodes, after the inputs created so far."""
        last, graph = self._last_placeholder, self._graph
        with graph.inserting_before() if last is None else graph.inserting_after(last):
            new: Node = make()
        self._last_placeholder = new
        return new

    def _outputs(self, copied: list[Node]) -> list[Node]:
        """Return copied nodes that are unused, were outputs, or are mutated and not read again."""
        before = {leaf.name for leaf in self._source.graph.output_node().all_input_nodes}
        found = []
        for node in copied:
            used = any(user.name in self._new for user in node.users) and not self._separate
            is_tensor = isinstance(self._recorded.made.get(node.name), torch.Tensor)
            is_last = node.name == self._recorded.raising
            if is_last or (is_tensor and (not used or node.name in before)):
                found.append(node)
        return found + [node for node in copied if node not in found and self._is_lost(node)]

    def _is_lost(self, node: Node) -> bool:
        """Check whether a node is mutated and no kept node reads it afterwards."""
        readers = [user for user in node.users if user.name in self._new]
        last = readers[-1] if readers else None
        return last is not None and writes_in_place(last) and last.args[:1] == (node,)


class _CannotCut(Exception):
    """Raised if a value at the cut is neither a tensor nor a literal."""


def _literal(value: Any) -> Any:
    if isinstance(value, (tuple, list, torch.Size)) and not hasattr(value, "_fields"):
        return type(value)(_literal(item) for item in value)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.hint
    if isinstance(value, _WRITTEN_DOWN):
        return value
    raise _CannotCut


def _as_input(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if is_plain(value) else value
