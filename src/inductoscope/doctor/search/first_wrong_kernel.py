"""The first kernel that is wrong, in a graph that computes wrong numbers or dies.

The kernel that fails need not be the guilty one: it may read what an earlier one has computed
wrongly, or overwritten. So every kernel's buffers are compared with eager until the first differs.
If none does, the kernel that does not return has read only right values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch.fx import Node

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.compare.kernels import EnoughSeen, KernelWatch
from inductoscope.doctor.compare.watched_graphs import KernelDivergence, WatchedGraph
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.fork_answer import ForkAnswer, Work
from inductoscope.doctor.search.fork_pipe import PipeWriter
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import compiling, run_compiled
from inductoscope.doctor.search.placement import placed
from inductoscope.doctor.search.wrong_result_location import (
    Retraced,
    dynamo_names,
    in_custom_operators,
    location_at_kernel,
    location_of_answer,
)
from inductoscope.recording.codec import decode
from inductoscope.recording.events.checking import KernelLaunched
from inductoscope.recording.signals import signal_name
from inductoscope.vocabulary import stages


@dataclass(frozen=True)
class WrongKernel:
    """The first kernel that is wrong; nothing is known where its location names none."""

    location: Location
    # Otherwise it dies or raises, on values that are right.
    computes_wrong_numbers: bool = False


@dataclass(frozen=True)
class _Watched:
    """What one call of the graph showed."""

    location: Location
    # The last kernel that has returned, and what was raised.
    returned: str
    raised: str


def first_wrong_kernel(candidate: Candidate, forks: Forks) -> WrongKernel:
    """The first kernel whose result differs from eager, or which fails on right values."""
    return wrong_kernel_in(forks.ask(kernel_work(candidate)))


def kernel_work(candidate: Candidate) -> Work:
    """Work for a fork that looks for it; `wrong_kernel_in` reads the answer."""
    return lambda: _watched(candidate)


def wrong_kernel_in(answer: ForkAnswer) -> WrongKernel:
    """The kernel that a fork has found, or that it has died or hung in."""
    watched = decode(_Watched, answer.result) if answer.result else None
    if watched is not None and watched.location.kernel:
        return WrongKernel(watched.location, computes_wrong_numbers=True)
    return WrongKernel(_that_fails(answer, watched))


def guilty_in_program(candidate: Candidate, forks: Forks) -> Location:
    """The first wrong kernel, unless a custom operator of the program breaks its declaration."""
    declared = location_of_answer(forks.ask(lambda: in_custom_operators(placed(candidate))))
    return declared if declared.is_known else first_wrong_kernel(candidate, forks).location


def _watched(candidate: Candidate) -> _Watched:
    """In a fork: call the graph until a kernel is wrong, or raises."""
    candidate = placed(candidate)
    seen, found = Retraced(), [Location()]
    returned: list[str] = []

    def keep(divergence: KernelDivergence) -> None:
        found[0] = location_at_kernel(candidate, seen, divergence)
        raise EnoughSeen  # What comes next may end this process, or lose it the GPU.

    def tell_nodes(graph: WatchedGraph, buffers: dict[str, list[str]]) -> None:
        """The parent has to know them should this process die."""
        found = {
            kernel: seen.in_candidate(candidate, dynamo_names(_nodes_of(graph, names)))
            for kernel, names in buffers.items()
        }
        if isinstance(SCOPE.writer, PipeWriter):
            SCOPE.writer.note(kernels=found)

    watch = KernelWatch(on_divergence=keep, on_kernel=returned.append, on_graph=tell_nodes)
    raised = ""
    with compiling(candidate), watch.watching():
        try:
            run_compiled(candidate, seen.compiled(candidate))
        except Exception as error:
            raised = type(error).__name__
    return _Watched(found[0], returned[-1] if returned else "", raised)


def _that_fails(answer: ForkAnswer, watched: _Watched | None) -> Location:
    """The kernel that was launched and did not return; an unknown one if all of them did."""
    launched = [event.kernel for event in answer.events if isinstance(event, KernelLaunched)]
    if not launched or answer.last_stage is not None:
        return Location()
    how = "the last kernel launched; no buffer that could be compared before it differs from eager"
    suspects = tuple(_nodes_told(answer).get(launched[-1], ()))
    place = Location(stage=stages.RUNTIME, kernel=launched[-1], how=how, suspects=suspects)
    if answer.timed_out:
        return replace(place, text=f"kernel {launched[-1]} did not return")
    if answer.signal is not None:
        name = signal_name(answer.signal)
        return replace(place, text=f"the process died of {name} in kernel {launched[-1]}")
    if watched is not None and watched.raised and watched.returned != launched[-1]:
        return replace(place, text=f"kernel {launched[-1]} raised {watched.raised}")
    return Location()


def _nodes_of(graph: WatchedGraph, buffers: Sequence[str]) -> list[Node]:
    """The nodes from which buffers are computed."""
    names = graph.nodes_in(buffers)
    return [node for node in graph.module.graph.nodes if node.name in names]


def _nodes_told(answer: ForkAnswer) -> dict[str, list[str]]:
    """The candidate's nodes that each kernel computes, as the fork told them."""
    found: dict[str, list[str]] = {}
    for note in answer.notes:
        found.update(note.get("kernels") or {})
    return found
