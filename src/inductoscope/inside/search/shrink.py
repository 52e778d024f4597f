"""Shrinks a failing candidate: shrink passes propose candidates, one gate judges them.

A pass only proposes candidates, the simplest first. A proposal that is not simpler is rejected, a
known one is answered from the oracle's memory, and only the rest is tried. The oracle also counts
the trials and stops at its limits. A pass is a function, and a row of `SHRINK_PASSES` at the end.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from inductoscope.doctor.delta_debugging import drive, subset_search
from inductoscope.doctor.failure import LOST_CHECK, NAN, WRONG, Failure
from inductoscope.inside.compare.bug_or_rounding import judge
from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import is_plain, run
from inductoscope.inside.search.candidate import Candidate, has_effect, has_transforms, is_unpacking
from inductoscope.inside.search.failure_signature import failure_of_comparison
from inductoscope.inside.search.forks import Work
from inductoscope.inside.search.input_recipes import make_inputs, recipes_of
from inductoscope.inside.search.oracle import Oracle, compiled, compiling
from inductoscope.inside.search.placement import placed_inputs
from inductoscope.inside.search.program_state import as_when_fresh, to_be_made
from inductoscope.inside.search.subgraph import RecordedGraph, record_values, subgraph
from inductoscope.inside.search.user_kernels import calls_user_kernels, is_user_kernel
from inductoscope.recording.events import NotedDifference

Item = TypeVar("Item")

# Candidates, the simplest first; None stands for one that cannot be made.
Batch = Sequence["Candidate | None"]
# A pass yields batches, and is sent the number of the first candidate that shows the failure, or
# None. A returned candidate was proven by the pass; None keeps the last accepted candidate.
Proposals = Generator[Batch, "int | None", "Candidate | None"]


@dataclass(frozen=True)
class Subject:
    """A failing candidate to shrink, and the known facts about its failure."""

    candidate: Candidate
    failure: Failure
    # Sets of nodes that may be enough to show the failure, the strongest suspicion first.
    suspects: Sequence[Sequence[str]] = ()
    # The nodes of the guilty kernel: more than are suspected, where a failure takes several.
    of_kernel: Sequence[str] = ()
    # Runs work in a fork and returns its result; None if the fork died.
    in_fork: Callable[[Work], Any] = lambda work: work()
    # The most candidates to try at once, some of them speculatively.
    guesses: int = 1


def is_divisible(candidate: Candidate) -> bool:
    """Check whether a part of the graph can run on its own."""
    return not has_transforms(candidate)


@dataclass(frozen=True)
class ShrinkPass:
    """One way to make a candidate simpler."""

    name: str
    # The progress text for users; {size} stands for the number of operations.
    text: str
    # The measure that it reduces. A proposal that does not reduce it is rejected untried.
    measure: Callable[[Candidate], Any]
    # A generator, because what to propose next depends on what has shown the failure so far.
    propose: Callable[[Subject], Proposals]
    applies: Callable[[Candidate], bool] = is_divisible


@dataclass(frozen=True)
class ShrinkProgress:
    """The smallest candidate so far, and a text about the next step, empty at the end."""

    candidate: Candidate
    text: str = ""


def apply_passes(
    subject: Subject,
    oracle: Oracle,
    passes: Sequence[ShrinkPass],
    at_once: Sequence[ShrinkPass] = (),
) -> Iterator[ShrinkProgress]:
    """Apply the passes one by one; with `at_once`, first try these last passes in one trial."""
    subject = replace(
        subject,
        in_fork=lambda work: oracle.forks.ask(work).result,
        guesses=oracle.forks.guesses,
    )
    for shrink_pass in passes:
        if at_once and shrink_pass is at_once[0]:
            yield ShrinkProgress(subject.candidate, "trying the simplest settings and inputs")
            simplest = _shrink_at_once(subject, oracle, at_once)
            if simplest is not None:
                yield ShrinkProgress(simplest)
                return
        if shrink_pass.applies(subject.candidate):
            text = shrink_pass.text.format(size=subject.candidate.size)
            yield ShrinkProgress(subject.candidate, text)
            subject = replace(subject, candidate=apply_pass(shrink_pass, subject, oracle))
    yield ShrinkProgress(subject.candidate)


def apply_pass(
    shrink_pass: ShrinkPass, subject: Subject, oracle: Oracle, *, untried: bool = False
) -> Candidate:
    """Return the simplest candidate that a pass finds; `untried` accepts every proposal."""
    smallest, measure = subject.candidate, shrink_pass.measure

    def first(batch: Batch) -> int | None:
        """Return the index of the first simpler candidate with the same failure."""
        nonlocal smallest
        simpler = [
            item if item is not None and measure(item) < measure(smallest) else None
            for item in batch
        ]
        if untried:
            found = next((n for n, item in enumerate(simpler) if item is not None), None)
        else:
            found = oracle.first(simpler, subject.failure)
        if found is not None:
            smallest = simpler[found] or smallest
        return found

    try:
        return drive(shrink_pass.propose(subject), first) or smallest
    except Exception:
        # A pass that cannot handle a graph must not end the search.
        oracle.mistakes.append(traceback.format_exc()[-3000:])
        return smallest


def _shrink_at_once(
    subject: Subject, oracle: Oracle, passes: Sequence[ShrinkPass]
) -> Candidate | None:
    """Apply all passes in one trial; None if the failure needs anything that they change.

    This replaces several trials by one, for failures whose trials take long.
    """
    for shrink_pass in passes:
        if shrink_pass.applies(subject.candidate):
            simpler = apply_pass(shrink_pass, subject, oracle, untried=True)
            subject = replace(subject, candidate=simpler)
    found = oracle.first([subject.candidate], subject.failure)
    return None if found is None else subject.candidate


def smallest_subset_of(
    items: Sequence[Item], make: Callable[[Sequence[Item]], Candidate | None], guesses: int
) -> Generator[Batch, int | None, list[Item]]:
    """Run delta debugging inside a pass; `make` turns a subset into a candidate."""
    search = subset_search(items, guesses)
    try:
        attempts = next(search)
        while True:
            found = yield [make(attempt) for attempt in attempts]
            attempts = search.send(found)
    except StopIteration as end:
        kept: list[Item] = end.value
        return kept


# --- nodes ----------------------------------------------------------------------------------------

_SMALL = 2


def _count_nodes(candidate: Candidate) -> tuple[int, int, int]:
    """Return the number of operations, then of module attributes, then of inputs."""
    attributes = sum(node.op == "get_attr" for node in candidate.module.graph.nodes)
    return candidate.size, attributes, len(candidate.inputs)


def _fewer_nodes(subject: Subject) -> Proposals:
    recorded = record_values(subject.candidate)
    suspects = _in_graph(recorded, subject.suspects)
    kernel = [names for names in _in_graph(recorded, [subject.of_kernel]) if names not in suspects]
    shown_by = yield from _first_that_shows_it(recorded, suspects, kernel)
    if shown_by is None or shown_by in kernel:
        # No suspicion is enough: the failure takes several nodes, which may have to share an input.
        part = subgraph(recorded, shown_by) if shown_by else None
        candidate = yield from _bypass_nodes(part or subject.candidate, subject.guesses)
        recorded, shown_by = record_values(candidate), None
    kept = yield from smallest_subset_of(
        shown_by or recorded.names, lambda names: subgraph(recorded, names), subject.guesses
    )
    # Even if no node can be removed, unused inputs are dropped, and attributes become inputs.
    yield [subgraph(recorded, kept)]
    return None


def _in_graph(recorded: RecordedGraph, sets: Iterable[Collection[str]]) -> list[list[str]]:
    """Return sets of node names in graph order, deduplicated, without empty and full sets."""
    found = {tuple(name for name in recorded.names if name in names): None for names in sets}
    return [[*names] for names in found if 0 < len(names) < len(recorded.names)]


def _first_that_shows_it(
    recorded: RecordedGraph, suspects: Sequence[list[str]], kernel: Sequence[list[str]]
) -> Generator[Batch, int | None, list[str] | None]:
    """Return the first set of nodes that shows the failure by itself."""
    attempts: list[tuple[list[str], Candidate | None]] = []
    for names in suspects:
        part = subgraph(recorded, names)
        # Small shapes are tried in the same batch: if they fail too, a round of compiles is saved.
        small = None if part is None else all_resized(part, _SMALL)
        attempts += [(names, small), (names, part)]
    # Kernels keep their shapes: much of a kernel is left out next, and the rest may need them.
    attempts += [(names, subgraph(recorded, names)) for names in kernel]
    found = yield [candidate for _, candidate in attempts]
    return None if found is None else attempts[found][0]


def _bypass_nodes(candidate: Candidate, guesses: int) -> Generator[Batch, int | None, Candidate]:
    """Bypass the nodes that the failure does not need.

    A subgraph gets a new input for every missing node. Some failures need two nodes to read the
    same value; for them, the users of a removed node read its input instead.
    """
    stand_ins = _stand_ins(candidate)
    names = list(stand_ins)
    if not names:
        return candidate
    without_any = _bypassed(candidate, stand_ins, ())
    if (yield [without_any]) is not None:
        return without_any
    kept = yield from smallest_subset_of(
        names, lambda keep: _bypassed(candidate, stand_ins, keep), guesses
    )
    return candidate if len(kept) == len(names) else _bypassed(candidate, stand_ins, kept)


def _stand_ins(candidate: Candidate) -> dict[str, str]:
    """Map each node that can be bypassed to an input of the same shape, dtype and device."""
    made = record_values(candidate).made
    forms = {
        name: (value.shape, value.dtype, value.device)
        for name, value in made.items()
        if isinstance(value, torch.Tensor)
    }
    found = {}
    for node in candidate.operations:
        if node.name in forms and not has_effect(node) and not is_unpacking(node):
            sources = [each.name for each in node.all_input_nodes]
            alike = [name for name in sources if forms.get(name) == forms[node.name]]
            found.update({node.name: alike[0]} if alike else {})
    return found


def _bypassed(candidate: Candidate, stand_ins: dict[str, str], keep: Collection[str]) -> Candidate:
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(candidate.module.graph, copies))
    new = {node.name: copy for node, copy in copies.items()}
    for name, source in stand_ins.items():
        if name not in keep:
            new[name].replace_all_uses_with(new[source])
            graph.erase_node(new[name])
            # Later nodes that it was to replace are replaced by its own stand-in.
            new[name] = new[source]
    graph.eliminate_dead_code(has_effect)
    return _with_used_inputs(candidate, graph)


# --- outputs --------------------------------------------------------------------------------------


def _count_outputs(candidate: Candidate) -> int:
    return len(candidate.module.graph.output_node().args[0])


def _fewer_outputs(subject: Subject) -> Proposals:
    candidate, count = subject.candidate, _count_outputs(subject.candidate)
    if count < 2:
        return None
    places = [place.split() for place in subject.failure.where]
    suspected = [int(words[1]) for words in places if words[:1] == ["output"]]
    if suspected and (yield [_with_outputs(candidate, suspected[:1])]) is not None:
        return None
    yield from smallest_subset_of(
        range(count), lambda numbers: _with_outputs(candidate, numbers), subject.guesses
    )
    return None


def _with_outputs(candidate: Candidate, numbers: Sequence[int]) -> Candidate:
    """Return the candidate with only these outputs, and the inputs that they need."""
    graph = Graph()
    outputs = graph.graph_copy(candidate.module.graph, {})
    graph.output(tuple(outputs[number] for number in numbers))
    # Inputs that nothing reads any more are dropped; operations that write in place stay.
    graph.eliminate_dead_code(has_effect)
    return _with_used_inputs(candidate, graph)


def _with_used_inputs(candidate: Candidate, graph: Graph) -> Candidate:
    """Return the candidate with this graph, without the inputs that the graph does not use."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    used = [bool(node.users) for node in placeholders]
    for node in placeholders:
        if not node.users:
            graph.erase_node(node)
    changed = replace(candidate, module=GraphModule(candidate.module, graph))
    return changed.with_calls_changed(lambda inputs: itertools.compress(inputs, used))


def with_outputs_that_count(candidate: Candidate, notes: Sequence[NotedDifference]) -> Candidate:
    """Keep only the outputs with noted strides, if all notes are about strides."""
    if not notes or any(note.aspect != "stride" for note in notes):
        return candidate
    return _with_outputs(candidate, [int(note.where.split()[1]) for note in notes])


# --- settings -------------------------------------------------------------------------------------


def _count_settings(candidate: Candidate) -> int:
    settings = len(candidate.options) + len(to_be_made(candidate.config))
    return settings + bool(candidate.dynamic) + len(candidate.marks) + candidate.backward


def _repeated(steps: Callable[[Candidate], Iterable[Candidate]]) -> Callable[[Subject], Proposals]:
    """Return a proposer that takes the first step that keeps the failure, again and again."""

    def propose(subject: Subject) -> Proposals:
        candidate = subject.candidate
        while attempts := list(steps(candidate)):
            found = yield attempts
            if found is None:
                return None
            candidate = attempts[found]
        return None

    return propose


def _with_fewer_settings(candidate: Candidate) -> Iterator[Candidate]:
    """Yield candidates without an option, a setting, dynamic shapes or gradients."""
    made = to_be_made(candidate.config)
    if candidate.options and made:
        yield replace(candidate, options={}, config=as_when_fresh(candidate.config, *made))
    for name in candidate.options:
        others = {key: value for key, value in candidate.options.items() if key != name}
        yield replace(candidate, options=others)
    for name in made:
        yield replace(candidate, config=as_when_fresh(candidate.config, name))
    if candidate.dynamic:
        yield replace(candidate, dynamic=None)
    for mark in candidate.marks:
        yield replace(candidate, marks=tuple(m for m in candidate.marks if m is not mark))
    if candidate.backward:
        yield replace(candidate, backward=False).with_calls_changed(_without_gradients)


def _without_gradients(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in inputs)


# --- shapes ---------------------------------------------------------------------------------------

# Sizes to try, the smallest first; a vector register holds up to 16 elements.
_SIZES = (2, 4, 8, 17, 33)


def _sum_sizes(candidate: Candidate) -> int:
    return sum(sum(value.shape) for value in _tensors(candidate))


def _smaller_shapes(subject: Subject) -> Proposals:
    """Propose smaller dimensions: one size at a time, everywhere in inputs and graph."""
    candidate = subject.candidate
    if (yield [all_resized(candidate, smaller) for smaller in _SIZES[:3]]) is not None:
        return None
    for size in sorted(_sizes(candidate), reverse=True):
        attempts = [_resized(candidate, size, smaller) for smaller in _SIZES if smaller < size]
        found = yield attempts
        if found is not None:
            candidate = attempts[found] or candidate
    return None


def all_resized(candidate: Candidate, smaller: int) -> Candidate | None:
    """Reduce every larger size to `smaller`; None if eager cannot run the result."""
    attempt: Candidate | None = candidate
    sizes = [size for size in _sizes(candidate) if size > smaller]
    for size in sizes:
        attempt = None if attempt is None else _resized(attempt, size, smaller)
    return attempt if sizes else None


def _sizes(candidate: Candidate) -> set[int]:
    return {size for value in _tensors(candidate) for size in value.shape if size > 1}


def _tensors(candidate: Candidate) -> list[torch.Tensor]:
    return [v for inputs in candidate.calls for v in inputs if isinstance(v, torch.Tensor)]


def _resized(candidate: Candidate, size: int, smaller: int) -> Candidate | None:
    """Replace `size` by `smaller`; None if eager cannot run the result, as it should."""

    def change(item: Any) -> Any:
        return smaller if type(item) is int and item == size else item

    try:
        resized = _with_arguments_changed(candidate, change, lambda node: True)
        attempt = resized.with_calls_changed(
            lambda inputs: [_cut(change(value), size, smaller) for value in inputs]
        )
        if candidate.device or candidate.eager_raises:
            return attempt  # This process must not use the GPU; the oracle asks eager in a fork.
        with torch.no_grad():
            for inputs in attempt.calls:
                copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
                attempt.module(*copies)
    except Exception:
        return None
    return attempt


def _cut(value: Any, size: int, smaller: int) -> Any:
    if not isinstance(value, torch.Tensor) or not is_plain(value) or size not in value.shape:
        return value
    part = value.detach()
    for dimension, own in enumerate(value.shape):
        if own == size:
            part = part.narrow(dimension, 0, smaller)
    return _same_order(part, value).requires_grad_(value.requires_grad)


def _same_order(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a dense copy whose dimensions have the same order in memory."""
    order = sorted(range(like.dim()), key=lambda d: (like.stride(d), -d), reverse=True)
    compact = part.permute(order).contiguous()
    back = [order.index(dimension) for dimension in range(like.dim())]
    return compact.permute(back)


def _has_free_shapes(candidate: Candidate) -> bool:
    # A user's kernel gets sizes as numbers, and would read past the end of smaller tensors.
    return is_divisible(candidate) and not calls_user_kernels(candidate.module.graph)


def _with_arguments_changed(
    candidate: Candidate, change: Callable[[Any], Any], is_changed: Callable[[Node], bool]
) -> Candidate:
    """Apply `change` to every argument of the chosen nodes."""
    graph = Graph()
    graph.output(graph.graph_copy(candidate.module.graph, {}))
    for node in graph.nodes:
        if node.op in ("call_function", "call_method") and is_changed(node):
            node.args, node.kwargs = tree_map(change, (node.args, node.kwargs))
    return replace(candidate, module=GraphModule(candidate.module, graph))


# --- types ----------------------------------------------------------------------------------------

_COMMON_DTYPES = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float64), torch.float32),
    **dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32), torch.int64),
}


def _uncommon(candidate: Candidate) -> list[int]:
    return [n for n, value in enumerate(candidate.inputs) if _common_dtype(value) is not None]


def _with_common_types(candidate: Candidate) -> Iterator[Candidate]:
    """Yield candidates with float32 or int64 for uncommon dtypes: all inputs, then one."""
    uncommon = _uncommon(candidate)
    for chosen in (uncommon, *([number] for number in uncommon if len(uncommon) > 1)):

        def change(inputs: tuple[Any, ...], chosen: list[int] = chosen) -> list[Any]:
            numbered = enumerate(inputs)
            return [_in_common_type(v) if n in chosen else v for n, v in numbered]

        yield candidate.with_calls_changed(change)


def _in_common_type(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to(_common_dtype(value)).requires_grad_(value.requires_grad)


def _common_dtype(value: Any) -> torch.dtype | None:
    """Return the common dtype to replace an uncommon one; otherwise None."""
    is_tensor = isinstance(value, torch.Tensor) and is_plain(value)
    return _COMMON_DTYPES.get(value.dtype) if is_tensor else None


# --- constants ------------------------------------------------------------------------------------

# Constants that need no explanation in a script, the simplest first.
_SIMPLE = (1, 2, 0.5)
_MANY = 6


def _odd_numbers(candidate: Candidate) -> list[float]:
    """Return constants that are neither simple nor likely to be a dimension or a size."""
    nodes = [node for node in candidate.operations if not is_user_kernel(node)]
    return [
        item for node in nodes for item in tree_leaves((node.args, node.kwargs)) if _is_odd(item)
    ]


def _is_odd(item: Any) -> bool:
    is_odd_float = type(item) is float and item not in (0.0, -1.0, *map(float, _SIMPLE))
    return is_odd_float or (type(item) is int and abs(item) > 64)


def _with_simpler_constants(candidate: Candidate) -> Iterator[Candidate]:
    for number in list(dict.fromkeys(_odd_numbers(candidate)))[:_MANY]:
        for simple in _SIMPLE:
            if isinstance(number, float) or isinstance(simple, int):
                yield _with_constant(candidate, number, type(number)(simple))


def _with_constant(candidate: Candidate, number: float, simple: float) -> Candidate:
    def change(item: Any) -> Any:
        return simple if type(item) is type(number) and item == number else item

    # A kernel that the user wrote gets its grid as numbers.
    return _with_arguments_changed(candidate, change, lambda node: not is_user_kernel(node))


# --- inputs ---------------------------------------------------------------------------------------


def _count_unwritten(candidate: Candidate) -> int:
    """Count the inputs that no script can create."""
    written = sum(1 for recipe in (*candidate.recipes, *candidate.earlier_recipes) if recipe)
    return sum(len(inputs) for inputs in candidate.calls) - written


def _simpler_inputs(subject: Subject) -> Proposals:
    """Propose simpler input values, so that a script can create them without a data file.

    The graph does not change. For a wrong result, or a check of values that is lost, it is
    therefore compiled once, in one fork, and called on many inputs.
    """
    candidate = yield from _with_simpler_earlier(subject.candidate)
    every = recipes_of(candidate)
    if subject.failure.kind in (WRONG, NAN, LOST_CHECK):
        chosen = subject.in_fork(lambda: _choose(candidate, every, subject.failure))
        return _with_recipes(candidate, _texts(every, chosen or [-1] * len(every)))
    # A failure of the compiler itself hardly ever depends on values: the simplest for all inputs.
    for choice in (1, 0):
        if (yield [_with_recipes(candidate, _all_texts(every, choice))]) is not None:
            return None
    return with_exact_inputs(candidate)


def with_exact_inputs(candidate: Candidate) -> Candidate:
    return _with_recipes(candidate, [recipes[-1] for recipes in recipes_of(candidate)])


def _with_simpler_earlier(candidate: Candidate) -> Generator[Batch, int | None, Candidate]:
    """Simplify the inputs of an earlier call, of which little but the shapes matters."""
    if candidate.earlier is None:
        return candidate
    every = recipes_of(replace(candidate, inputs=candidate.earlier))
    attempts = [_with_earlier(candidate, _all_texts(every, choice)) for choice in (1, 0)]
    found = yield attempts
    exact = [recipes[-1] for recipes in every]
    return _with_earlier(candidate, exact) if found is None else attempts[found]


def _with_earlier(candidate: Candidate, texts: Sequence[str]) -> Candidate:
    assert candidate.earlier is not None
    made = tuple(make_inputs(texts, candidate.earlier))
    return replace(candidate, earlier=made, earlier_recipes=tuple(texts))


def _with_recipes(candidate: Candidate, texts: Sequence[str]) -> Candidate:
    inputs = make_inputs(texts, candidate.inputs)
    return replace(candidate, inputs=tuple(inputs), recipes=tuple(texts))


def _texts(every: Sequence[Sequence[str]], chosen: Sequence[int]) -> list[str]:
    return [texts[place] for texts, place in zip(every, chosen, strict=True)]


def _all_texts(every: Sequence[Sequence[str]], choice: int) -> list[str]:
    return [texts[min(choice, len(texts) - 1)] for texts in every]


def _choose(candidate: Candidate, every: Sequence[Sequence[str]], failure: Failure) -> list[int]:
    """In a fork, find for each input the index of the simplest recipe that keeps the failure."""
    with compiling(candidate):
        function = compiled(candidate)
        if candidate.earlier is not None:
            earlier = placed_inputs(candidate, candidate.earlier)
            run(function, earlier, backward=candidate.backward)
        chosen = [len(recipes) - 1 for recipes in every]
        for number, recipes in enumerate(every):
            for choice in range(len(recipes) - 1):
                attempt = [*chosen[:number], choice, *chosen[number + 1 :]]
                if _keeps(failure, candidate, function, _texts(every, attempt)):
                    chosen = attempt
                    break
    return chosen


def _keeps(
    failure: Failure, candidate: Candidate, function: Callable[..., Any], recipes: list[str]
) -> bool:
    """Check whether the compiled candidate still fails on the inputs of these recipes."""
    try:
        inputs = placed_inputs(candidate, tuple(make_inputs(recipes, candidate.inputs)))
        outcome = run(function, inputs, backward=candidate.backward)
        case = Case(as_function(candidate.module), inputs, candidate.backward)
        found = failure_of_comparison(judge(case, outcome).counting(candidate.counts))
    except Exception:
        return False
    return found is not None and found.is_same_as(failure)


# --- the table ------------------------------------------------------------------------------------

NODES = ShrinkPass(
    "nodes", "looking for the smallest part of {size} nodes", _count_nodes, _fewer_nodes
)
OUTPUTS = ShrinkPass(
    "outputs", "leaving out outputs (nodes left: {size})", _count_outputs, _fewer_outputs
)
SETTINGS = ShrinkPass(
    "settings", "leaving out settings", _count_settings, _repeated(_with_fewer_settings)
)
SHAPES = ShrinkPass(
    "shapes", "trying smaller shapes", _sum_sizes, _smaller_shapes, _has_free_shapes
)
DTYPES = ShrinkPass(
    "dtypes",
    "trying common dtypes",
    lambda candidate: len(_uncommon(candidate)),
    _repeated(_with_common_types),
)
CONSTANTS = ShrinkPass(
    "constants",
    "trying simpler constants",
    lambda candidate: len(_odd_numbers(candidate)),
    _repeated(_with_simpler_constants),
)
# Values can be simplified for any graph.
INPUTS = ShrinkPass(
    "inputs",
    "trying simpler input values",
    _count_unwritten,
    _simpler_inputs,
    applies=lambda candidate: True,
)

# Passes in the order of application: the one that removes most comes first. Inputs are last, since
# their recipes fit only the shapes and types that the other passes leave.
SHRINK_PASSES = (NODES, OUTPUTS, SETTINGS, SHAPES, DTYPES, CONSTANTS, INPUTS)
# The passes that change how the graph is compiled and called, but not its nodes.
PASSES_AROUND_GRAPH = SHRINK_PASSES[2:]
