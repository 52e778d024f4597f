"""The kernels of the program's own compiled graph, each compared with eager in one more call.

Nothing is compiled for that, unless the wrapper is C++.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Node

from inductoscope.doctor.compare.kept_wrappers import KEPT
from inductoscope.doctor.compare.kernels import EnoughSeen, KernelWatch
from inductoscope.doctor.compare.values import run
from inductoscope.doctor.compare.watched_graphs import KernelDivergence
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.fork_answer import Work
from inductoscope.doctor.search.forks import can_fork
from inductoscope.doctor.search.lowering_or_codegen import lowering_or_codegen
from inductoscope.doctor.search.oracle import compiling
from inductoscope.doctor.search.suspects import nodes_wrong_in_kernel
from inductoscope.doctor.search.wrong_result_location import names_in_first_graph


def work_on_own_kernels(candidate: Candidate, *, closely: bool = False) -> Work | None:
    """Work for a fork of the process that has the compiled graph; None in any other.

    `closely` also compiles each operation of a wrong kernel on its own.
    """
    compiled = KEPT.called
    if compiled is None or not can_fork():
        return None
    return lambda: first_wrong_own_kernel(candidate, compiled, closely=closely)


def first_wrong_own_kernel(
    candidate: Candidate, compiled: Callable[..., Any], *, closely: bool = False
) -> Location:
    """In a fork: the first kernel that differs; an unknown location if none does."""
    found: list[tuple[Location, KernelDivergence]] = []

    def keep(divergence: KernelDivergence) -> None:
        # At once: what buffers held is forgotten afterwards.
        found.append((_location(candidate, divergence), divergence))
        raise EnoughSeen

    watch = KernelWatch(on_divergence=keep)
    with watch.watching_loaded(KEPT.wrappers):
        try:
            run(compiled, candidate.inputs, backward=candidate.backward)
        except Exception:
            if not found:
                raise
    if not found:
        return Location()
    location, divergence = found[0]
    return _closer(location, candidate, divergence) if closely else location


def _closer(location: Location, candidate: Candidate, found: KernelDivergence) -> Location:
    """With the operations of the kernel that are wrong on their own, if some are."""
    with compiling(candidate):
        wrong = nodes_wrong_in_kernel(candidate, found)
    return replace(
        location,
        wrong_alone=tuple(dict.fromkeys(str(node.target) for node in wrong)),
        suspects=_suspects(candidate, wrong) or location.suspects,
    )


def _suspects(candidate: Candidate, nodes: Sequence[Node]) -> tuple[str, ...]:
    """The candidate's nodes that these nodes of Inductor's graph come from."""
    known = {node.name for node in candidate.operations}
    return tuple(sorted(known & names_in_first_graph(nodes)))


def _location(candidate: Candidate, found: KernelDivergence) -> Location:
    every = found.graph.module.graph.nodes
    nodes = [node for node in every if node.name in found.origins]
    in_kernel = [node for node in every if node.name in found.kernel_origins]
    origin = next((node for node in nodes if node.name == found.node), None)
    is_known = found.graph.lowered is not None
    stage, how = lowering_or_codegen(found) if is_known else ("", "")
    return Location(
        stage=stage,
        operation="" if origin is None else str(origin.target),
        kernel=found.kernel,
        text=f"{found.text} (buffer {found.buffer} of kernel {found.kernel}, node {found.node})",
        how=how,
        suspects=_suspects(candidate, nodes),
        of_kernel=_suspects(candidate, in_kernel),
        names=tuple(str(node.target) for node in nodes if node.target is not operator.getitem),
    )
