"""The kernels of the program's own compiled graph, each compared with eager in one more call.

Nothing is compiled for that, unless the wrapper is C++.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inductoscope.doctor.compare.kept_wrappers import KEPT
from inductoscope.doctor.compare.kernels import EnoughSeen, KernelWatch
from inductoscope.doctor.compare.values import run
from inductoscope.doctor.compare.watched_graphs import KernelDivergence
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import Work, can_fork
from inductoscope.doctor.search.lowering_or_codegen import lowering_or_codegen
from inductoscope.doctor.search.wrong_result_location import names_in_first_graph


def work_on_own_kernels(candidate: Candidate) -> Work | None:
    """Work for a fork of the process that has the compiled graph; None in any other."""
    compiled = KEPT.called
    if compiled is None or not can_fork():
        return None
    return lambda: first_wrong_own_kernel(candidate, compiled)


def first_wrong_own_kernel(candidate: Candidate, compiled: Callable[..., Any]) -> Location:
    """In a fork: the first kernel that differs; an unknown location if none does."""
    found: list[Location] = []

    def keep(divergence: KernelDivergence) -> None:
        found.append(_location(candidate, divergence))
        raise EnoughSeen

    watch = KernelWatch(on_divergence=keep)
    with watch.watching_loaded(KEPT.wrappers):
        try:
            run(compiled, candidate.inputs, backward=candidate.backward)
        except Exception:
            if not found:
                raise
    return found[0] if found else Location()


def _location(candidate: Candidate, found: KernelDivergence) -> Location:
    nodes = [node for node in found.graph.module.graph.nodes if node.name in found.origins]
    origin = next((node for node in nodes if node.name == found.node), None)
    known = {node.name for node in candidate.operations}
    is_known = found.graph.lowered is not None
    stage, how = lowering_or_codegen(found) if is_known else ("", "")
    return Location(
        stage=stage,
        operation="" if origin is None else str(origin.target),
        kernel=found.kernel,
        text=f"{found.text} (buffer {found.buffer} of kernel {found.kernel}, node {found.node})",
        how=how,
        suspects=tuple(sorted(known & names_in_first_graph(nodes))),
    )
