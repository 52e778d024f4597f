"""Finds the stage of the compiler that makes a wrong result, and the nodes involved.

In the order of the stages: a pre-grad pass, AOTAutograd, a decomposition, a pass over the joint
graph or over the forward or backward graph, a kernel. The first one that changes the result is the
culprit; later ones only pass it on. One instrumented compile shows them all.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._python_dispatch import TorchDispatchMode

from inductoscope.doctor.failure import FEW_NODES, NAN, WRONG, Failure, Location
from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.bug_or_rounding import is_close, judge, strides_that_matter
from inductoscope.inside.compare.graphs import as_function, input_names, inputs_for, snapshot
from inductoscope.inside.compare.kernels import (
    KEPT_WRAPPERS,
    EnoughSeen,
    KernelDivergence,
    KernelWatch,
    WatchedGraph,
    planned_dtype,
)
from inductoscope.inside.compare.loop_bodies import CannotEvaluate, evaluate
from inductoscope.inside.compare.operators import first_false_declaration, first_wrong_decomposition
from inductoscope.inside.compare.passes import PassWatch, first_divergence
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import copy_values, is_plain, run
from inductoscope.inside.search.candidate import Candidate, is_operation
from inductoscope.inside.search.forks import ForkAnswer, Forks, Work, can_fork
from inductoscope.inside.search.oracle import (
    Oracle,
    compiled,
    compiled_ahead_of_time,
    compiling,
    examine,
    run_compiled,
)
from inductoscope.inside.search.placement import eager_values, placed
from inductoscope.inside.search.subgraph import RecordedGraph, record_values, subgraph
from inductoscope.recording.codec import decode
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in, innermost_users
from inductoscope.torch_facts.stages import AOT_INDUCTOR

# The candidate's nodes that nodes of one of the compiler's graphs come from.
InCandidate = Callable[[Iterable[Node]], tuple[str, ...]]


def locate_wrong_result(
    candidate: Candidate, forks: Forks, aspect: str, *, closely: bool = False
) -> Location:
    return first_place(forks.ask_all(places_to_look(candidate, aspect, closely=closely)))


def places_to_look(
    candidate: Candidate, aspect: str, *, closely: bool = False
) -> list[Callable[[], Location]]:
    """Return work for parallel forks; `first_place` reads their answers.

    `aspect` is the wrong property of the result: value, dtype, stride or sharing. `closely` also
    compiles each operation of a wrong kernel on its own.
    """
    return [
        lambda: _in_compile(placed(candidate), aspect, closely),
        work_on_decompositions(candidate, aspect),
        lambda: _before_inductor(placed(candidate), aspect),
        lambda: in_custom_operators(placed(candidate)),
    ]


def first_place(answers: Sequence[ForkAnswer]) -> Location:
    """Return the first stage to blame, from the answers to all of `places_to_look`."""
    in_compile, decomposed, before, declared = map(location_of_answer, answers)
    if declared.is_known:
        return declared
    if in_compile.stage == stages.PRE_GRAD_PASS:
        return in_compile
    if before.is_known:
        return before
    if decomposed.is_known:
        # The compile tells which nodes are involved.
        suspects = decomposed.suspects or in_compile.suspects
        return replace(decomposed, suspects=suspects, of_kernel=in_compile.of_kernel)
    return in_compile


def location_of_answer(answer: ForkAnswer) -> Location:
    """Decode a fork's location; an unknown one if the fork gave no result."""
    return decode(Location, answer.result) if answer.result else Location()


# --- before Inductor ------------------------------------------------------------------------------


def _before_inductor(candidate: Candidate, aspect: str) -> Location:
    """Check whether AOTAutograd alone, with eager's kernels, is wrong already."""
    text = wrong_with_backend(candidate, "aot_eager", aspect)
    if not text:
        return Location()
    return Location(stage=stages.AOT, text=text, how="already wrong with backend='aot_eager'")


def in_custom_operators(candidate: Candidate) -> Location:
    """Check whether a custom operator violates its declaration."""
    found = first_false_declaration(as_function(candidate.module), candidate.inputs)
    if found is None:
        return Location()
    how = "torch.library.opcheck failed on its actual arguments"
    return Location(stage=stages.USER, operation=found.operation, text=found.text, how=how)


def wrong_with_backend(candidate: Candidate, backend: str, aspect: str = "value") -> str:
    """Describe the candidate's wrong result with another backend; "" if it is right."""
    case = Case(as_function(candidate.module), candidate.inputs, candidate.backward)
    with compiling(candidate):
        outcome = run_compiled(candidate, compiled(candidate, backend))
        comparison = judge(case, outcome).counting([aspect])
    return comparison.wrong[0].text if comparison.wrong else ""


def work_on_decompositions(candidate: Candidate, aspect: str) -> Callable[[], Location]:
    """Return fork work that finds the first wrong decomposition without a compile."""
    return lambda: _in_decompositions(placed(candidate), aspect)


def _in_decompositions(candidate: Candidate, aspect: str) -> Location:
    running = _NodeByNode(candidate.module)
    with compiling(candidate):
        found = first_wrong_decomposition(
            lambda *inputs: running.run(*inputs, enable_io_processing=False),
            candidate.inputs,
            backward=candidate.backward,
            aspect=aspect,
            current_node=lambda: running.name,
        )
    if found is None or found.kind == "error":
        return Location()
    known = {node.name for node in candidate.operations}
    return Location(
        stage=stages.DECOMPOSITION,
        operation=found.operation,
        text=found.text,
        how="the operation and its decomposition were run on the same values",
        # Operations of the backward pass belong to no node.
        suspects=(found.node,) if found.node in known else (),
    )


class _NodeByNode(Interpreter):
    """An interpreter that exposes the name of the running node."""

    name = ""

    def run_node(self, n: Node) -> Any:
        self.name = n.name
        return super().run_node(n)


# --- in Inductor ----------------------------------------------------------------------------------


def _in_compile(candidate: Candidate, aspect: str, closely: bool) -> Location:
    """Compile with passes and kernels watched, run, and find the first difference."""
    passes, kernels, seen = PassWatch(), KernelWatch(), Retraced(candidate)
    with compiling(candidate), passes.watching(), kernels.watching():
        run_compiled(candidate, seen.compiled())
    known = {**seen.inputs, **kernels.known_inputs}
    found = first_divergence(passes, known, aspect)
    if found is not None:
        how = "the graph was run before and after each pass on the same inputs"
        return replace(found.location, how=how, suspects=seen.in_candidate(found.nodes))
    if kernels.divergences and aspect not in ("stride", "sharing"):
        found_in = kernels.divergences[0]
        place = location_at_kernel(found_in, seen.in_candidate)
        return _closer(place, candidate, found_in, seen.in_candidate) if closely else place
    for graph in kernels.graphs if aspect in ("dtype", "shape", "stride") else ():
        if (place := _at_declaration(graph)).is_known:
            return place
    if not any(graph.checked for graph in kernels.graphs):
        return Location(text="the compiled code did not report its buffers")
    text = "every buffer equals its node, but the outputs of the graph differ"
    return Location(text=text, graphs_are_right=True)


def _at_declaration(graph: WatchedGraph) -> Location:
    """Find the first node whose meta function and eager disagree on dtype or strides.

    Inductor relies on the meta function.
    """
    values = graph.expected.eager if graph.expected is not None else {}
    for node in graph.module.graph.nodes:
        meta: Any = node.meta.get("val")
        given: Any = values.get(node.name)
        if node.op != "call_function" or not isinstance(meta, torch.Tensor) or not is_plain(given):
            continue
        if meta.dtype == given.dtype and strides_that_matter(meta) == strides_that_matter(given):
            continue
        text = (
            f"the meta function of {node.target} says {meta.dtype} with strides "
            f"{tuple(meta.stride())}, eager gives {given.dtype} with strides {given.stride()}"
        )
        how = "each node was computed in eager and compared with its meta function"
        return Location(stage=stages.LOWERING, operation=str(node.target), text=text, how=how)
    return Location()


class Retraced:
    """The graph that a second capture of the candidate gives; its nodes have other names."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._nodes: list[Node] = []
        self.inputs: dict[str, Any] = {}

    def compiled(self) -> Callable[..., Any]:
        """Compile the candidate's graph through its flow, and keep inputs and nodes."""
        if self._candidate.flow == AOT_INDUCTOR:
            return compiled_ahead_of_time(self._candidate, self._keep_exported)
        return compiled(self._candidate, self._compile_graph)

    def _keep_exported(self, module: GraphModule, given: tuple[Any, ...]) -> None:
        self._keep_nodes(snapshot(module))
        self.inputs = dict(zip(input_names(module), copy_values(list(given)), strict=True))

    def _keep_nodes(self, module: GraphModule) -> None:
        self._nodes = [node for node in module.graph.nodes if is_operation(node)]

    def _compile_graph(self, module: Any, examples: Any) -> Any:
        """Compile with Inductor, as a backend of Dynamo."""
        from torch._inductor.compile_fx import compile_fx

        kept = snapshot(module)
        self._keep_nodes(kept)
        options = dict(self._candidate.options)
        function = compile_fx(module, examples, config_patches=options or None)

        def call(*arguments: Any) -> Any:
            for name, value in zip(input_names(kept), arguments, strict=False):
                is_tensor = isinstance(value, torch.Tensor)
                self.inputs[name] = value.detach().clone() if is_tensor else value
            return function(*arguments)

        return call

    def in_candidate(self, nodes: Iterable[Node]) -> tuple[str, ...]:
        """Map nodes of the compiler's graphs to the candidate's nodes."""
        own = self._candidate.operations
        if [node.target for node in own] != [node.target for node in self._nodes]:
            return ()
        names = _names_in_earlier_graphs(nodes)
        pairs = zip(own, self._nodes, strict=True)
        return tuple(mine.name for mine, other in pairs if other.name in names)


def location_at_kernel(found: KernelDivergence, in_candidate: InCandidate) -> Location:
    nodes = {node.name: node for node in found.graph.module.graph.nodes}
    # Nodes in graph order, which is the program's order.
    involved = [node for name, node in nodes.items() if name in found.origins]
    in_kernel = [node for name, node in nodes.items() if name in found.kernel_origins]
    origin = nodes.get(found.node)
    while origin is not None and origin.target is operator.getitem:
        origin = origin.args[0] if isinstance(origin.args[0], Node) else None
    is_known = found.graph.lowered is not None
    stage, how = lowering_or_codegen(found) if is_known else ("", "")
    return Location(
        stage=stage,
        operation="" if origin is None else str(origin.target),
        kernel=found.kernel,
        buffer=found.buffer,
        is_overwritten=found.is_overwritten,
        text=f"{found.text} (buffer {found.buffer} of kernel {found.kernel}, node {found.node})",
        how=how,
        suspects=in_candidate(involved),
        of_kernel=in_candidate(in_kernel),
        names=tuple(str(n.target) for n in involved if n.target is not operator.getitem),
    )


def _closer(
    place: Location, candidate: Candidate, found: KernelDivergence, in_candidate: InCandidate
) -> Location:
    """Add the operations of the kernel that are wrong on their own, if there are any."""
    wrong = _nodes_wrong_in_kernel(candidate, found)
    alone = tuple(dict.fromkeys(str(node.target) for node in wrong))
    return replace(place, wrong_alone=alone, suspects=in_candidate(wrong) or place.suspects)


# --- kernels of the program's own compiled graph --------------------------------------------------


def work_on_own_kernels(candidate: Candidate) -> Work | None:
    """Return work for a fork of the process that compiled the graph; None elsewhere."""
    function = KEPT_WRAPPERS.called
    if function is None or not can_fork():
        return None
    return lambda: first_wrong_own_kernel(candidate, function, closely=True)


def first_wrong_own_kernel(
    candidate: Candidate, function: Callable[..., Any], *, closely: bool = False
) -> Location:
    """In a fork, find the first kernel that differs from eager in one more call.

    The location is unknown if no kernel differs. Nothing is compiled, unless the wrapper is C++.
    `closely` also compiles each operation of a wrong kernel on its own.
    """
    found: list[tuple[Location, KernelDivergence]] = []
    own = {node.name for node in candidate.operations}

    def in_candidate(nodes: Iterable[Node]) -> tuple[str, ...]:
        return tuple(sorted(own & _names_in_earlier_graphs(nodes, first=True)))

    def keep(divergence: KernelDivergence) -> None:
        # The location is computed here because buffer contents are released afterwards.
        found.append((location_at_kernel(divergence, in_candidate), divergence))
        raise EnoughSeen

    with KernelWatch(on_divergence=keep).watching_loaded(KEPT_WRAPPERS.wrappers):
        try:
            run(function, candidate.inputs, backward=candidate.backward)
        except Exception:
            if not found:
                raise
    if not found:
        return Location()
    place, divergence = found[0]
    return _closer(place, candidate, divergence, in_candidate) if closely else place


# --- where nodes come from ------------------------------------------------------------------------


def _names_in_earlier_graphs(nodes: Iterable[Node], *, first: bool = False) -> set[str]:
    """Return the names of source nodes in earlier graphs; `first`, in Dynamo's."""
    nodes = list(nodes)
    sources: list[Any] = [each for node in nodes for each in node.meta.get("from_node") or ()]
    for source in sources:  # The list grows while it is iterated.
        sources.extend(getattr(source, "from_node", None) or ())
    if first:
        sources = [each for each in sources if not getattr(each, "from_node", None)]
    else:
        sources += nodes
    stacks = [node.meta.get("source_fn_stack") or () for node in nodes]
    of_dynamo = {str(source) for stack in stacks for source, _ in stack}
    return {str(getattr(each, "name", "")) for each in sources} | of_dynamo


def aten_operations(candidate: Candidate) -> list[str]:
    """Return the ATen operations that eager runs for the candidate, without views."""
    with contextlib.suppress(ToolFailure):
        found: list[str] = eager_values(candidate, _aten_operations)
        return found
    return []


def _aten_operations(candidate: Candidate) -> list[str]:
    seen: list[str] = []

    class Collect(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if not any(item.alias_info is not None for item in func._schema.returns):
                seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with contextlib.suppress(Exception):
        run(candidate.module, candidate.inputs, backward=False, mode=Collect())
    return list(dict.fromkeys(seen))


def source_lines(candidate: Candidate) -> list[str]:
    """Return the lines of the user's program that the candidate's nodes come from."""
    return places_of(candidate.operations)


def places_of(nodes: Iterable[Node]) -> list[str]:
    """Return the lines of the user's program that nodes come from."""
    found = []
    for node in nodes:
        frames = frames_in(str(node.meta.get("stack_trace") or ""))
        own = innermost_users(frames, lambda frame: frame.file)
        if own is not None:
            found.append(str(own))
    return list(dict.fromkeys(found))


# --- nodes that are wrong on their own ------------------------------------------------------------

_MOST_ALONE = 3


@dataclass(frozen=True)
class SeparateNodes:
    """Nodes side by side in one graph, so that rounding in one cannot reach another."""

    recorded: RecordedGraph
    candidate: Candidate

    def wrong_in(self, found: Failure | None) -> list[str]:
        """Return the nodes that are wrong on their own, from the failure of this graph."""
        if found is None or found.kind not in (WRONG, NAN):
            return []
        outputs = self.candidate.module.graph.output_node().args[0]
        places = [place.split() for place in found.where]
        wrong = [outputs[int(words[1])] for words in places if words[:1] == ["output"]]
        return [_owner(self.recorded, node.name) for node in wrong]


def separated(recorded: RecordedGraph, names: Sequence[str]) -> SeparateNodes | None:
    """Separate nodes, which then read the values that they read in eager; None if none is left."""
    apart = subgraph(recorded, names, separate=True)
    return None if apart is None else SeparateNodes(recorded, apart)


def nodes_wrong_alone(recorded: RecordedGraph, oracle: Oracle) -> list[list[str]]:
    """Return the nodes that are wrong on their own, each in a list."""
    apart = separated(recorded, recorded.names)
    wrong = apart.wrong_in(oracle.failure(apart.candidate)) if apart is not None else []
    return [[name] for name in wrong]


def worth_trying(candidate: Candidate, names: Sequence[str]) -> list[str]:
    """Return the first wrong node of each operation, and of these only the first few.

    Often all nodes of a wrong operation are wrong. The nodes were side by side in one graph: if the
    first few are right in graphs of their own, the failure probably takes several nodes.
    """
    first: dict[Any, str] = {}
    for node in candidate.operations:
        if node.name in names:
            first.setdefault(node.target, node.name)
    return [*first.values()][:_MOST_ALONE]


def _nodes_wrong_in_kernel(candidate: Candidate, found: KernelDivergence) -> list[Node]:
    """Return the nodes around a wrong buffer that are wrong on their own, in this process.

    The nodes are those of Inductor's graph, forward or backward, which has simpler operations than
    the program. In a large graph, only nodes that went into the buffer are tried.
    """
    graph = found.graph
    nodes = {node.name: node for node in graph.module.graph.nodes if is_operation(node)}
    tried = nodes.keys() if len(nodes) <= FEW_NODES else set(found.origins) & nodes.keys()
    if len({nodes[name].target for name in tried}) < 2:
        return []  # With one kind of operation, there is no choice.
    inputs = tuple(inputs_for(graph.module, graph.inputs))
    of_graph = replace(
        candidate, module=graph.module, inputs=inputs, backward=False, earlier=None, recipes=()
    )
    try:
        recorded = record_values(of_graph)
        apart = separated(recorded, [name for name in recorded.names if name in tried])
        wrong = apart.wrong_in(examine(apart.candidate)) if apart is not None else []
    except Exception:  # The nodes are only a hint.
        return []
    return [nodes[name] for name in wrong]


def _owner(recorded: RecordedGraph, name: str) -> str:
    """Return the node, or the one whose results it unpacks."""
    nodes = {node.name: node for node in recorded.candidate.module.graph.nodes}
    known = set(recorded.names)
    while name not in known and name in nodes and nodes[name].all_input_nodes:
        name = nodes[name].all_input_nodes[0].name
    return name


# --- lowering or codegen --------------------------------------------------------------------------


def lowering_or_codegen(found: KernelDivergence) -> tuple[str, str]:
    """Decide whether the loop body or only its generated code is wrong, and say how."""
    if found.is_overwritten:
        how = "after each kernel, every buffer that is read later was compared with what it held"
        return (stages.WRAPPER if found.shares_memory_with else ""), how
    how = "each buffer was compared with its node, computed in eager"
    value = found.graph.checked[found.buffer]
    if planned_dtype(found.graph, found.buffer, value) != value.dtype:
        return stages.LOWERING, f"{how}, and its type with that of the lowered graph"
    if found.kernel.startswith(("extern_kernels", "torch.ops", "aten.")):
        if _gets_other_inputs(found):
            return stages.LOWERING, f"{how}; eager's kernel gets other inputs than the node"
        return stages.RUNTIME, f"{how}; the kernel is one of eager's"
    if strides := _other_strides(found):
        return stages.WRAPPER, f"{how}; {strides}"
    expected = found.graph.expected
    eager = expected.eager.get(found.node) if expected is not None else None
    if isinstance(eager, torch.Tensor):
        values = [_loop_body_value(found, widened) for widened in (False, True)]
        known = [each for each in values if each is not None]
        if any(_agree(each, eager) for each in known):
            return stages.CODEGEN, f"{how}; its loop body, evaluated step by step, is right"
        if any(_agree(each, value) for each in known):
            return stages.LOWERING, f"{how}; its loop body, evaluated step by step, is wrong too"
    return "", f"{how}; its loop body could not be evaluated"


def _known_buffers(found: KernelDivergence) -> dict[str, Any]:
    graph = found.graph
    return {**graph.inputs, **graph.checked, **graph.lowered.constants}


def _gets_other_inputs(found: KernelDivergence) -> bool:
    """Check whether the lowered graph passes an extern kernel other values than the node reads."""
    nodes = {node.name: node for node in found.graph.module.graph.nodes}
    expected, buffer = found.graph.expected, found.graph.lowered.name_to_buffer[found.buffer]
    known = _known_buffers(found)
    if expected is None or found.node not in nodes:
        return False
    asked = [expected.eager.get(node.name) for node in nodes[found.node].all_input_nodes]
    try:
        given = [_laid_out(known[item.get_name()], item.get_layout()) for item in buffer.inputs]
    except (AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError):
        return False  # The inputs are unknown.
    pairs = [(one, two) for one, two in zip(asked, given, strict=False) if one is not None]
    is_whole = len(asked) == len(given) == len(pairs)
    return is_whole and any(one.shape != two.shape or not _agree(one, two) for one, two in pairs)


def _laid_out(value: torch.Tensor, layout: Any) -> torch.Tensor:
    """Return a buffer with the strides and offset that a kernel reads it with."""
    size, stride = ([int(item) for item in part] for part in (layout.size, layout.stride))
    return torch.as_strided(value, size, stride, int(layout.offset))


def _other_strides(found: KernelDivergence) -> str:
    """Describe how allocated strides differ from those of the lowered graph; "" if equal."""
    layout_of = found.graph.lowered.name_to_buffer[found.buffer].get_layout
    try:
        planned = tuple(int(step) for step in layout_of().stride)
        sizes = tuple(int(size) for size in layout_of().size)
    except (AttributeError, NotImplementedError, TypeError):
        return ""  # The buffer has no single layout, or symbolic sizes.
    made = found.graph.checked[found.buffer]
    steps = zip(sizes, planned, made.stride(), strict=False)
    if made.shape != sizes or all(one == two for size, one, two in steps if size > 1):
        return ""
    return f"its allocation has strides {made.stride()}, its layout says {planned}"


def _loop_body_value(found: KernelDivergence, widened: bool) -> torch.Tensor | None:
    """Evaluate the loop body that stores into the buffer; None if that fails."""
    from torch._inductor.scheduler import SchedulerNode

    values = _known_buffers(found)
    values.pop(found.buffer, None)
    sizes = _sizes(found.graph)
    with contextlib.suppress(CannotEvaluate):
        for node in found.graph.lowered.scheduler.nodes:
            for part in node.get_nodes() if _writes(node, found) else ():
                if isinstance(part, SchedulerNode):
                    values.update(evaluate(part, values, sizes, widened=widened))
        return values.get(found.buffer)
    return None


def _writes(node: Any, found: KernelDivergence) -> bool:
    """Check whether a node makes the buffer, or accumulates into it."""
    is_complete = found.buffer in found.graph.rewritten
    added_to = {name for output in node.get_outputs() for name in output.get_mutations()}
    return found.buffer in node.get_buffer_names() or (is_complete and found.buffer in added_to)


def _sizes(graph: WatchedGraph) -> Mapping[sympy.Symbol, int]:
    """Return the values of the dynamic-shape symbols in this call."""
    found: dict[sympy.Symbol, int] = {}
    for name, planned in graph.lowered.graph_inputs.items():
        given = graph.inputs.get(name)
        if isinstance(given, torch.Tensor) and hasattr(planned, "get_size"):
            sizes = zip(planned.get_size(), given.shape, strict=False)
            found.update({key: size for key, size in sizes if isinstance(key, sympy.Symbol)})
        elif isinstance(given, int) and isinstance(planned, sympy.Symbol):
            found[planned] = given
    return found


def _agree(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.numel() != two.numel():
        return False
    one = one.reshape(two.shape)
    if one.dtype.is_floating_point:
        return torch.allclose(one.double(), two.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
    return one.dtype == two.dtype and is_close(one, two)
