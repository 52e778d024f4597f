"""Axes: parts of the compiler that can be switched off, one application at a time.

A part asks for a permit before each application, by name. Refusing every permit shows whether the
axis matters; granting the first n (fuel) finds the one application that does. Every trial is made
in a fork. An axis carries all facts about itself. A new one is a row of `AXES`, at the end of this
file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from inductoscope.doctor.delta_debugging import last_needed
from inductoscope.doctor.failure import HANG, Failure, Location, SuppressingAxis
from inductoscope.inside.compare.passes import pattern_classes, pattern_name
from inductoscope.inside.search.candidate import Candidate, CandidateTrial, special_flow
from inductoscope.inside.search.failure_signature import failure_of_answer
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import EagerFails, examine, patched, replaced
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.printed_graphs import with_usual_names

Permit = Callable[[str], bool]
Switch = Callable[[Permit], contextlib.AbstractContextManager[Any]]

# Stages that rewrite a graph, and stages that make a kernel of it.
_GRAPH_STAGES = (stages.DECOMPOSITION, *stages.PASSES)
_KERNEL_STAGES = (stages.LOWERING, stages.CODEGEN, stages.LOOP_BODY, stages.SCHEDULER)


@dataclass(frozen=True)
class Axis:
    """A part of the compiler, how to switch it off, and which stage to blame if that helps."""

    name: str
    # The stage to blame if the failure vanishes without it.
    stage: str
    # Completes the sentence 'The failure vanishes without {title}'.
    title: str
    # How much is lost without it: workarounds that lose less are tried first.
    loss: int
    # How precisely it points at its stage, compared with other axes that rewrite graphs, or with
    # other axes that do not: the lowest rank is the most telling.
    rank: int
    # Settings of torch._inductor.config that switch it off altogether.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Switches single applications off; None if only the settings do.
    by_code: Switch | None = None
    # Whether the axis can matter for a candidate whose failure is located there.
    applies: Callable[[Candidate, Location], bool] = lambda candidate, place: True
    # Whether it rewrites graphs. If every graph is known to be right, the axis is not to blame.
    rewrites_graph: bool = False
    # Further stages in which it acts.
    also_acts_in: tuple[str, ...] = ()
    # Whether the name of an application is the name of a pass, or of an operation.
    names_passes: bool = False
    names_operations: bool = False
    # Code for users that switches off one application by name.
    snippet: Callable[[str], str] | None = None

    def __reduce__(self) -> tuple[Callable[[str], Axis], tuple[str]]:
        """Pickle the name alone, because every process defines the same axes."""
        return axis_named, (self.name,)

    def switch(self, permit: Permit) -> contextlib.AbstractContextManager[Any]:
        """Run the block with this part of the compiler active only where `permit` allows it."""
        if self.by_code is not None:
            return self.by_code(permit)
        return contextlib.nullcontext() if permit(self.name) else patched(self.settings)

    def is_relevant(self, candidate: Candidate, location: Location) -> bool:
        """Check whether switching this axis off can explain a failure of the candidate there."""
        if not self.applies(candidate, location) or location.stage == stages.AOT:
            return False
        if location.stage in _GRAPH_STAGES:
            return location.stage in (self.stage, *self.also_acts_in)
        if location.stage in (stages.LOWERING, stages.CODEGEN) or location.kernel:
            return self.stage in _KERNEL_STAGES
        return True


def axis_named(name: str) -> Axis:
    return next(axis for axis in AXES if axis.name == name)


@dataclass
class Fuel:
    """A permit for the first `amount` applications, which records the names of all of them."""

    amount: int
    names: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> bool:
        self.names.append(name)
        return len(self.names) <= self.amount


# --- switches -------------------------------------------------------------------------------------


def subsystem_switch(subsystem: str) -> Switch:
    """Return a switch for a subsystem of torch's CompilerBisector, one application at a time."""

    def switch(permit: Permit) -> contextlib.AbstractContextManager[None]:
        from torch._inductor.compiler_bisector import CompilerBisector

        def disable_subsystem(
            original: Any,
            cls: Any,
            backend: str,
            asked: str,
            debug_info: Callable[[], str] | None = None,
        ) -> bool:
            if asked != subsystem:
                return False
            name = asked if debug_info is None else with_usual_names(str(debug_info()))
            return not permit(name)

        return replaced(CompilerBisector, "disable_subsystem", disable_subsystem)

    return switch


def _without_dynamic_shapes(permit: Permit) -> contextlib.AbstractContextManager[None]:
    if permit("dynamic shapes"):
        return contextlib.nullcontext()
    settings = {"assume_static_by_default": True, "automatic_dynamic_shapes": False}
    return patched(settings, "torch._dynamo.config")


@contextlib.contextmanager
def _without_decompositions(permit: Permit) -> Iterator[None]:
    """Run an operation that is not decomposed as a fallback kernel, despite the table's entry."""
    from torch._inductor import graph, lowering

    def make_fallback(original: Any, *args: Any, **more: Any) -> Any:
        return original(*args, **{**more, "override_decomp": True})

    with (
        replaced(graph, "make_fallback", make_fallback),
        replaced(lowering, "make_fallback", make_fallback),
        subsystem_switch("decomposition")(permit),
    ):
        yield


@contextlib.contextmanager
def _without_patterns(permit: Permit) -> Iterator[None]:
    from torch._inductor import pattern_matcher

    def apply(original: Any, entry: Any, match: Any, *args: Any, **more: Any) -> Any:
        if permit(pattern_name(entry, match)):
            return original(entry, match, *args, **more)
        return None

    with contextlib.ExitStack() as stack:
        for entry in pattern_classes(pattern_matcher):
            stack.enter_context(replaced(entry, "apply", apply))
        yield


def _without_fusion(permit: Permit) -> contextlib.AbstractContextManager[None]:
    from torch._inductor.scheduler import Scheduler

    def can_fuse(
        original: Any, scheduler: Any, one: Any, two: Any, *args: Any, **more: Any
    ) -> bool:
        allowed = original(scheduler, one, two, *args, **more)
        return bool(allowed and permit(f"{one.get_name()} with {two.get_name()}"))

    return replaced(Scheduler, "can_fuse", can_fuse)


def _without_vectorisation(permit: Permit) -> contextlib.AbstractContextManager[None]:
    from torch._inductor.codegen import cpp

    def select_tiling(original: Any, *args: Any, **more: Any) -> Any:
        factors, indices, *rest = original(*args, **more)
        if factors and not permit("a C++ kernel"):
            factors, indices = [], []
        return (factors, indices, *rest)

    return replaced(cpp.TilingSelect, "select_tiling", select_tiling)


def _without_cpp_optimisation(permit: Permit) -> contextlib.AbstractContextManager[None]:
    from torch._inductor import cpp_builder

    def flags(original: Any, *args: Any, **more: Any) -> Any:
        found, linking = original(*args, **more)
        if not permit("-O3"):
            found = ["O0" if flag == "O3" else flag for flag in found]
        return found, linking

    return replaced(cpp_builder, "_get_optimization_cflags", flags)


# --- which of them a failure needs ----------------------------------------------------------------


def relevant_axes(candidate: Candidate, failure: Failure, location: Location) -> list[Axis]:
    axes = [axis for axis in AXES if axis.is_relevant(candidate, location)]
    if failure.kind == HANG:
        # Each axis that does not help costs the whole time limit.
        axes = [axis for axis in axes if axis.stage == location.stage]
    return axes


def find_suppressing_axes(
    candidate: Candidate, failure: Failure, axes: Sequence[Axis], forks: Forks
) -> list[SuppressingAxis]:
    """Return the axes without which the failure vanishes, each with its application."""
    found = []
    tried = forks.ask_all([TrialWithout(candidate, axis) for axis in axes])
    for axis, answer in zip(axes, tried, strict=True):
        if not answer.result or answer.result["failure"] is not None:
            continue
        if not answer.result["names"]:
            continue  # No permit was asked for, so the axis is not the reason.
        name = _last_application(candidate, failure, axis, answer.result["names"], forks)
        found.append(suppressing(axis, name))
    return found


def suppressing(axis: Axis, application: str) -> SuppressingAxis:
    return SuppressingAxis(
        axis.name,
        axis.stage,
        axis.title,
        application,
        rank=axis.rank,
        rewrites_graph=axis.rewrites_graph,
        names_passes=axis.names_passes,
        names_operations=axis.names_operations,
    )


def _last_application(
    candidate: Candidate, failure: Failure, axis: Axis, names: list[str], forks: Forks
) -> str:
    """Find the application with which the failure first appears, by limiting fuel."""
    if len(names) == 1:
        return names[0]
    if failure.kind == HANG:
        return ""  # Each trial would cost the whole time limit.
    # Permitting one application may change which others are asked for.
    asked: dict[int, list[str]] = {}

    def fail(amounts: Sequence[int]) -> list[bool]:
        answers = forks.ask_all([TrialWithout(candidate, axis, amount) for amount in amounts])
        for amount, answer in zip(amounts, answers, strict=True):
            asked[amount] = answer.result["names"] if answer.result else []
        found = map(failure_of_answer, answers)
        return [each is not None and each.is_same_as(failure) for each in found]

    number = last_needed(len(names), fail, forks.guesses)
    is_shown = number in asked or fail([number])[0]
    return asked[number][number - 1] if is_shown and len(asked[number]) >= number else ""


@dataclass(frozen=True)
class TrialWithout(CandidateTrial):
    """A trial of the candidate with only the first `amount` applications of an axis."""

    axis: Axis
    amount: int = 0

    def __call__(self) -> dict[str, object]:
        fuel = Fuel(self.amount)
        try:
            failure = examine(self.candidate, lambda: self.axis.switch(fuel))
        except EagerFails:
            return {"failure": None, "names": []}
        return {"failure": failure, "names": fuel.names}


# --- the table ------------------------------------------------------------------------------------


def _on_cpu(candidate: Candidate, place: Location) -> bool:
    devices = [each.device for each in _tensors(candidate)]
    return all(torch.device(d).type == "cpu" for d in [candidate.device or "cpu", *devices])


def _on_gpu(candidate: Candidate, place: Location) -> bool:
    return not _on_cpu(candidate, place)


def _tensors(candidate: Candidate) -> list[torch.Tensor]:
    return [value for value in candidate.inputs if isinstance(value, torch.Tensor)]


def _has_half_precision(candidate: Candidate, place: Location) -> bool:
    return any(value.dtype in (torch.float16, torch.bfloat16) for value in _tensors(candidate))


def _with_any(*settings: str) -> Callable[[Candidate, Location], bool]:
    """Return the condition that one of these settings is switched on."""

    def applies(candidate: Candidate, place: Location) -> bool:
        own = {**candidate.options, **candidate.config}
        return any(own.get(name) for name in settings)

    return applies


def _disabled_pass(name: str) -> str:
    return f"torch._inductor.config.disabled_passes = {name!r}"


# In the order of the compiler's stages: name, stage, title, loss, rank, and what switches it off.
# fmt: off
AXES: tuple[Axis, ...] = (
    # Sizes that are kept symbolic, so that one kernel serves many shapes.
    Axis("dynamic shapes", stages.LOOP_BODY, "dynamic shapes", 3, 120,
         by_code=_without_dynamic_shapes, applies=lambda candidate, place: bool(candidate.dynamic),
         snippet=lambda name: "torch._dynamo.config.automatic_dynamic_shapes = False"),
    # Passes over the graph that Dynamo captured, before gradients are taken.
    Axis("pre-grad passes", stages.PRE_GRAD_PASS, "the pre-grad passes", 2, 10,
         by_code=subsystem_switch("pre_grad_passes"), rewrites_graph=True, snippet=_disabled_pass),
    Axis("decompositions", stages.DECOMPOSITION, "decompositions", 2, 20,
         by_code=_without_decompositions, rewrites_graph=True, names_operations=True),
    # Passes over the joint graph of forward and backward.
    Axis("joint passes", stages.JOINT_PASS, "the joint graph passes", 2, 30,
         {"joint_graph_constant_folding": False, "use_joint_graph_passes": False},
         by_code=subsystem_switch("joint_graph_passes"), rewrites_graph=True,
         snippet=_disabled_pass),
    Axis("patterns", stages.JOINT_PASS, "pattern replacements", 3, 50, {"pattern_matcher": False},
         by_code=_without_patterns, rewrites_graph=True, names_passes=True,
         also_acts_in=(stages.PRE_GRAD_PASS, stages.POST_GRAD_PASS)),
    Axis("freezing", stages.POST_GRAD_PASS, "freezing of weights", 2, 130, {"freezing": False},
         applies=_with_any("freezing")),
    # Passes over the forward and the backward graph.
    Axis("post-grad passes", stages.POST_GRAD_PASS, "the post-grad passes", 2, 40,
         by_code=subsystem_switch("post_grad_passes"), rewrites_graph=True,
         snippet=_disabled_pass),
    # Channels-last and other layouts that Inductor chooses.
    Axis("layout optimisation", stages.LOWERING, "layout optimisation", 1, 80,
         {"layout_optimization": False}),
    Axis("padding", stages.LOWERING, "padding of strides and shapes", 1, 90,
         {"comprehensive_padding": False, "shape_padding": False}),
    # Intermediate results of half precision kept in float32.
    Axis("precision casts", stages.LOWERING, "keeping intermediate results in higher precision",
         2, 140, {"emulate_precision_casts": True},
         applies=_has_half_precision),
    Axis("split reductions", stages.LOWERING, "the splitting of reductions", 1, 150,
         {"split_reductions": False}),
    # Lowering of one node to loops; without it the node runs as eager's own kernel.
    Axis("lowerings", stages.LOWERING, "lowering to loops", 2, 180,
         by_code=subsystem_switch("lowerings"), names_operations=True),
    Axis("autotuning", stages.AUTOTUNE, "the choice of kernels by timing", 3, 160,
         {"max_autotune": False, "max_autotune_gemm": False, "max_autotune_pointwise": False},
         applies=_with_any("max_autotune", "max_autotune_gemm")),
    # A C++ wrapper on a GPU has its kernels tuned while they are compiled.
    Axis("tuning while compiling", stages.AUTOTUNE,
         "launches of kernels on made-up inputs while they are compiled", 1, 155,
         {"triton.autotune_at_compile_time": False},
         applies=lambda candidate, place: (
             _on_gpu(candidate, place) and bool(special_flow(candidate)))),
    Axis("fusion", stages.SCHEDULER, "fusion of kernels", 4, 10, {"max_fusion_size": 1},
         by_code=_without_fusion),
    Axis("loop ordering", stages.SCHEDULER, "the choice of loop orders", 1, 70,
         {"pick_loop_orders": False, "loop_ordering_after_fusion": False}),
    # A kernel that writes over one of its inputs.
    Axis("in-place buffers", stages.SCHEDULER, "writing in place", 1, 60,
         {"inplace_buffers": False}),
    # Values of loop bodies that are known from their indices.
    Axis("index propagation", stages.LOOP_BODY, "constant and index propagation", 1, 40,
         {"constant_and_index_propagation": False}),
    Axis("vectorisation", stages.CODEGEN, "vectorisation of C++ loops", 3, 20, {"cpp.simdlen": 1},
         by_code=_without_vectorisation, applies=_on_cpu),
    Axis("loop tail", stages.CODEGEN, "vectorised loop tails", 1, 30,
         {"cpp.enable_loop_tail_vec": False}, applies=_on_cpu),
    # Memory of a dead buffer taken for a new one.
    Axis("buffer reuse", stages.WRAPPER, "the reuse of buffers", 1, 50,
         {"allow_buffer_reuse": False}),
    Axis("fast math", stages.CPP_COMPILE, "unsafe floating point optimisation in C++", 1, 100,
         {"cpp.enable_unsafe_math_opt_flag": False,
          "cpp.enable_floating_point_contract_flag": "off"}, applies=_on_cpu),
    Axis("C++ optimisation", stages.CPP_COMPILE, "optimisation by the C++ compiler", 6, 110,
         by_code=_without_cpp_optimisation,
         applies=lambda candidate, place: _on_cpu(candidate, place) and not place.stage),
    Axis("cudagraphs", stages.RUNTIME, "CUDA graphs", 2, 170,
         {"triton.cudagraphs": False, "triton.cudagraph_trees": False},
         applies=_on_gpu),
)
# fmt: on
