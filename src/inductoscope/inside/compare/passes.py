"""Finds the first pass after which a graph computes something else, or has false metadata.

A copy of the graph is kept before and after every pass that changes it. Later all copies run on the
same inputs, and the first pair that differs names the pass. Nothing more is compiled.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from inductoscope.doctor.failure import Location
from inductoscope.inside.compare.bug_or_rounding import described, judge
from inductoscope.inside.compare.graphs import (
    as_function,
    graph_code,
    input_names,
    inputs_for,
    snapshot,
    values_in_eager,
)
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import run
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_users

_GROUPS = {
    "run_pre_grad_passes": stages.PRE_GRAD_PASS,
    "_recursive_joint_graph_passes": stages.JOINT_PASS,
    "_recursive_post_grad_passes": stages.POST_GRAD_PASS,
}
_BETWEEN = "(between named passes)"


@dataclass(frozen=True)
class PassStep:
    """A snapshot of a graph after a change."""

    stage: str
    name: str
    module: GraphModule
    inside: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    # Functions of the program that the passes and patterns called, each with its place.
    users: tuple[str, ...] = ()


@dataclass
class PassWatch:
    """Snapshots of graphs while passes run over them; one list per run of a group of passes."""

    groups: list[list[PassStep]] = field(default_factory=list)
    _open: list[tuple[str, str]] = field(default_factory=list)
    _patterns: list[str] = field(default_factory=list)
    _users: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def watching(self) -> Iterator[PassWatch]:
        import torch._inductor.compile_fx as compile_fx
        from torch._inductor import pattern_matcher
        from torch.fx.passes.graph_transform_observer import GraphTransformObserver

        with contextlib.ExitStack() as stack:
            for name, stage in _GROUPS.items():
                _replace(stack, compile_fx, name, self._group(stage))
            _replace(stack, GraphTransformObserver, "__enter__", self._entered)
            _replace(stack, GraphTransformObserver, "__exit__", self._left)
            for name in ("apply_gm_pass", "apply_graph_pass"):
                _replace(stack, GraphTransformObserver, name, self._applied)
            for entry in pattern_classes(pattern_matcher):
                _replace(stack, entry, "apply", self._pattern)
            yield self

    def _group(self, stage: str) -> Callable[..., Any]:
        def run_group(original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
            if self._open and self._open[-1][0] == stage:
                return original(module, *args, **kwargs)  # A graph inside the graph.
            self.groups.append([])
            self._keep(stage, "", module)
            self._open.append((stage, ""))
            try:
                result = original(module, *args, **kwargs)
            finally:
                self._open.pop()
            self._keep(stage, _BETWEEN, module if result is None else result)
            return result

        return run_group

    def _entered(self, original: Callable[..., Any], observer: Any) -> Any:
        if self._open:
            stage = self._open[-1][0]
            self._keep(stage, _BETWEEN, observer.gm)
            self._open.append((stage, str(observer.passname)))
        return original(observer)

    def _left(self, original: Callable[..., Any], observer: Any, *args: Any) -> Any:
        if self._open and self._open[-1][1] == str(observer.passname):
            stage, name = self._open.pop()
            self._keep(stage, name, observer.gm)
        return original(observer, *args)

    def _applied(self, original: Callable[..., Any], observer: Any, function: Any) -> Any:
        def noted(target: Any) -> Any:
            self._users += users_place(function)
            return function(target)

        return original(observer, noted)

    def _pattern(
        self, original: Callable[..., Any], entry: Any, match: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self._patterns.append(pattern_name(entry, match))
        self._users += users_place(getattr(entry, "handler", None))
        return original(entry, match, *args, **kwargs)

    def _keep(self, stage: str, name: str, module: Any) -> None:
        """Take a snapshot of the graph if it has changed since the last one."""
        if not isinstance(module, GraphModule) or not self.groups:
            return
        steps = self.groups[-1]
        patterns, self._patterns = tuple(self._patterns), []
        users, self._users = tuple(dict.fromkeys(self._users)), []
        if steps and graph_code(steps[-1].module) == graph_code(module):
            return
        if steps and input_names(steps[-1].module) != input_names(module):
            return  # A graph inside the graph.
        inside = tuple(item for _, item in self._open if item)
        steps.append(PassStep(stage, name, snapshot(module), inside, patterns, users))


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, call: Any) -> None:
    """Patch a function until the stack ends; `call` gets the original as its first argument."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: call(original, *args, **kwargs))
    stack.callback(setattr, owner, name, original)


def pattern_classes(module: Any) -> list[type]:
    """Return the pattern classes that implement `apply` themselves."""
    base = module.PatternEntry
    return [
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, base) and "apply" in vars(item)
    ]


def pattern_name(entry: Any, match: Any) -> str:
    """Return the name of a pattern: its handler, or the operations that it matches."""
    if getattr(entry, "pattern_name", None):
        return str(entry.pattern_name)
    for owner in (entry, match):
        for name in ("handler", "search_fn", "replacement_fn", "replace_fn", "extra_check"):
            function = getattr(owner, name, None)
            called = getattr(function, "__qualname__", getattr(function, "__name__", ""))
            if called and "<" not in called:
                return str(called)
    return " ".join(str(entry.pattern).split())[:80]


def users_place(function: Any) -> list[str]:
    """Return name and line of a pass that the program defines; nothing for a pass of torch's."""
    function = getattr(function, "func", function)  # A partial call.
    if not hasattr(function, "__code__"):
        function = inspect.getattr_static(type(function), "__call__", None)
    code = getattr(function, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return []
    name = str(getattr(function, "__qualname__", code.co_name)).removesuffix(".__call__")
    return [f"{name} ({code.co_filename}:{code.co_firstlineno})"]


@dataclass(frozen=True)
class PassDivergence:
    """The first pass that changed a graph for the worse."""

    location: Location
    # Nodes of the graph before the pass that are no longer there.
    nodes: tuple[Node, ...]


# Kinds of difference that are wrong in a graph, whatever is looked for.
_WRONG_ANYWAY = ("value", "nan", "shape", "dtype")


def first_divergence(
    watch: PassWatch, known: Mapping[str, Any], aspect: str = "value"
) -> PassDivergence | None:
    """Run all snapshots on the same inputs, which `known` holds by name.

    `aspect` is a kind of difference to look for, besides those that are always wrong.
    """
    return _first(watch, known, {*_WRONG_ANYWAY, aspect})


def first_break(watch: PassWatch, known: Mapping[str, Any]) -> PassDivergence | None:
    """Find the first pass after which the graph cannot run, or returns another structure."""
    return _first(watch, known, {"shape", "dtype", "structure"})


def first_lost_check(
    watch: PassWatch, inputs: Sequence[Any], kind: str
) -> tuple[PassDivergence | None, bool | None]:
    """Find the first pass after which the graph does not raise on these inputs any more.

    Also return whether the last graph raises an error of this kind; None if no decomposed graph has
    as many inputs.
    """
    still_raises = None
    for steps in watch.groups:
        if not steps or len(input_names(steps[0].module)) != len(inputs):
            continue  # A backward graph, or one whose inputs AOTAutograd has changed.
        cases = [Case(as_function(step.module), inputs) for step in steps]
        for before, after, case, later in zip(steps, steps[1:], cases, cases[1:], strict=False):
            if case.eager_error is None or isinstance(later.eager_error, type(case.eager_error)):
                continue
            text = f"the graph does not raise {described(case.eager_error)} any more"
            return divergence_at(before.module, after, text), False
        if steps[0].stage != stages.PRE_GRAD_PASS:
            kinds = {each.__name__ for each in type(cases[-1].eager_error).__mro__}
            still_raises = kind in kinds
    return None, still_raises


def _first(
    watch: PassWatch, known: Mapping[str, Any], kinds: Collection[str]
) -> PassDivergence | None:
    for steps in watch.groups:
        for before, after in itertools.pairwise(steps):
            text, broken = _difference(before.module, after.module, known, kinds)
            if text:
                return divergence_at(before.module, after, text, broken)
    return None


def _difference(
    before: GraphModule, after: GraphModule, known: Mapping[str, Any], kinds: Collection[str]
) -> tuple[str, str]:
    """Describe how a pass changed the result, and name the operation that fails, if any."""
    inputs = inputs_for(before, known)
    case = Case(as_function(before), inputs)
    if case.eager_error is not None:
        return "", ""  # Eager cannot run this graph, so it proves nothing.
    try:
        outcome = run(as_function(after), inputs, backward=False)
    except Exception as error:
        return _refusal(before, after, error)
    try:
        wrong = judge(case, outcome).counting(list(kinds)).wrong
    except Exception:
        return "", ""
    return next((item.text for item in wrong if item.kind in kinds), ""), ""


def _refusal(before: GraphModule, after: GraphModule, error: Exception) -> tuple[str, str]:
    """Describe why a graph cannot run; nothing for an operation that eager may not support."""
    text = str(error)
    executing = re.search(r"While executing %(\w+) :", text)
    node = next(
        (n for n in after.graph.nodes if executing is not None and n.name == executing[1]), None
    )
    if node is None or all(other.target != node.target for other in before.graph.nodes):
        return "", ""
    said = text.partition("\n\nWhile executing")[0]
    name = str(node.target)
    return f"{name} (node {node.name}) fails: {type(error).__name__}: {said}", name


def divergence_at(
    before: GraphModule, after: PassStep, text: str, broken: str = ""
) -> PassDivergence:
    """Describe a pass that changed a graph; `broken` is an operation that cannot run any more."""
    old = {node.name: node for node in before.graph.nodes}
    new = {node.name: node for node in after.module.graph.nodes}
    gone = [node for name, node in old.items() if name not in new]
    come = [node for name, node in new.items() if name not in old]
    changed = [
        node
        for name, node in old.items()
        if name in new and (str(node.args), node.target) != (str(new[name].args), new[name].target)
    ]
    removed = tuple(dict.fromkeys(str(node.target) for node in gone))
    added = dict.fromkeys(str(node.target) for node in come)
    is_between = after.name.startswith("(") and bool(after.inside)
    location = Location(
        stage=after.stage,
        pass_name=after.inside[-1] if is_between else after.name,
        operation=broken or ", ".join(removed)[:300],
        text=text,
        names=(*after.patterns, *after.inside),
        removed=removed,
        added=tuple(name for name in added if "built-in" not in name),
        own_pass=after.users[-1] if after.users else "",
    )
    return PassDivergence(location, tuple(gone or changed))


# --- The first pass after which a node's metadata is not true of its value ------------------------
#
# Inductor trusts the metadata of nodes when it allocates memory and chooses kernels. Each kept
# graph is run node by node, and every value is compared with what its node says of it.


def first_false_metadata(watch: PassWatch, known: Mapping[str, Any]) -> PassDivergence | None:
    """Find the first pass that makes metadata false which stays false until its group ends.

    Pre-grad passes do not count, because AOTAutograd traces the graph anew after them.
    """
    for steps in watch.groups:
        if not steps or steps[0].stage == stages.PRE_GRAD_PASS:
            continue
        at_last = false_nodes(steps[-1].module, known)
        for before, after in itertools.pairwise(steps):
            if not at_last:
                break
            old, new = false_nodes(before.module, known), false_nodes(after.module, known)
            texts = [text for name, text in new.items() if name in at_last and name not in old]
            if texts:
                return divergence_at(before.module, after, texts[0])
    return None


def false_nodes(module: GraphModule, known: Mapping[str, Any]) -> dict[str, str]:
    """Describe false metadata, by node name; empty if the graph cannot run."""
    try:
        values = values_in_eager(module, inputs_for(module, known))
    except Exception:
        return {}
    said = {
        node.name: _falsehood(node, values.get(node.name))
        for node in module.graph.nodes
        if node.op == "call_function"
    }
    return {name: text for name, text in said.items() if text}


def _falsehood(node: Node, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return ""
    declared: Any = node.meta.get("val")
    who = f"node {node.name} ({node.target})"
    if declared is None:
        return f"{who} has no metadata"
    if not isinstance(declared, torch.Tensor):
        return f"{who} is said to be a {type(declared).__name__} and is a tensor"
    for said, found, is_true in (
        (declared.dtype, value.dtype, declared.dtype == value.dtype),
        (f"on {declared.device}", f"on {value.device}", declared.device.type == value.device.type),
        (
            f"of shape {list(declared.shape)}",
            list(value.shape),
            _is_shape(declared.shape, value.shape),
        ),
    ):
        if not is_true:
            return f"{who} is said to be {said} and is {found}"
    return ""


def _is_shape(declared: torch.Size, actual: torch.Size) -> bool:
    """Check a shape against the declared one, whose symbolic sizes match any size."""
    return len(declared) == len(actual) and all(
        not isinstance(size, int) or size == other
        for size, other in zip(declared, actual, strict=True)
    )
