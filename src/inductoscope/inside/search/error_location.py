"""Finds the stage that raised an error, in a compile or at run time, and the kernel to blame.

The kernel that fails need not be the guilty one: it may read a buffer that an earlier kernel has
computed wrongly, or overwritten. So every kernel's buffers are compared with eager until the first
one differs. If none does, the kernel that does not return has read only right values.
"""

from __future__ import annotations

import contextlib
import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductoscope.doctor.failure import ERROR, HANG, SIGNAL, Failure, Location
from inductoscope.inside.compare.kernels import (
    EnoughSeen,
    KernelDivergence,
    KernelWatch,
    WatchedGraph,
)
from inductoscope.inside.compare.passes import PassWatch, first_break, first_false_metadata
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import ForkAnswer, Forks, PipeWriter, Work
from inductoscope.inside.search.oracle import (
    EagerFails,
    compiling,
    examine,
    no_further_than,
    run_compiled,
)
from inductoscope.inside.search.placement import placed
from inductoscope.inside.search.wrong_result_location import (
    Retraced,
    in_custom_operators,
    location_at_kernel,
    location_of_answer,
    wrong_with_backend,
)
from inductoscope.recording.codec import decode
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import device_error

_IN_BENCHMARK = (
    "Inductor called it only to time it, on inputs that it made up, whose integers are all zero: "
    "the benchmark is at fault, not what the program calls it with. For an operator of your own, "
    "register_custom_op_autotuning takes input_gen_fns that make inputs it accepts"
)
_KERNEL_CALL = re.compile(r"\s*(?:\w+ = )?((?:cpp_|triton_|extern_kernels\.|torch\.ops\.)[\w.]+)\(")


def locate_error(candidate: Candidate, failure: Failure, forks: Forks) -> Location:
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
