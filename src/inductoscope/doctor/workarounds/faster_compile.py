"""What may make a compile faster: settings and parts to do without, tried on the graph itself."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inductoscope.doctor.handover import GraphWorkaround
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.compile_costs import measure
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.stack_samples import file_of
from inductoscope.doctor.workarounds.proposals import ProposedWorkaround, propose_workarounds
from inductoscope.profiling.overruling import at_last
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.frames import is_users

# What is worth to be offered: less than this much of the time is left.
_HELPS = 0.5
_MOST_TRIED = 5

_SMALLER_KERNELS = (
    {"max_fusion_size": 8},
    {"realize_opcount_threshold": 8},
    {"max_fusion_size": 1},
)

# Settings of torch._inductor.config that take work from a stage, those that lose least first.
_SETTINGS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    stages.JOINT_PASS: ({"joint_graph_constant_folding": False}, {"pattern_matcher": False}),
    stages.POST_GRAD_PASS: ({"reorder_for_locality": False}, {"pattern_matcher": False}),
    stages.LOWERING: ({"realize_opcount_threshold": 8}, {"realize_reads_threshold": 2}),
    stages.SCHEDULER: (
        {"reorder_for_peak_memory": False},
        {"loop_ordering_after_fusion": False},
        *_SMALLER_KERNELS,
    ),
    stages.CODEGEN: (*_SMALLER_KERNELS, {"cpp.simdlen": 1}),
    stages.CPP_COMPILE: (*_SMALLER_KERNELS, {"cpp.simdlen": 1}),
}


def faster_compiles(
    candidate: Candidate,
    location: Location,
    operations: Sequence[str],
    forks: Forks,
    *,
    until: str,
    before: float,
    seconds: float,
) -> list[GraphWorkaround]:
    """The first that makes the slow stage take less than half, measured on a graph.

    `before` is what the stage takes without any of it, in a compile that goes as far as `until`
    needs; a fork takes at most `seconds` besides.
    """
    for proposal in _proposals(location, operations):
        measured = measure(
            candidate,
            forks,
            seconds=_HELPS * before + seconds,
            until=until,
            stage=location.stage,
            around=functools.partial(_applied, proposal),
        )
        after = measured.cost.seconds_of(location.stage)
        if not measured.error and not measured.cost.ended_in and after < _HELPS * before:
            text, code = proposal.text, proposal.code
            return [GraphWorkaround(text, code, before=before, after=round(after, 3))]
    return []


def _proposals(location: Location, operations: Sequence[str]) -> list[ProposedWorkaround]:
    settings = [_of_settings(each) for each in _SETTINGS.get(location.stage, ())]
    named = [location.operation] if location.operation else list(operations)
    operations = named if location.stage in (stages.LOWERING, stages.DECOMPOSITION) else ()
    others = propose_workarounds(location.stage, operations, [location.pass_name], ())
    of_parts = [each for each in others if each.loss < _LAST]
    if location.stage == stages.LOWERING and is_users(file_of(location.function)):
        # The program replaces the lowering after it has imported torch, so what is done then.
        of_parts = [replace(each, code=at_last(each.code).strip()) for each in of_parts]
    last = [each for each in others if each.loss >= _LAST]
    return [*[*of_parts, *settings][:_MOST_TRIED], *last]


# The loss of what does without Inductor.
_LAST = 9


def _of_settings(settings: Mapping[str, Any]) -> ProposedWorkaround:
    lines = [f"torch._inductor.config.{name} = {value!r}" for name, value in settings.items()]
    code = "import torch._inductor.config\n" + "\n".join(lines)
    return ProposedWorkaround(code, "; ".join(lines), 2)


@contextlib.contextmanager
def _applied(proposal: ProposedWorkaround) -> Iterator[None]:
    """In a fork: nothing has to be put back."""
    exec(f"import torch\n{proposal.code}", {})
    yield
