"""A candidate: a graph, its inputs, and how it is compiled. A value that an oracle judges."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from inductoscope.inside.compare.graphs import input_names
from inductoscope.inside.compare.values import is_plain
from inductoscope.inside.program_settings import MarkedSize, marks_of
from inductoscope.torch_facts.stages import CPP_WRAPPER, JUST_IN_TIME


@dataclass(frozen=True)
class Candidate:
    """A graph with inputs that shows a failure, or may show one."""

    module: GraphModule
    inputs: tuple[Any, ...]
    backward: bool = False
    dynamic: bool | None = None
    # Options of torch.compile, and settings of the compiler that the program changed.
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    # Sizes that the program has marked as dynamic.
    marks: tuple[MarkedSize, ...] = ()
    # Inputs of an earlier call, for which the graph was compiled: some failures need that call.
    earlier: tuple[Any, ...] | None = None
    # Code that makes each input; empty for an input that cannot be written down.
    recipes: tuple[str, ...] = ()
    earlier_recipes: tuple[str, ...] = ()
    # Differences in how results lie in memory that count as a failure: stride, sharing.
    counts: tuple[str, ...] = ()
    # The device on which the tensors belong, where they are only kept in main memory; and the
    # inputs and attributes that belong in main memory all the same.
    device: str = ""
    on_cpu: frozenset[str] = frozenset()
    # How it reaches Inductor, and the inputs that a package holds as constants.
    flow: str = JUST_IN_TIME
    constants: frozenset[str] = frozenset()
    # Whether it needs memory that holds NaN around inputs and buffers, and in new ones.
    guarded: bool = False
    # Whether eager raises an error, which compiled code then has to raise, too.
    eager_raises: bool = False

    @property
    def operations(self) -> list[torch.fx.Node]:
        return [node for node in self.module.graph.nodes if is_operation(node)]

    @property
    def size(self) -> int:
        """The number of operations; unpacking several results does not count."""
        return sum(not is_unpacking(node) for node in self.operations)

    @property
    def draws_inductor_random_numbers(self) -> bool:
        """Whether random numbers differ from eager's, so that values cannot be compared."""
        return self.config.get("fallback_random") is False

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        """The inputs of every call, in call order."""
        return [self.inputs] if self.earlier is None else [self.earlier, self.inputs]

    def with_calls_changed(self, change: Callable[[tuple[Any, ...]], Iterable[Any]]) -> Candidate:
        """Apply the same change to the inputs of every call, so that they stay consistent."""
        calls = [tuple(change(inputs)) for inputs in self.calls]
        earlier = calls[0] if self.earlier is not None else None
        return replace(self, inputs=calls[-1], earlier=earlier, recipes=(), earlier_recipes=())


def name_of(node: torch.fx.Node) -> str:
    if isinstance(node.target, str):
        return node.target
    return str(getattr(node.target, "__name__", node.target))


def is_unpacking(node: torch.fx.Node) -> bool:
    """Check whether a node unpacks one of several results, so it belongs to their producer."""
    if node.target is not operator.getitem or not isinstance(node.args[0], torch.fx.Node):
        return False
    value = node.args[0].meta.get("example_value", node.args[0].meta.get("val"))
    is_tensor = value is None or isinstance(value, torch.Tensor)
    return isinstance(node.args[1], int) and not is_tensor


def is_operation(node: torch.fx.Node) -> bool:
    return node.op in ("call_function", "call_method", "call_module")


def writes_in_place(node: torch.fx.Node) -> bool:
    name = name_of(node)
    return name == "setitem" or (name.endswith("_") and not name.endswith("__"))


def has_effect(node: torch.fx.Node) -> bool:
    """Check whether a node is an input, an output or a mutation, which must be kept."""
    return node.op in ("placeholder", "output") or writes_in_place(node)


def has_transforms(candidate: Candidate) -> bool:
    """Check whether the graph enters and leaves functorch transforms, so it cannot be split.

    Running a part of the graph could leave this process inside a transform such as vmap or grad.
    """
    modules = [str(getattr(node.target, "__module__", "")) for node in candidate.operations]
    return any("_functorch" in module for module in modules)


# --- trials ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateTrial(ABC):
    """One run of a candidate, as a picklable value for a fork or a cluster's worker."""

    candidate: Candidate

    @abstractmethod
    def __call__(self) -> Any:
        """Run the candidate, in a process that may be killed."""


# --- sizes that the program has marked: dynamic, within bounds, or unbacked -----------------------
#
# The code that the compiler generates depends on its assumptions about sizes, so a smaller
# candidate keeps the marks of its inputs.


def marked_sizes(module: GraphModule, arguments: Sequence[Any]) -> tuple[MarkedSize, ...]:
    """Return the dynamic-size marks on the arguments of a call."""
    names = input_names(module)
    return tuple(
        mark
        for name, value in zip(names, arguments, strict=False)
        if isinstance(value, torch.Tensor)
        for mark in marks_of(name, value)
    )


def marking(
    module: GraphModule, marks: Sequence[MarkedSize], function: Callable[..., Any]
) -> Callable[..., Any]:
    """Wrap `function` so that its arguments are marked before each call."""
    if not marks:
        return function
    from torch._dynamo import decorators

    numbered = list(marked_inputs(module, marks))

    def call(*arguments: Any) -> Any:
        for number, mark in numbered:
            mark_size = getattr(decorators, mark.function)
            mark_size(arguments[number], mark.dimension, **mark.bounds)
        return function(*arguments)

    return call


def marked_inputs(
    module: GraphModule, marks: Sequence[MarkedSize]
) -> Iterator[tuple[int, MarkedSize]]:
    """Return the marks of inputs that the graph has, each with the number of its input."""
    names = input_names(module)
    return ((names.index(mark.input), mark) for mark in marks if mark.input in names)


def open_sizes(candidate: Candidate) -> list[dict[int, dict[str, int]] | None]:
    """Return the bounds of all dynamic dimensions, for each input that a package is called with.

    An input that is no tensor has None.
    """
    marks = [mark for _, mark in marked_inputs(candidate.module, candidate.marks)]
    return [
        {mark.dimension: mark.bounds for mark in marks if mark.input == name}
        if isinstance(value, torch.Tensor)
        else None
        for name, value in zip(input_names(candidate.module), candidate.inputs, strict=True)
        if name not in candidate.constants
    ]


# --- the plainest way to compile a candidate: with torch.compile and a Python wrapper -------------
#
# A failure that also shows with a Python wrapper is searched for with one: a C++ wrapper costs
# seconds for every candidate, and while it is compiled Inductor runs kernels on made-up inputs.

_SETTING = "cpp_wrapper"


def special_flow(candidate: Candidate) -> str:
    """Return how the candidate reaches Inductor, if not through plain torch.compile."""
    return candidate.flow or (CPP_WRAPPER if _has_cpp_wrapper(candidate) else JUST_IN_TIME)


def compiled_plainly(candidate: Candidate) -> Candidate:
    """Return the candidate compiled with plain torch.compile and a Python wrapper."""
    found = replace(candidate, flow=JUST_IN_TIME, constants=frozenset())
    if not _has_cpp_wrapper(candidate):
        return found
    options = _with_setting_of({}, candidate.options)
    return replace(found, options=options, config={**candidate.config, _SETTING: False})


def compiled_like(candidate: Candidate, other: Candidate) -> Candidate:
    """Return the candidate compiled through the flow and wrapper of the other one."""
    plain = compiled_plainly(candidate)
    options = {**plain.options, **{k: v for k, v in other.options.items() if k == _SETTING}}
    config = _with_setting_of(other.config, plain.config)
    return replace(plain, flow=other.flow, config=config, options=options)


def _with_setting_of(one: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with the cpp_wrapper setting of `one`, if it has one."""
    rest = {name: value for name, value in settings.items() if name != _SETTING}
    return {**rest, _SETTING: one[_SETTING]} if _SETTING in one else rest


def _has_cpp_wrapper(candidate: Candidate) -> bool:
    import torch._inductor.config

    default = candidate.config.get(_SETTING, torch._inductor.config.cpp_wrapper)
    return bool(candidate.options.get(_SETTING, default))


# --- a candidate that nothing is wrong with, to see how long healthy work takes here and now ------

# No program adds this, so the kernel is in no cache.
_NUMBER = 0.57721566


def healthy_candidate(like: Candidate) -> Candidate | None:
    """Build a graph that adds a number to an input of `like`; None without a plain float input."""
    floats = [
        number
        for number, value in enumerate(like.inputs)
        if isinstance(value, torch.Tensor) and is_plain(value) and value.is_floating_point()
    ]
    if not floats:
        return None
    place, graph = floats[0], Graph()
    given = graph.placeholder(f"input_{place}")
    graph.output((graph.call_function(torch.add, (given, _NUMBER)),))
    changed = replace(like, module=GraphModule({}, graph), earlier=None, marks=(), backward=False)
    return changed.with_calls_changed(lambda inputs: [inputs[place].detach()])
