"""Workarounds that may help, as code that a user can paste; those that cost least come first."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from inductoscope.doctor.failure import ERROR, HANG, SIGNAL, Location
from inductoscope.doctor.finding import FailureFinding, GraphWorkaround
from inductoscope.inside.compare.values import copy_values
from inductoscope.inside.search.axes import Axis
from inductoscope.inside.search.candidate import Candidate, CandidateTrial
from inductoscope.inside.search.compile_costs import measure
from inductoscope.inside.search.forks import Forks, can_fork
from inductoscope.inside.search.oracle import EagerFails, Oracle, compiled, compiling, examine
from inductoscope.inside.search.placement import placed
from inductoscope.inside.search.stack_samples import file_of
from inductoscope.profiling.orders import at_last
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_users


@dataclass(frozen=True)
class ProposedWorkaround:
    """Statements to put before the first call of the compiled function."""

    code: str
    text: str
    loss: int

    @classmethod
    def of_settings(cls, lines: str, loss: int, text: str = "") -> ProposedWorkaround:
        """Make a workaround from settings of Inductor, one per line."""
        return cls(f"import torch._inductor.config\n{lines}", text or lines, loss)


def propose_workarounds(
    stage: str,
    operations: Sequence[str],
    pass_names: Sequence[str],
    suppressing: Sequence[tuple[Axis, str]],
) -> list[ProposedWorkaround]:
    """Workarounds that may help, the least loss first.

    `suppressing` are the axes that suppress the failure, each with the decisive application.
    """
    found = [
        *_for_passes(pass_names),
        *_for_operations(stage, operations),
        *_for_axes(suppressing),
        _LAST_RESORT,
    ]
    unique = {item.code: item for item in reversed(found)}
    return sorted(unique.values(), key=lambda item: item.loss)


_LAST_RESORT = ProposedWorkaround(
    'import functools\ntorch.compile = functools.partial(torch.compile, backend="aot_eager")',
    "compile without Inductor: torch.compile(…, backend='aot_eager')",
    9,
)
# Stages that skip an operation entirely if it falls back to eager's kernel.
_OF_OPERATIONS = (
    stages.DECOMPOSITION,
    stages.LOWERING,
    stages.CODEGEN,
    stages.LOOP_BODY,
    "",
)


def _for_passes(names: Sequence[str]) -> Iterator[ProposedWorkaround]:
    for name in names:
        if name and not name.startswith("("):
            line = f"torch._inductor.config.disabled_passes = {name!r}"
            yield ProposedWorkaround.of_settings(line, 1, f"disable this pass: {line}")


def _for_operations(stage: str, operations: Sequence[str]) -> Iterator[ProposedWorkaround]:
    """Propose falling back to eager's kernel for each of the first operations."""
    for operation in operations[:3]:
        parts = operation.split(".")
        if len(parts) != 3 or parts[0] not in ("aten", "prims"):
            continue
        overload = f"torch.ops.{operation}"
        yield ProposedWorkaround(
            "# Graphs in torch's cache were compiled without this: clear the cache once.\n"
            "import torch._inductor.decomposition, torch._inductor.lowering\n"
            f"torch._inductor.decomposition.decompositions.pop({overload}, None)\n"
            "torch._inductor.decomposition.fast_random_decomps.cache_clear()\n"
            f"torch._inductor.lowering.make_fallback({overload}, warn=False)",
            f"run {operation} with eager's kernel",
            2 if stage in _OF_OPERATIONS else 3,
        )


def _for_axes(suppressing: Sequence[tuple[Axis, str]]) -> Iterator[ProposedWorkaround]:
    for axis, application in suppressing:
        if axis.snippet is not None and application:
            yield ProposedWorkaround.of_settings(axis.snippet(application), axis.loss)
        if axis.settings:
            lines = _lines(axis.settings)
            text = f"do without {axis.title}: {'; '.join(lines)}"
            yield ProposedWorkaround.of_settings("\n".join(lines), axis.loss + 1, text)


def _lines(settings: Mapping[str, Any]) -> list[str]:
    return [f"torch._inductor.config.{key} = {value!r}" for key, value in settings.items()]


# --- Tries workarounds on the failing graph and measures what they cost ---------------------------

_CALLS = 20
_UNTRIED = 3
_LONGEST = 1.0
# Two measurements of the same thing that differ by more than this factor say nothing.
_STEADY = 1.25


def try_workarounds(
    candidate: Candidate,
    finding: FailureFinding,
    location: Location,
    suppressing: Sequence[tuple[Axis, str]],
    oracle: Oracle,
) -> list[GraphWorkaround]:
    """Return the workarounds with which the whole graph is right, the least loss first."""
    operations = [location.operation, *finding.reduction.operations]
    passes = [location.pass_name, *(name for name in location.names if name.isidentifier())]
    passes = passes if location.pass_name else []
    proposals = propose_workarounds(
        location.stage,
        list(dict.fromkeys(filter(None, operations))),
        list(dict.fromkeys(filter(None, passes))),
        suppressing,
    )
    if not can_fork():
        # Workarounds would affect each other in one process; they are tried on the program instead.
        return [GraphWorkaround(each.text, each.code) for each in proposals[:_UNTRIED]]
    working: list[tuple[ProposedWorkaround, float | None]] = []
    forks = oracle.forks
    # A call that has to raise an error takes no time that counts.
    is_timed = forks.is_here and not candidate.eager_raises
    for first in range(0, len(proposals), forks.workers):
        wave = proposals[first : first + forks.workers]
        answers = forks.ask_all(
            [TrialWithWorkaround(candidate, each.code, is_timed) for each in wave]
        )
        for proposal, answer in zip(wave, answers, strict=True):
            if answer.result and answer.result.get("works"):
                working.append((proposal, answer.result.get("seconds")))
        if working:
            break
    ends_without = finding.kind not in (HANG, SIGNAL, ERROR)
    if working and not forks.is_here and not candidate.eager_raises:
        # Times from different machines are not comparable.
        least, _ = working[0]
        working[0] = least, forks.ask(_timed(candidate, least.code)).result
    can_compare = ends_without and working and working[0][1]
    plain = forks.ask(_timed(candidate)).result if can_compare else None
    return [
        GraphWorkaround(each.text, each.code, seconds / plain if seconds and plain else None)
        for each, seconds in working
    ]


@dataclass(frozen=True)
class TrialWithWorkaround(CandidateTrial):
    """A trial of the candidate with a workaround: whether its results are right, and its time."""

    code: str
    is_timed: bool = True

    def __call__(self) -> dict[str, Any]:
        exec(self.code, {"torch": torch})
        try:
            works = examine(self.candidate) is None
        except EagerFails:
            works = False
        seconds = _timed(self.candidate)() if works and self.is_timed else None
        return {"works": works, "seconds": seconds}


def _timed(candidate: Candidate, code: str = "") -> Callable[[], float | None]:
    """Make work for a fork that returns the seconds of a compiled call; None if too noisy."""

    def work() -> float | None:
        exec(code, {"torch": torch})
        there = placed(candidate)
        with compiling(there, in_filled_memory=False):
            function = compiled(there)
            inputs = copy_values(there.inputs)
            function(*inputs)
            halves = [_shortest(lambda: function(*inputs)) for _ in range(2)]
            # On a machine that is busy with other work, no number is better than a wrong one.
            return min(halves) if max(halves) < _STEADY * min(halves) else None

    return work


def _shortest(call: Callable[[], Any]) -> float:
    """Return the seconds of the shortest of many calls."""
    best, begun = float("inf"), time.perf_counter()
    for _ in range(_CALLS):
        _wait_for_gpu()
        started = time.perf_counter()
        call()
        _wait_for_gpu()
        best = min(best, time.perf_counter() - started)
        if time.perf_counter() - begun > _LONGEST:
            break
    return best


def _wait_for_gpu() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


# --------------------------------------------------------------------------------------------------
# Settings, and parts to leave out, that may make a compile faster, tried on the graph itself.

# A proposal is worth offering if less than this share of the time is left.
_HELPS = 0.5
_MOST_TRIED = 5

_SMALLER_KERNELS = (
    {"max_fusion_size": 8},
    {"realize_opcount_threshold": 8},
    {"max_fusion_size": 1},
)

# Settings of torch._inductor.config that reduce the work of a stage, the least loss first.
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
    """Return the first proposal with which the slow stage takes less than half of its time.

    `before` is the time of the stage without proposals, in a compile up to `until`. A fork may
    take `seconds` in addition.
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
    lines = [_lines(each) for each in _SETTINGS.get(location.stage, ())]
    settings = [ProposedWorkaround.of_settings("\n".join(each), 2) for each in lines]
    of_parts = list(_for_passes([location.pass_name]))
    if location.stage in (stages.LOWERING, stages.DECOMPOSITION):
        named = [location.operation] if location.operation else operations
        of_parts += _for_operations(location.stage, named)
    if location.stage == stages.LOWERING and is_users(file_of(location.function)):
        # The program replaces the lowering after importing torch; the workaround must come later.
        of_parts = [replace(each, code=at_last(each.code).strip()) for each in of_parts]
    return [*[*of_parts, *settings][:_MOST_TRIED], _LAST_RESORT]


@contextlib.contextmanager
def _applied(proposal: ProposedWorkaround) -> Iterator[None]:
    """Apply a proposal in a fork, where nothing has to be restored."""
    exec(f"import torch\n{proposal.code}", {})
    yield
