"""Which stage of the compiler makes a wrong result, from one instrumented compile.

In the order of the stages: a pre-grad pass, AOTAutograd, a decomposition, a pass over the joint
graph or over the forward or backward graph, a kernel. The first one that changes what is computed
is the culprit; later ones only pass it on.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._python_dispatch import TorchDispatchMode

from inductoscope.doctor.compare.bug_or_rounding import judge
from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.custom_operators import first_false_declaration
from inductoscope.doctor.compare.decompositions import first_wrong_decomposition
from inductoscope.doctor.compare.graphs import as_function, input_names, snapshot
from inductoscope.doctor.compare.kernels import KernelWatch
from inductoscope.doctor.compare.passes import PassDivergence, PassWatch, first_divergence
from inductoscope.doctor.compare.tensor_metadata import strides_that_matter
from inductoscope.doctor.compare.values import copy_values, is_plain, run
from inductoscope.doctor.compare.watched_graphs import KernelDivergence, WatchedGraph
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.ahead_of_time import compiled_ahead_of_time
from inductoscope.doctor.search.candidate import Candidate, is_operation
from inductoscope.doctor.search.eager_values import eager_values
from inductoscope.doctor.search.fork_answer import ForkAnswer
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.lowering_or_codegen import lowering_or_codegen
from inductoscope.doctor.search.oracle import compiled, compiling, run_compiled
from inductoscope.doctor.search.placement import placed
from inductoscope.doctor.search.suspects import operations_wrong_alone
from inductoscope.errors import ToolFailure
from inductoscope.recording.codec import decode
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.flows import AOT_INDUCTOR
from inductoscope.vocabulary.frames import frames_in, innermost_users

TORCH_NAMES = {
    "torch._inductor.compile_fx": ("compile_fx",),
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
}


def locate_wrong_result(
    candidate: Candidate, forks: Forks, aspect: str, *, closely: bool = False
) -> Location:
    """Find where a wrong result is made, in forks of this process."""
    return first_place(forks.ask_all(places_to_look(candidate, aspect, closely=closely)))


def places_to_look(
    candidate: Candidate, aspect: str, *, closely: bool = False
) -> list[Callable[[], Location]]:
    """Works for forks, which may run side by side; `first_place` reads their answers.

    `aspect` is what is wrong with the result: its value, dtype, stride, sharing. `closely` also
    compiles each operation of a wrong kernel on its own.
    """
    return [
        lambda: _in_compile(placed(candidate), aspect, closely),
        work_on_decompositions(candidate, aspect),
        lambda: _before_inductor(placed(candidate), aspect),
        lambda: in_custom_operators(placed(candidate)),
    ]


def first_place(answers: Sequence[ForkAnswer]) -> Location:
    """The first stage that is to blame, from the answers of all places to look."""
    compiled, decomposed, before, declared = map(location_of_answer, answers)
    if declared.is_known:
        return declared
    if compiled.stage == stages.PRE_GRAD_PASS:
        return compiled
    if before.is_known:
        return before
    if decomposed.is_known:
        # What the compile showed tells which nodes are involved.
        suspects = decomposed.suspects or compiled.suspects
        return replace(decomposed, suspects=suspects, of_kernel=compiled.of_kernel)
    return compiled


def work_on_decompositions(candidate: Candidate, aspect: str) -> Callable[[], Location]:
    """Work for a fork: the first wrong decomposition, for which nothing is compiled."""
    return lambda: _in_decompositions(placed(candidate), aspect)


def location_of_answer(answer: ForkAnswer) -> Location:
    """The location that a fork answered with; an unknown one if it did not answer."""
    return decode(Location, answer.result) if answer.result else Location()


# --- before Inductor ------------------------------------------------------------------------------


def _before_inductor(candidate: Candidate, aspect: str) -> Location:
    """Whether AOTAutograd alone, with eager's kernels, is wrong already."""
    text = wrong_with_backend(candidate, "aot_eager", aspect)
    if not text:
        return Location()
    return Location(stage=stages.AOT, text=text, how="already wrong with backend='aot_eager'")


def in_custom_operators(candidate: Candidate) -> Location:
    """Whether a custom operator does not do what it declares."""
    found = first_false_declaration(as_function(candidate.module), candidate.inputs)
    if found is None:
        return Location()
    how = "torch.library.opcheck failed on its actual arguments"
    return Location(stage=stages.USER, operation=found.operation, text=found.text, how=how)


def wrong_with_backend(candidate: Candidate, backend: str, aspect: str = "value") -> str:
    """What is wrong with the candidate when another backend compiles it; "" if nothing is."""
    case = Case(as_function(candidate.module), candidate.inputs, candidate.backward)
    with compiling(candidate):
        outcome = run_compiled(candidate, compiled(candidate, backend))
        comparison = judge(case, outcome).counting([aspect])
    return comparison.wrong[0].text if comparison.wrong else ""


def _in_decompositions(candidate: Candidate, aspect: str) -> Location:
    running = NodeByNode(candidate.module)
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
        # Not in the backward pass, whose operations belong to no node.
        suspects=(found.node,) if found.node in known else (),
    )


class NodeByNode(Interpreter):
    """Runs a graph, and says which of its nodes is running."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.name = ""

    def run_node(self, n: Node) -> Any:
        """One node."""
        self.name = n.name
        return super().run_node(n)


# --- in Inductor ----------------------------------------------------------------------------------


def _in_compile(candidate: Candidate, aspect: str, closely: bool) -> Location:
    """Compile while watching passes and kernels, run, and see what differs first."""
    passes, kernels = PassWatch(), KernelWatch()
    seen = Retraced()
    with compiling(candidate), passes.watching(), kernels.watching():
        run_compiled(candidate, seen.compiled(candidate))
    known = {**seen.inputs, **kernels.known_inputs}
    found = first_divergence(passes, known, aspect)
    if found is not None:
        return _at_pass(candidate, seen, found)
    if kernels.divergences and aspect not in ("stride", "sharing"):
        found_in = kernels.divergences[0]
        place = location_at_kernel(candidate, seen, found_in)
        alone = operations_wrong_alone(candidate, found_in) if closely else ()
        return replace(place, wrong_alone=alone)
    for graph in kernels.graphs if aspect in _FORM else ():
        if (place := _at_declaration(graph)).is_known:
            return place
    if not any(graph.checked for graph in kernels.graphs):
        return Location(text="the compiled code did not report its buffers")
    text = "every buffer equals its node, but the outputs of the graph differ"
    return Location(text=text, graphs_are_right=True)


_FORM = ("dtype", "shape", "stride")


def _at_declaration(graph: WatchedGraph) -> Location:
    """The first node for which eager and the meta function disagree on type or strides.

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
    """The graph that is captured from the candidate once more; its nodes have other names."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: dict[str, Any] = {}

    def compiled(self, candidate: Candidate) -> Callable[..., Any]:
        """The candidate's graph, compiled the way it names."""
        if candidate.flow == AOT_INDUCTOR:
            return compiled_ahead_of_time(candidate, self._keep_exported)
        return compiled(candidate, self._backend(candidate.options))

    def _keep_exported(self, module: GraphModule, given: tuple[Any, ...]) -> None:
        self.nodes = [node for node in snapshot(module).graph.nodes if is_operation(node)]
        self.inputs = dict(zip(input_names(module), copy_values(list(given)), strict=True))

    def _backend(self, options: Mapping[str, Any]) -> Callable[..., Any]:
        """Inductor, keeping the graph and its inputs."""

        def compile_graph(module: Any, examples: Any) -> Any:
            from torch._inductor.compile_fx import compile_fx

            kept = snapshot(module)
            self.nodes = [node for node in kept.graph.nodes if is_operation(node)]
            names = input_names(kept)
            compiled = compile_fx(module, examples, config_patches=dict(options) or None)

            def call(*arguments: Any) -> Any:
                for name, value in zip(names, arguments, strict=False):
                    kept_value = (
                        value.detach().clone() if isinstance(value, torch.Tensor) else value
                    )
                    self.inputs[name] = kept_value
                return compiled(*arguments)

            return call

        return compile_graph

    def in_candidate(self, candidate: Candidate, names: Iterable[str]) -> tuple[str, ...]:
        """The candidate's nodes that correspond to nodes of the captured graph."""
        own = candidate.operations
        if [node.target for node in own] != [node.target for node in self.nodes]:
            return ()
        places = {node.name: number for number, node in enumerate(self.nodes)}
        found = sorted({places[name] for name in names if name in places})
        return tuple(own[number].name for number in found)


def _at_pass(candidate: Candidate, seen: Retraced, found: PassDivergence) -> Location:
    how = "the graph was run before and after each pass on the same inputs"
    suspects = seen.in_candidate(candidate, dynamo_names(found.nodes))
    return replace(location_at_pass(found, how), suspects=suspects)


def location_at_pass(found: PassDivergence, how: str) -> Location:
    """A pass that changed a graph for the worse, as the place of a failure."""
    name = found.name
    if name.startswith("(") and found.inside:
        name = found.inside[-1]
    removed = tuple(dict.fromkeys(found.removed))
    return Location(
        stage=found.stage,
        pass_name=name,
        operation=found.broken or ", ".join(removed)[:300],
        text=found.text,
        how=how,
        names=(*found.patterns, *found.inside),
        removed=removed,
        added=tuple(dict.fromkeys(name for name in found.added if "built-in" not in name)),
        own_pass=found.users[-1] if found.users else "",
    )


def dynamo_names(nodes: Iterable[Any]) -> set[str]:
    """Names of nodes in earlier graphs that these nodes come from."""
    names: set[str] = set()
    for node in nodes:
        names.add(node.name)
        names.update(str(getattr(source, "name", "")) for source in _sources(node))
    return names | _named_by_dynamo(nodes)


def names_in_first_graph(nodes: Iterable[Any]) -> set[str]:
    """Names of the nodes of Dynamo's own graph that these nodes come from."""
    every = [source for node in nodes for source in _sources(node)]
    first = [source for source in every if not getattr(source, "from_node", None)]
    return {str(getattr(source, "name", "")) for source in first} | _named_by_dynamo(nodes)


def _sources(node: Any) -> list[Any]:
    """What a node was made from, in all earlier graphs."""
    found = list(node.meta.get("from_node") or ())
    for source in found:
        found.extend(getattr(source, "from_node", None) or ())
    return found


def _named_by_dynamo(nodes: Iterable[Any]) -> set[str]:
    return {str(source) for node in nodes for source, _ in node.meta.get("source_fn_stack") or ()}


def location_at_kernel(candidate: Candidate, seen: Retraced, found: KernelDivergence) -> Location:
    """A kernel that computes wrong numbers, as the place of a failure."""
    nodes = {node.name: node for node in found.graph.module.graph.nodes}
    involved = [nodes[name] for name in found.origins if name in nodes]
    in_kernel = [nodes[name] for name in found.kernel_origins if name in nodes]
    origin = nodes.get(found.node)
    while origin is not None and origin.target is operator.getitem:
        origin = origin.args[0] if isinstance(origin.args[0], Node) else None
    stage, how = lowering_or_codegen(found)
    return Location(
        stage=stage,
        operation="" if origin is None else str(origin.target),
        kernel=found.kernel,
        buffer=found.buffer,
        is_overwritten=found.is_overwritten,
        text=f"{found.text} (buffer {found.buffer} of kernel {found.kernel}, node {found.node})",
        how=how,
        suspects=seen.in_candidate(candidate, dynamo_names(involved)),
        of_kernel=seen.in_candidate(candidate, dynamo_names(in_kernel)),
        names=tuple(str(n.target) for n in involved if n.target is not operator.getitem),
    )


# --- names ----------------------------------------------------------------------------------------


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


def aten_operations(candidate: Candidate) -> list[str]:
    """The operations that eager runs for the candidate, without views and copies."""
    with contextlib.suppress(ToolFailure):
        found: list[str] = eager_values(candidate, _aten_operations)
        return found
    return []


def source_lines(candidate: Candidate) -> list[str]:
    """The lines of the user's program that the candidate's nodes come from."""
    return places_of(candidate.operations)


def places_of(nodes: Iterable[Node]) -> list[str]:
    """The lines of the user's program that nodes come from."""
    found = []
    for node in nodes:
        frames = frames_in(str(node.meta.get("stack_trace") or ""))
        own = innermost_users(frames, lambda frame: frame.file)
        if own is not None:
            found.append(str(own))
    return list(dict.fromkeys(found))
