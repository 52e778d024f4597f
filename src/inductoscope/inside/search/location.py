"""Locates a failure: the stage of the compiler, the pass or kernel, and the nodes to blame.

A wrong result is looked for in the order of the stages: a pre-grad pass, AOTAutograd, a
decomposition, a pass over the joint graph or over the forward or backward graph, a kernel. The
first one that changes the result is the culprit; later ones only pass it on. One instrumented
compile shows them all.

The stage of an exception is told by its traceback. A kernel that fails at run time need not be the
guilty one: it may read a buffer that an earlier kernel has computed wrongly, or overwritten. So
every kernel's buffers are compared with eager until the first one differs. If none does, the kernel
that does not return has read only right values.

The first look at a wrong result asks everything at once and reports the location as soon as it is
known, because the user waits for it. Later, in the smallest graph, everything is examined closely,
including memory.
"""

from __future__ import annotations

import contextlib
import linecache
import operator
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._python_dispatch import TorchDispatchMode

from inductoscope.doctor.failure import (
    ERROR,
    FEW_NODES,
    HANG,
    LOST_CHECK,
    NAN,
    SIGNAL,
    WRONG,
    Failure,
    Location,
)
from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.bug_or_rounding import is_close, judge, strides_that_matter
from inductoscope.inside.compare.graphs import (
    ValuesInStep,
    as_function,
    input_names,
    inputs_for,
    snapshot,
)
from inductoscope.inside.compare.kernels import (
    KEPT_WRAPPERS,
    EnoughSeen,
    KernelDivergence,
    KernelWatch,
    WatchedGraph,
    planned_dtype,
)
from inductoscope.inside.compare.loop_bodies import CannotEvaluate, evaluate
from inductoscope.inside.compare.operators import (
    first_false_declaration,
    first_wrong_decomposition,
    raising_operation,
)
from inductoscope.inside.compare.passes import (
    PassWatch,
    first_break,
    first_divergence,
    first_false_metadata,
    first_lost_check,
)
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import copy_values, is_plain, run
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate, has_transforms, is_operation
from inductoscope.inside.search.forks import ForkAnswer, Forks, PipeWriter, Work, can_fork
from inductoscope.inside.search.memory_evidence import MemoryEvidence, evidence_of, memory_work
from inductoscope.inside.search.oracle import (
    EagerFails,
    Oracle,
    compiled,
    compiled_ahead_of_time,
    compiling,
    ending_of_compiled,
    examine,
    no_further_than,
    run_compiled,
)
from inductoscope.inside.search.placement import eager_values, placed
from inductoscope.inside.search.subgraph import RecordedGraph, record_values, subgraph
from inductoscope.recording.codec import decode
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in, innermost_users
from inductoscope.torch_facts.messages import device_error
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
        ending = ending_of_compiled(candidate, compiled(candidate, backend))
        comparison = judge(case, ending).counting([aspect])
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
    if not any(graph.reported for graph in kernels.graphs):
        return Location(text="the compiled code did not report its buffers")
    text = "every buffer equals its node, but the outputs of the graph differ"
    return Location(text=text, graphs_are_right=True)


def _at_declaration(graph: WatchedGraph) -> Location:
    """Find the first node whose meta function and eager disagree on dtype or strides.

    Inductor relies on the meta function.
    """
    for node in graph.module.graph.nodes:
        meta: Any = node.meta.get("val")
        given: Any = None if graph.expected is None else graph.expected.value(node.name)
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
    candidate: Candidate,
    function: Callable[..., Any],
    *,
    closely: bool = False,
    lent: Callable[[], list[Any]] | None = None,
) -> Location:
    """In a fork, find the first kernel that differs from eager in one more call.

    The location is unknown if no kernel differs. Nothing is compiled, unless the wrapper is C++.
    `closely` also compiles each operation of a wrong kernel on its own. If all values of the graph
    may not fit into memory, `lent` gives inputs that the call may write to.
    """
    found: list[tuple[Location, KernelDivergence]] = []
    own = {node.name for node in candidate.operations}

    def in_candidate(nodes: Iterable[Node]) -> tuple[str, ...]:
        return tuple(sorted(own & _names_in_earlier_graphs(nodes, first=True)))

    def keep(divergence: KernelDivergence) -> None:
        # The location is computed here because buffer contents are released afterwards.
        found.append((location_at_kernel(divergence, in_candidate), divergence))
        raise EnoughSeen

    watch = KernelWatch(on_divergence=keep, in_step=lent is not None)
    with watch.watching_loaded(KEPT_WRAPPERS.wrappers):
        try:
            copy = copy_values if lent is None else lambda _: lent()
            run(function, candidate.inputs, backward=candidate.backward, copy=copy)
        except Exception:
            if not found:
                raise
        in_step = [g.expected for g in watch.graphs if isinstance(g.expected, ValuesInStep)]
        like_equal = sum(expected.explained for expected in in_step)
    if not found:
        return Location(right_kernels=watch.compared, like_equal_kernel=like_equal)
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
    eager = expected.value(found.node) if expected is not None else None
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
    asked = [expected.value(node.name) for node in nodes[found.node].all_input_nodes]
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


# --- exceptions -----------------------------------------------------------------------------------

_IN_BENCHMARK = (
    "Inductor called it only to time it, on inputs that it made up, whose integers are all zero: "
    "the benchmark is at fault, not what the program calls it with. For an operator of your own, "
    "register_custom_op_autotuning takes input_gen_fns that make inputs it accepts"
)
_KERNEL_CALL = re.compile(r"\s*(?:\w+ = )?((?:cpp_|triton_|extern_kernels\.|torch\.ops\.)[\w.]+)\(")


def locate_error(candidate: Candidate, failure: Failure, forks: Forks) -> Location:
    if failure.eager_error:
        lost = locate_lost_check(candidate, failure, forks)
        if lost.is_known or failure.kind == LOST_CHECK:
            return lost
    declared = location_of_answer(forks.ask(lambda: in_custom_operators(placed(candidate))))
    if declared.is_known:
        return declared
    if failure.kind in (ERROR, SIGNAL) and failure.stage != stages.DYNAMO:
        broken = location_of_answer(forks.ask(lambda: _in_passes(candidate)))
        if broken.is_known:
            return replace(broken, function=failure.function)
    is_on_device = bool(device_error(f"CUDA error: {failure.aspect}"))
    if is_on_device or failure.stage == stages.RUNTIME:
        return _at_run(candidate, failure, forks, is_on_device=is_on_device)
    return _in_compiler(candidate, failure, forks)


def _at_run(
    candidate: Candidate, failure: Failure, forks: Forks, *, is_on_device: bool
) -> Location:
    """Locate the kernel or the code that was running when a compiled graph failed."""
    place = Location(stage=failure.stage, kernel=failure.function, text=failure.text)
    if failure.kind == HANG:
        return replace(place, how="launched last, and did not return")
    at_kernel = _at_kernel(candidate, failure, forks)
    if at_kernel.kernel:
        return at_kernel
    if is_on_device:
        kernel = kernel_called_from(failure.functions)[1] or failure.function
        return replace(place, kernel=kernel, how=_how_launched(failure.functions))
    if failure.kind == ERROR:
        stage, how, kernel = _raised_at_run(failure.functions)
        return replace(place, stage=stage, how=how, kernel=kernel, function=failure.function)
    return replace(place, how="the last kernel entered")


def _in_compiler(candidate: Candidate, failure: Failure, forks: Forks) -> Location:
    """Locate the stage of the compiler; AOTAutograd only if it fails without Inductor too."""
    place = Location(stage=failure.stage, function=failure.function, text=failure.text)
    functions = failure.functions
    if any(name.startswith("_load_triton_kernel") for name in functions):
        how = "the generated Triton code cannot even be loaded"
        return replace(place, stage=stages.TRITON_COMPILE, how=how)
    if place.stage == stages.AUTOTUNE and failure.kind == ERROR and is_benchmark(functions):
        return replace(place, how=_IN_BENCHMARK)
    if place.stage == stages.TRITON_COMPILE and failure.detail.startswith("triton_"):
        return replace(place, kernel=failure.detail)
    if place.stage != stages.AOT:
        return place
    answer = forks.ask(lambda: wrong_with_backend(placed(candidate), "aot_eager"))
    if answer.is_done and not answer.result:
        how = "the same graph compiles with backend='aot_eager', without decompositions"
        return replace(place, stage=stages.DECOMPOSITION, how=how)
    return replace(place, how="it fails with backend='aot_eager' too")


def is_benchmark(functions: Sequence[str]) -> bool:
    """Check whether the error was raised while Inductor benchmarked choices."""
    timing = ("benchmark_choice (", "benchmark_choices (")
    return any(name.startswith(timing) for name in functions)


def _how_launched(functions: Sequence[str]) -> str:
    how = "its launch raised the error; every launch was synchronous"
    if any(name.startswith("generate_and_run_autotune_block") for name in functions):
        return f"{how}. Inductor launched it while compiling, on inputs that it made up"
    return how


def _raised_at_run(functions: Sequence[str]) -> tuple[str, str, str]:
    """Return stage, explanation and kernel of a runtime error, by the innermost known function."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    if functions and f"({cache_dir()}" in functions[0]:
        kernel = kernel_called_from(functions[:1])[1]
        if kernel:
            return stages.RUNTIME, "raised by the kernel, or by its launch", kernel
        return stages.WRAPPER, "raised by the wrapper that Inductor generated", ""
    for name in functions:
        if "torch/_inductor/" in name or "torch/_ops.py" in name:
            break
        if "torch/_functorch/" in name:
            return stages.AOT, "raised by AOTAutograd's code around the compiled graph", ""
    return stages.RUNTIME, "", ""


def kernel_called_from(functions: Sequence[str]) -> tuple[str, str]:
    """Return the generated wrapper that an error passed through, and the kernel it had called."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    for place in functions:
        path, _, number = place.rpartition("(")[2].rstrip(")").rpartition(":")
        if path.startswith(cache_dir()) and number.isdigit():
            lines = linecache.getlines(path)[: int(number)]
            found = _KERNEL_CALL.match(lines[-1]) if lines else None
            return path, found[1].removesuffix(".run") if found else ""
    return "", ""


# --- an error that eager raises and compiled code does not ----------------------------------------


def locate_lost_check(candidate: Candidate, failure: Failure, forks: Forks) -> Location:
    """Find the first level of the compiler at which the error of eager is missing."""
    works: list[Work] = [lambda: _in_one_thread(placed(candidate), failure)]
    if failure.kind == LOST_CHECK:
        works = [
            lambda: _lost_before_inductor(placed(candidate)),
            work_on_decompositions(candidate, LOST_CHECK),
            lambda: _lost_in_inductor(placed(candidate), failure),
        ]
    every = [location_of_answer(answer) for answer in forks.ask_all(works)]
    return next((each for each in every if each.is_known), Location())


def _lost_before_inductor(candidate: Candidate) -> Location:
    text = wrong_with_backend(candidate, "aot_eager", LOST_CHECK)
    if not text:
        return Location()
    how = "already so with backend='aot_eager'"
    return Location(stage=stages.AOT, operation=_that_raises(candidate), text=text, how=how)


def _lost_in_inductor(candidate: Candidate, failure: Failure) -> Location:
    """Find the pass after which the graph does not raise, or whether it is lost before or after."""
    from torch._inductor.compile_fx import compile_fx

    passes, inputs = PassWatch(), list[Any]()

    def backend(module: GraphModule, examples: Any) -> Callable[..., Any]:
        kept = snapshot(module)

        def call(*arguments: Any) -> Any:
            # Compiled only now that the values are known, and not run: it may kill this process.
            inputs.extend(copy_values(arguments))
            with passes.watching(), no_further_than(stages.LOWERING):
                return compile_fx(kept, list(arguments))

        return call

    with compiling(candidate), contextlib.suppress(Exception):
        run_compiled(candidate, compiled(candidate, backend))
    kind = failure.eager_error.partition(":")[0]
    found, still_raises = first_lost_check(passes, inputs, kind)
    how = "the graph was run in eager before and after each pass"
    if found is not None:
        return replace(found.location, how=how)
    # Code that raises another error has a check; code that returns has none.
    stage = stages.CODEGEN if failure.aspect else stages.LOWERING
    text = "the decomposed graph still raises after the last pass"
    if still_raises is None:
        text = how = ""
    elif not still_raises:
        stage = stages.DECOMPOSITION
        text = f"the decomposed graph does not raise {kind}, before any pass"
    operation = _that_raises(candidate)
    return Location(stage=stage, operation=operation, text=text, how=how)


def _in_one_thread(candidate: Candidate, failure: Failure) -> Location:
    """In a fork, check whether a kernel that kills the process raises an error in one thread."""
    torch.set_num_threads(1)  # Inductor then generates loops that are not parallel.
    alone = examine(candidate)
    if alone is not None and not alone.message:
        return Location()
    said = alone.message if alone else failure.eager_error  # The same error as eager's.
    how = (
        "the same graph after torch.set_num_threads(1): no exception can leave a loop that OpenMP "
        "runs in parallel"
    )
    return Location(
        stage=stages.CODEGEN,
        operation=_that_raises(candidate),
        kernel=failure.function,
        text=f"in one thread, the kernel raises {said}",
        how=how,
    )


def _that_raises(candidate: Candidate) -> str:
    return raising_operation(as_function(candidate.module), candidate.inputs)


# --- passes that leave a broken graph -------------------------------------------------------------


def _in_passes(candidate: Candidate) -> Location:
    """In a fork, find a pass that leaves a graph that cannot run, or one with false metadata.

    Code that then raises, in a later pass, in lowering or in a kernel, is not to blame.
    """
    candidate = placed(candidate)
    passes, seen = PassWatch(), Retraced(candidate)
    # The backward graph is compiled when the forward one has run.
    end = contextlib.nullcontext() if candidate.backward else no_further_than(stages.LOWERING)
    with compiling(candidate), passes.watching(), end, contextlib.suppress(Exception):
        run_compiled(candidate, seen.compiled())
    found = first_break(passes, seen.inputs)
    if found is not None:
        how = "the graph was run in eager before and after each pass"
        return replace(found.location, how=how)
    found = first_false_metadata(passes, seen.inputs)
    if found is None:
        return Location()
    how = (
        "after each pass, every node was compared with its metadata; without this pass, nothing "
        "fails"
    )
    place = replace(found.location, how=how)
    return place if _is_well_without(candidate, place.pass_name) else Location()


def _is_well_without(candidate: Candidate, pass_name: str) -> bool:
    if not pass_name.isidentifier():
        return False  # torch can only disable a pass that has a name.
    settings = {**candidate.config, "disabled_passes": pass_name}
    try:
        return examine(replace(candidate, config=settings)) is None
    except EagerFails:
        return False


# --- the first wrong kernel -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Watched:
    """The findings of one call of the graph: the kernel with wrong numbers, if any."""

    location: Location
    # The last kernel that has returned, and what was raised.
    returned: str
    raised: str


def guilty_in_program(candidate: Candidate, forks: Forks) -> Location:
    """Find the first wrong kernel, unless a custom operator violates its declaration."""
    declared = location_of_answer(forks.ask(lambda: in_custom_operators(placed(candidate))))
    if declared.is_known:
        return declared
    return wrong_kernel_in(forks.ask(kernel_work(candidate)))


def kernel_work(candidate: Candidate) -> Work:
    """Return fork work that finds the first kernel that differs from eager, or that
    fails on right values; `wrong_kernel_in` reads the answer."""
    return lambda: _watched(candidate)


def wrong_kernel_in(answer: ForkAnswer) -> Location:
    """Return the kernel that a fork found, died in or hung in; without a name if there is none."""
    watched = decode(_Watched, answer.result) if answer.result else None
    if watched is not None and watched.location.kernel:
        return watched.location
    return _that_fails(answer, watched)


def _at_kernel(candidate: Candidate, failure: Failure, forks: Forks) -> Location:
    """Find the first wrong kernel, which need not be the one that fails."""
    found = wrong_kernel_in(forks.ask(kernel_work(candidate)))
    wrapper, called = kernel_called_from(failure.functions)
    if found.buffer:  # The kernel computes wrong numbers.
        fails = called or (failure.function if failure.kind == SIGNAL else "")
        text = f"{found.text}; {fails or 'what reads it'} then fails"
        return replace(found, stage=found.stage or failure.stage, text=text)
    if failure.kind == ERROR and wrapper:
        return Location()  # The stack trace shows what raised in a Python wrapper.
    return replace(found, stage=failure.stage, text=failure.text) if found.kernel else found


def _watched(candidate: Candidate) -> _Watched:
    """In a fork, call the graph until a kernel is wrong or raises."""
    candidate = placed(candidate)
    seen, found = Retraced(candidate), Location()
    returned: list[str] = []

    def keep(divergence: KernelDivergence) -> None:
        nonlocal found
        found = location_at_kernel(divergence, seen.in_candidate)
        raise EnoughSeen  # The next kernel may kill this process or its CUDA context.

    def tell_nodes(graph: WatchedGraph, buffers: dict[str, list[str]]) -> None:
        """Send the nodes of each kernel to the parent, in case this process dies."""
        every = graph.module.graph.nodes
        of_kernels = {
            kernel: seen.in_candidate([n for n in every if n.name in graph.nodes_in(names)])
            for kernel, names in buffers.items()
        }
        if isinstance(SCOPE.writer, PipeWriter):
            SCOPE.writer.note(kernels=of_kernels)

    watch = KernelWatch(on_divergence=keep, on_kernel=returned.append, on_graph=tell_nodes)
    raised = ""
    with compiling(candidate), watch.watching():
        try:
            run_compiled(candidate, seen.compiled())
        except Exception as error:
            raised = type(error).__name__
    return _Watched(found, returned[-1] if returned else "", raised)


def _that_fails(answer: ForkAnswer, watched: _Watched | None) -> Location:
    """Return the launched kernel that did not return; an empty location if all returned."""
    if not answer.launches or answer.last_stage is not None:
        return Location()
    kernel = answer.launches[-1][0]
    how = "the last kernel launched; no buffer that could be compared before it differs from eager"
    nodes: dict[str, list[str]] = {}
    for note in answer.notes:
        nodes.update(note.get("kernels") or {})
    suspects = tuple(nodes.get(kernel, ()))
    place = Location(stage=stages.RUNTIME, kernel=kernel, how=how, suspects=suspects)
    if answer.timed_out:
        return replace(place, text=f"kernel {kernel} did not return")
    if answer.signal is not None:
        name = signal_name(answer.signal)
        return replace(place, text=f"the process died of {name} in kernel {kernel}")
    if watched is not None and watched.raised and watched.returned != kernel:
        return replace(place, text=f"kernel {kernel} raised {watched.raised}")
    return Location()


# --- the first look, and the close one ------------------------------------------------------------

OnPlace = Callable[[Failure, Location], None]
_Items = dict[str, "Candidate | Work"]

_ITSELF, _OWN_KERNELS, _NODES_APART, _MEMORY = "itself", "own kernels", "nodes apart", "memory"
_PLACES = ("a compile", "what is decomposed", "before Inductor", "custom operators")
_OF_VALUES = ("value", "nan")
# Compiling a larger graph takes longer than examining each of its nodes.
_FEW_NODES = 60


@dataclass(frozen=True)
class Look:
    """The findings of one batch of forks."""

    aspect: str
    failure: Failure | None = None
    location: Location = field(default_factory=Location)
    wrong_alone: tuple[str, ...] = ()
    memory: MemoryEvidence = field(default_factory=MemoryEvidence)


def first_look(candidate: Candidate, failure: Failure, oracle: Oracle, on_place: OnPlace) -> Look:
    """Examine the program's graph, and call `on_place` as soon as the failure is located."""
    large = _look_at_large(candidate, failure, oracle, on_place)
    return large or _look_at(candidate, failure.aspect, oracle, on_place)


def look_closely(candidate: Candidate, failure: Failure, oracle: Oracle) -> Look:
    """Examine a small candidate: its kernels operation by operation, and its memory."""
    items: _Items = {_ITSELF: candidate, **_places(candidate, failure.aspect, closely=True)}
    memory = memory_work(candidate, failure)
    if memory is not None:
        items[_MEMORY] = memory
    seen = dict(_as_known(oracle, items, label=" in full"))
    found = _with_place(Look(failure.aspect), seen)
    return found if memory is None else replace(found, memory=evidence_of(seen[_MEMORY]))


def _look_at(candidate: Candidate, aspect: str, oracle: Oracle, on_place: OnPlace) -> Look:
    """Do all the work of a first look side by side.

    Finding the first wrong kernel of the program, and the operations in it that are wrong on their
    own, needs no compile of the graph; checking the stages before it does.
    """
    look = Look(aspect)
    own = work_on_own_kernels(candidate) if aspect in _OF_VALUES else None
    apart = _nodes_apart(candidate, oracle)
    items: _Items = {_OWN_KERNELS: own} if own is not None else {}
    items |= {_ITSELF: candidate, **_places(candidate, aspect)}
    if apart is not None:
        items[_NODES_APART] = apart.candidate
    seen: dict[str, Any] = {}
    for name, answer in _as_known(oracle, items):
        seen[name] = answer
        if name == _ITSELF and answer is None:
            break  # Other answers are meaningless if the failure is not reproduced.
        if name == _NODES_APART:
            look = replace(look, wrong_alone=tuple(apart.wrong_in(answer)) if apart else ())
        elif seen.keys() >= {_ITSELF, *_PLACES}:
            look = _with_own_kernel(_with_place(look, seen), seen)
            on_place(seen[_ITSELF], look.location)
            if look.location.wrong_alone:
                break  # Separating all nodes could only confirm this.
        elif seen.keys() >= {_ITSELF, _OWN_KERNELS}:
            place = location_of_answer(seen[_OWN_KERNELS])
            if place.is_known:
                on_place(seen[_ITSELF], place)
    return look


def _look_at_large(
    candidate: Candidate, failure: Failure, oracle: Oracle, on_place: OnPlace
) -> Look | None:
    """Examine a large graph without recompiling it, if its suspected nodes fail alone.

    The cause may be a wrong decomposition, or the first wrong kernel of the program's own compiled
    graph. Other stages before kernels are examined in the smallest graph.
    """
    own = work_on_own_kernels(candidate)
    is_plain = not (candidate.guarded or candidate.counts or has_transforms(candidate))
    is_value = failure.aspect in _OF_VALUES
    if own is None or not is_plain or not is_value or candidate.size <= _FEW_NODES:
        return None
    works = [work_on_decompositions(candidate, failure.aspect), own]
    places = [location_of_answer(answer) for answer in oracle.forks.ask_all(works)]
    telling = (place for place in places if place.is_known and (place.suspects or place.of_kernel))
    location = next(telling, None)
    if location is None:
        return None
    on_place(failure, location)
    recorded = record_values(candidate)
    sets = dict.fromkeys(names for names in (location.suspects, location.of_kernel) if names)
    if oracle.first([subgraph(recorded, names) for names in sets], failure) is None:
        return None
    return Look(failure.aspect, failure, location)


def _places(candidate: Candidate, aspect: str, *, closely: bool = False) -> _Items:
    return dict(zip(_PLACES, places_to_look(candidate, aspect, closely=closely), strict=True))


def _as_known(oracle: Oracle, items: _Items, label: str = "") -> Iterator[tuple[str, Any]]:
    for number, answer in oracle.as_known(list(items.values()), label=label):
        yield list(items)[number], answer


def _with_place(look: Look, seen: dict[str, Any]) -> Look:
    location = first_place([seen[name] for name in _PLACES])
    return replace(look, failure=seen[_ITSELF], location=location)


def _with_own_kernel(look: Look, seen: dict[str, Any]) -> Look:
    """Add the operations of the kernel that are wrong on their own, if it is the same kernel."""
    own = location_of_answer(seen[_OWN_KERNELS]) if _OWN_KERNELS in seen else Location()
    if not own.wrong_alone or own.kernel != look.location.kernel:
        return look
    location = replace(look.location, wrong_alone=own.wrong_alone)
    return replace(look, location=location, wrong_alone=own.suspects)


def _nodes_apart(candidate: Candidate, oracle: Oracle) -> SeparateNodes | None:
    """Separate all nodes; None where they cannot be separated, or an earlier call matters."""
    if candidate.counts or has_transforms(candidate) or candidate.earlier is not None:
        return None
    try:
        recorded = record_values(candidate)
        return separated(recorded, recorded.names)
    except Exception:  # The separated nodes are only a hint.
        oracle.mistakes.append(traceback.format_exc()[-3000:])
        return None
