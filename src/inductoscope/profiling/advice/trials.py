"""Tries changes in the user's program: compiled again, timed in turns, kept if beyond noise.

Every trial is a run of the whole program in a process and a cache of its own, in which every second
call of a compiled function is made in eager. What is compared between runs is the time of a
compiled call as a multiple of the eager ones around it, because that does not depend on what else
the machine does. A change that is not faster in its first run is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.profiling.advice.alternating import AGENT, IN_EAGER
from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.statistics import FEWEST_RUNS, Sample, TimeComparison, compare
from inductoscope.profiling.timings import FUNCTION
from inductoscope.profiling.turns import TimedRun, Variant, run_once

Say = Callable[[str], None]

BASE = Variant("as it is")

# After its first run, a change that takes more of the time than this is not worth another.
_PROMISING = 0.95
# A change saves at least so much to be worth a line of code.
_WORTHWHILE = 0.95
# Runs that compile from scratch; how often something is compiled does not vary by chance.
COLD_RUNS = 2
_WITHOUT_RECOMPILES = 0.8


@dataclass(frozen=True)
class Budget:
    """How much time trials may take."""

    # Runs of each variant, and the longest that one may take.
    runs: int = 2
    seconds: float = 300.0
    # How many times as long as in eager it has to take in the first run for more to be made.
    than_eager: float = 0.0


@dataclass(frozen=True)
class AgainstEager:
    """Calls of compiled functions, each as a multiple of the same function in eager."""

    # One value per compiled call, and one per call in eager, relative to the median in eager.
    compiled: Sample
    eager: Sample
    # Seconds in eager of all these calls, had each been made in eager at its median, per run.
    seconds: float
    calls: int

    @property
    def ratio(self) -> float:
        """How many times as long as in eager."""
        return self.compiled.median

    def compared(self) -> TimeComparison:
        """Whether compiled calls are slower than eager, beyond noise."""
        return compare(self.eager, self.compiled)


@dataclass(frozen=True)
class FlipTrial:
    """One change, and what it did to the program's compiled calls."""

    flip: Flip
    # Compiled calls without and with the change. For changes that avoid compiles: seconds per run.
    base: Sample
    changed: Sample
    # Seconds per run that it saves; negative if it costs some.
    saved: float = 0.0
    comparison: TimeComparison | None = None
    # Calls in a run that compiled something, without and with the change; None if not counted.
    compiles: tuple[int, int] | None = None
    error: str = ""

    @property
    def ratio(self) -> float:
        """What is left of the time with the change; 1 where it was not measured."""
        if not self.changed.count or self.base.median <= 0:
            return 1.0
        return self.changed.median / self.base.median

    @property
    def helps(self) -> bool:
        """Whether it is faster beyond noise, and by enough."""
        if not self.changed.count or self.error:
            return False
        if self.compiles is not None:
            fewer = self.compiles[1] < self.compiles[0]
            return fewer and max(self.changed.values) < _WITHOUT_RECOMPILES * min(self.base.values)
        differs = self.comparison is not None and self.comparison.differs
        return differs and self.ratio < _WORTHWHILE

    @property
    def how(self) -> str:
        """How it was established."""
        if self.error or self.comparison is None:
            return self.error or _how_counted(self)
        calls = f"{self.changed.count} compiled calls with the change, {self.base.count} without"
        return f"{calls}, each against eager in the same run; {_certainty(self.comparison)}"


def _how_counted(trial: FlipTrial) -> str:
    before, after = trial.compiles or (0, 0)
    runs = f"{trial.base.count} runs each, in turns, with empty caches"
    return f"{before} calls compiled something, with the change {after}; {runs}"


def _certainty(comparison: TimeComparison) -> str:
    if min(comparison.runs) < FEWEST_RUNS:
        return "too few to tell from noise"
    return (
        f"rank test, chance {comparison.chance:.1%}; "
        f"95 % of the ratio between {comparison.low:.2f} and {comparison.high:.2f}"
    )


@dataclass(frozen=True)
class TrialResults:
    """What came of all trials; those that help first, by what they save."""

    trials: tuple[FlipTrial, ...]
    # The program as it is; None where no function was called often enough.
    base: AgainstEager | None
    error: str = ""
    # How often the program was run for it.
    runs: int = 0

    @property
    def advice(self) -> tuple[FlipTrial, ...]:
        """What helps."""
        return tuple(trial for trial in self.trials if trial.helps)

    @property
    def how(self) -> str:
        """How it compares with eager."""
        if self.base is None:
            return self.error
        calls = f"{self.base.compiled.count} compiled calls and {self.base.eager.count} in eager"
        return f"{calls}, in turns in the same runs; {_certainty(self.base.compared())}"


def try_flips(
    command: Sequence[str], flips: Sequence[Flip], folder: Path, budget: Budget, say: Say
) -> TrialResults:
    """Time the program as it is, and with each change."""
    steady = [flip for flip in flips if not flip.avoids_compiles]
    results = _try_steady(command, steady, folder, budget, say)
    cold = [flip for flip in flips if flip.avoids_compiles]
    if not cold:
        return results
    trials = (*results.trials, *try_cold(command, cold, folder, budget, say))
    runs = results.runs + COLD_RUNS * (1 + len(cold))
    return TrialResults(_ranked(trials), results.base, results.error, runs)


def _ranked(trials: Sequence[FlipTrial]) -> tuple[FlipTrial, ...]:
    return tuple(sorted(trials, key=lambda trial: (not trial.helps, -trial.saved)))


def _try_steady(
    command: Sequence[str], flips: Sequence[Flip], folder: Path, budget: Budget, say: Say
) -> TrialResults:
    variants = [BASE, *(flip.variant for flip in flips)]
    runs: list[list[TimedRun]] = [[] for _ in variants]
    given_up: set[int] = set()
    for turn in range(budget.runs):
        for number, variant in enumerate(variants):
            if number in given_up:
                continue
            say(f"{variant.name}: run {turn + 1} of {budget.runs}")
            place = folder / f"{number}-{turn}"
            run = run_once(
                command,
                variant,
                place,
                cache=folder / f"cache-{number}",
                seconds=budget.seconds,
                agent=AGENT,
            )
            runs[number].append(run)
            base = against_eager(runs[0])
            if number == 0 and (base is None or base.ratio < budget.than_eager):
                return _results(runs, flips)
            if number and not _is_promising(base, runs[number]):
                given_up.add(number)
    return _results(runs, flips)


def _is_promising(base: AgainstEager | None, runs: Sequence[TimedRun]) -> bool:
    changed = against_eager(runs)
    if base is None or changed is None:
        return False
    return changed.ratio < _PROMISING * base.ratio


def _results(runs: Sequence[Sequence[TimedRun]], flips: Sequence[Flip]) -> TrialResults:
    base = against_eager(runs[0])
    if base is None:
        failed = [run for run in runs[0] if run.exit_code != 0]
        why = (
            f"The program fails: {failed[0].output or 'it did not end in time'}"
            if failed
            else "No compiled function is called often enough to compare it with eager."
        )
        return TrialResults((), None, why, runs=len(runs[0]))
    tried = zip(runs[1:], flips, strict=True)
    trials = [_trial(base, made, flip) for made, flip in tried if made]
    return TrialResults(_ranked(trials), base, runs=sum(map(len, runs)))


def _trial(base: AgainstEager, runs: Sequence[TimedRun], flip: Flip) -> FlipTrial:
    changed = against_eager(runs)
    if changed is None:
        words = [line for run in runs if run.exit_code for line in run.output.splitlines()]
        why = words[-1] if words else "too few calls were compiled"
        return FlipTrial(flip, base.compiled, Sample(()), error=f"not measured: {why}")
    comparison = compare(base.compiled, changed.compiled)
    saved = (base.ratio - changed.ratio) * base.seconds
    if flip.leaves_to_eager:
        lost = (base.ratio - 1) * base.seconds
        flip = replace(flip, predicted=max(lost, 0.0), prediction="what is lost against eager")
    return FlipTrial(flip, base.compiled, changed.compiled, saved, comparison)


def against_eager(runs: Sequence[TimedRun]) -> AgainstEager | None:
    """All calls of these runs, each relative to eager in its own run; None if there are none."""
    compiled: list[float] = []
    eager: list[float] = []
    seconds = 0.0
    calls = 0
    for run in runs:
        if run.exit_code != 0:
            return None
        for ours, theirs in _pairs(run):
            compiled += [value / theirs.median for value in ours.values]
            eager += [value / theirs.median for value in theirs.values]
            seconds += theirs.median * (ours.count + theirs.count)
            calls += ours.count + theirs.count
    if not compiled:
        return None
    count = len(runs)
    return AgainstEager(
        Sample(tuple(compiled)), Sample(tuple(eager)), seconds / count, calls // count
    )


def _pairs(run: TimedRun) -> list[tuple[Sample, Sample]]:
    """Each function's calls, compiled and in eager."""
    by_kind: Mapping[tuple[str, str], Sample] = {
        (call.kind, call.name): call.seconds for call in run.calls if call.sample
    }
    found = []
    for (kind, name), ours in by_kind.items():
        theirs = by_kind.get((IN_EAGER, name))
        if kind == FUNCTION and theirs is not None and theirs.median > 0:
            found.append((ours, theirs))
    return found


# --- changes that avoid compiles ------------------------------------------------------------------


def try_cold(
    command: Sequence[str], flips: Sequence[Flip], folder: Path, budget: Budget, say: Say
) -> list[FlipTrial]:
    """Changes that avoid compiles: each run compiles everything, so that one sees how much."""
    variants = [BASE, *(flip.variant for flip in flips)]
    runs: list[list[TimedRun]] = [[] for _ in variants]
    for turn in range(COLD_RUNS):
        for number, variant in enumerate(variants):
            say(f"{variant.name}: from scratch, run {turn + 1} of {COLD_RUNS}")
            place = folder / f"cold-{number}-{turn}"
            run = run_once(command, variant, place, cache=place / "cache", seconds=budget.seconds)
            runs[number].append(run)
    return [_cold_trial(runs[0], made, flip) for made, flip in zip(runs[1:], flips, strict=True)]


def _cold_trial(base: Sequence[TimedRun], changed: Sequence[TimedRun], flip: Flip) -> FlipTrial:
    if any(run.exit_code != 0 for run in (*base, *changed)):
        return FlipTrial(flip, Sample(()), Sample(()), error="the program fails with it")
    before = Sample(tuple(map(_all_seconds, base)))
    after = Sample(tuple(map(_all_seconds, changed)))
    return FlipTrial(
        flip,
        before,
        after,
        before.median - after.median,
        compiles=(_compiling_calls(base[0]), _compiling_calls(changed[0])),
    )


def _all_seconds(run: TimedRun) -> float:
    """Seconds in compiled calls, with what was compiled in them."""
    return sum(call.total + sum(call.compiling) + sum(call.warming) for call in run.calls) / 1e9


def _compiling_calls(run: TimedRun) -> int:
    return sum(len(call.compiling) for call in run.calls)
