"""Signs that compiled code may be too slow, from events that the first run recorded anyway.

Nothing is run here. Suspicions are measured by the hypotheses that use them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inductoscope.analysis.rules import SLOWNESS, diagnose, findings_of
from inductoscope.analysis.rules.dynamo import limit_of, main_guard, recompiles
from inductoscope.analysis.rules.finding import Finding
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.finding import Workaround
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.runs import every_check_passed
from inductoscope.doctor.verdict import Verdict
from inductoscope.model.entities import Compile, Recording
from inductoscope.profiling.flip_trials import FlipTrial
from inductoscope.profiling.turns import ProgramRuns
from inductoscope.recording.events import Check
from inductoscope.torch_facts.guard_reasons import FailedGuard

# A program that runs for more seconds is not timed, because that takes up to a dozen runs.
LONGEST_TO_TIME = 120.0
# A graph is suspicious from this multiple of eager's time, and this loss in seconds per call, on.
_SUSPICIOUS = 1.25
_LEAST_LOSS = 200e-6
# The fewest calls after the first, which is a warm-up.
_FEWEST_CALLS = 3

# With this many parts of broken graphs that each take less time than this, the guards and the call
# from Python of each part may dominate.
_FEWEST_PARTS = 4
# The calls of a part from which on it is called often.
_OFTEN = 8
_SMALL_PART = 200e-6

# Rules about the code of kernels, not about how often they are compiled.
_OF_CODE = tuple(rule for rule in SLOWNESS if rule not in ("recompiles", "graph_breaks"))


def may_be_slower(recording: Recording) -> bool:
    times = _steady_times(recording)
    if _is_in_parts(recording, times) or any(
        compiled > _SUSPICIOUS * eager and compiled - eager > _LEAST_LOSS
        for eager, compiled in times.values()
    ):
        return True
    behind = {name for name, (eager, compiled) in times.items() if compiled > eager}
    # Rules are applied only to graphs that took longer than in eager.
    return bool(behind) and any(
        finding.rule in _OF_CODE and finding.compile in behind for finding in diagnose(recording)
    )


def _is_in_parts(recording: Recording, times: Mapping[str, tuple[float, float]]) -> bool:
    broken = {compile_.id for compile_ in recording.compiles if compile_.breaks}
    often = {check.compile for check in recording.checks if check.call >= _OFTEN}
    parts = [times[name] for name in broken & often if name in times]
    return len(parts) >= _FEWEST_PARTS and all(compiled < _SMALL_PART for _, compiled in parts)


def _steady_times(recording: Recording) -> dict[str, tuple[float, float]]:
    """Return the median in eager and compiled of each graph that is called often enough.

    The first call does not count.
    """
    found: dict[str, list[Check]] = {}
    for check in recording.checks:
        if check.call > 1 and check.eager > 0 and check.compiled > 0:
            found.setdefault(check.compile, []).append(check)
    return {
        name: (median(each.eager for each in calls), median(each.compiled for each in calls))
        for name, calls in found.items()
        if len(calls) >= _FEWEST_CALLS
    }


# --- recompiles -----------------------------------------------------------------------------------

# The number that torch allows before it gives up; fewer may be a short test.
_FEWEST_VALUES = 8
# The least share of the compiles in the whole run.
_MOST_OF_THE_RUN = 0.5
# Versions of a function with more calls than this were worth their compile.
_CALLS_THAT_PAY = 2


@dataclass(frozen=True)
class WastedCompiles:
    """A function that is recompiled for each value of a variable that changes in a loop."""

    finding: Finding
    guard: FailedGuard
    compiles: tuple[Compile, ...]
    # torch's own limit, if it was reached.
    limit: str
    # Calls that ran compiled.
    calls: int

    @property
    def recompiles(self) -> int:
        return sum(compile_.is_recompile for compile_ in self.compiles)

    @property
    def seconds(self) -> float:
        return sum(compile_.seconds for compile_ in self.compiles)


def wasted_compiles(recording: Recording, seconds: float) -> Iterator[WastedCompiles]:
    """Yield functions whose compiled versions are hardly called before the next recompile.

    Only functions whose compiles take most of the run, which took `seconds`, count.
    """
    for finding in findings_of(recompiles, recording):
        last = next((c for c in recording.compiles if c.id == finding.compile), None)
        if last is None:
            continue
        same = (last.process, last.function, last.place)
        every = [c for c in recording.compiles if (c.process, c.function, c.place) == same]
        again = tuple(compile_ for compile_ in every if compile_.recompile is not None)
        names = {compile_.id for compile_ in every}
        calls = [check for check in recording.checks if check.compile in names]
        found = WastedCompiles(finding, main_guard(again), again, limit_of(again), len(calls))
        is_most = sum(compile_.seconds for compile_ in every) > _MOST_OF_THE_RUN * seconds
        is_known = not names & {*recording.unchecked, *recording.shared}
        if is_most and is_known and _is_wasted(found, calls):
            yield found


def _is_wasted(found: WastedCompiles, calls: Sequence[Check]) -> bool:
    if not found.guard.is_about_a_value or not _is_one_loop(found.compiles):
        return False
    if len(found.compiles) < _FEWEST_VALUES or not (found.limit or found.guard.is_number):
        return False
    return bool(calls) and max(check.call for check in calls) <= _CALLS_THAT_PAY


def _is_one_loop(compiles: Sequence[Compile]) -> bool:
    """Check whether the same line of the program called it each time."""
    return len({c.recompile.callers for c in compiles if c.recompile}) == 1


# --- Trials on a slow program ---------------------------------------------------------------------

# No further run is begun after this many seconds.
TIME_FOR_TRIALS = 300.0


def offer(case: ProgramCase, trial: FlipTrial, result: Verdict) -> None:
    """Offer a helpful change as a workaround, if the program's results are right with it."""
    flip = trial.flip
    instructions = Instructions(
        calls=case.instructions.calls,
        workaround=flip.statements,
        investigate=False,
    )
    run = case.runs.again(instructions, f"checking the program's results with {flip.change}")
    if not every_check_passed(run):
        result.add(f"{flip.change} is faster; not all results could be confirmed", "one run")
        return
    # For avoided compiles, the ratio is that of the whole run, not of a call.
    slowdown = None if flip.is_tried_cold else trial.ratio
    result.workaround = Workaround(
        flip.change, True, slowdown, flip.to_paste, flip.predicted, trial.saved
    )
    result.add(f"with {flip.change} every result that was checked is right", "one run")


@contextlib.contextmanager
def trials_in(case: ProgramCase, seconds: float) -> Iterator[ProgramRuns]:
    """Yield runs of at most so many seconds, on the examination's disk; then count them."""
    with tempfile.TemporaryDirectory(prefix="trials-", dir=case.runs.folder) as folder:
        runs = ProgramRuns(
            case.runs.command,
            Path(folder),
            case.say,
            seconds=seconds,
            total=TIME_FOR_TRIALS,
            usual_code=case.first.ending.exit_code,
            stdin=case.runs.stdin or Path(os.devnull),
        )
        yield runs
    case.runs.count += runs.made
