"""Tries changes in the user's program: compiled again, timed in turns, kept if beyond noise.

Every trial is a run of the whole program in a process and a cache of its own. A change that is not
faster in the first turn is given up, so that the time goes to those that may be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.statistics import FEWEST_RUNS, Sample, TimeComparison, compare
from inductoscope.profiling.turns import (
    TimedRun,
    Variant,
    VariantRuns,
    calls_to_compare,
    run_in_turns,
    run_once,
)

Say = Callable[[str], None]

BASE = Variant("as it is")
EAGER = Variant("eager", code='torch.compiler.set_stance("force_eager")')

# After one turn each, a change that takes more of the time than this is not worth more turns.
_PROMISING = 0.97
# What a change has to save at least, as a share of the time, to be worth a line of code.
_WORTHWHILE = 0.95
# Runs that compile from scratch; how often something is compiled does not vary by chance.
_COLD_RUNS = 2
_WITHOUT_RECOMPILES = 0.8


@dataclass(frozen=True)
class Budget:
    """How much time trials may take."""

    # Runs of each variant after the one that compiles, and the longest that one may take.
    turns: int = FEWEST_RUNS
    seconds: float = 300.0


@dataclass(frozen=True)
class Trial:
    """One change, and what it did to the time of the program's compiled calls."""

    flip: Flip
    # Seconds per run of the program.
    base: Sample
    changed: Sample
    comparison: TimeComparison | None = None
    # Calls in a run that compiled something, without and with the change; None if not counted.
    compiles: tuple[int, int] | None = None
    error: str = ""

    @property
    def saved(self) -> float:
        """Seconds per run that it saves; negative if it costs some."""
        return self.base.median - self.changed.median if self.changed.count else 0.0

    @property
    def helps(self) -> bool:
        """Whether it is faster beyond noise, and by enough."""
        if not self.changed.count or self.error or self.base.median <= 0:
            return False
        ratio = self.changed.median / self.base.median
        if self.compiles is not None:
            fewer = self.compiles[1] < self.compiles[0]
            return fewer and max(self.changed.values) < _WITHOUT_RECOMPILES * min(self.base.values)
        return self.comparison is not None and self.comparison.differs and ratio < _WORTHWHILE

    @property
    def how(self) -> str:
        """How it was established."""
        if self.error:
            return self.error
        if self.compiles is not None:
            before, after = self.compiles
            runs = f"{self.base.count} runs each, in turns, with empty caches"
            return f"{before} calls compiled something, with the change {after}; {runs}"
        if self.comparison is None or self.changed.count < FEWEST_RUNS:
            return "not faster in its first turn, so not run again"
        return self.comparison.how


@dataclass(frozen=True)
class TrialResults:
    """What came of all trials; those that help first, by what they save."""

    trials: tuple[Trial, ...]
    base: Sample
    # The program's functions uncompiled; an empty sample where that was not tried.
    eager: Sample
    against_eager: TimeComparison | None = None
    # How many calls the times are of.
    calls: int = 0
    error: str = ""

    @property
    def advice(self) -> tuple[Trial, ...]:
        """What helps."""
        return tuple(trial for trial in self.trials if trial.helps)


def try_flips(
    command: Sequence[str], flips: Sequence[Flip], folder: Path, budget: Budget, say: Say
) -> TrialResults:
    """Time the program as it is, in eager, and with each change."""
    steady = [flip for flip in flips if not flip.avoids_compiles]
    runs = run_in_turns(
        command,
        [BASE, EAGER, *(flip.variant for flip in steady)],
        folder,
        turns=budget.turns,
        seconds=budget.seconds,
        say=say,
        hopeless=_hopeless,
    )
    results = _results(runs, steady)
    cold = [flip for flip in flips if flip.avoids_compiles]
    if not cold or runs[0].failed:
        return results
    trials = (*results.trials, *_try_cold(command, cold, folder, budget, say))
    return TrialResults(
        _ranked(trials),
        results.base,
        results.eager,
        results.against_eager,
        results.calls,
        results.error if not trials else "",
    )


def _hopeless(so_far: Sequence[VariantRuns]) -> Collection[str]:
    """Changes that were slower in the first turn."""
    if len(so_far[0].runs) != 1:
        return ()
    ratios = {runs.variant.name: _ratio(so_far[0], runs) for runs in so_far[1:]}
    slow = [name for name, ratio in ratios.items() if ratio is None or ratio > _PROMISING]
    return [name for name in slow if name != EAGER.name]


def _ratio(base: VariantRuns, other: VariantRuns) -> float | None:
    counts = calls_to_compare([base, other])
    before, after = base.sample(counts), other.sample(counts)
    return after.median / before.median if after.count and before.median > 0 else None


def _results(runs: Sequence[VariantRuns], flips: Sequence[Flip]) -> TrialResults:
    base, eager, *changed = runs
    if base.failed:
        nothing = Sample(())
        why = base.failed[0].output or "it did not end in time"
        return TrialResults((), nothing, nothing, error=f"The program failed: {why}")
    counts = calls_to_compare([base, eager])
    trials = [_trial(base, runs, flip) for runs, flip in zip(changed, flips, strict=True)]
    before, plain = base.sample(counts), eager.sample(counts)
    return TrialResults(
        _ranked(trials),
        before,
        plain,
        compare(plain, before) if plain.count and before.count else None,
        sum(counts.values()),
        ""
        if counts
        else "No compiled function is called often enough: only the first call of "
        "each, which compiles, and the one after it.",
    )


def _ranked(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    return tuple(sorted(trials, key=lambda trial: (not trial.helps, -trial.saved)))


def _trial(base: VariantRuns, changed: VariantRuns, flip: Flip) -> Trial:
    counts = calls_to_compare([base, changed])
    before, after = base.sample(counts), changed.sample(counts)
    if changed.failed:
        lines = changed.failed[0].output.splitlines() or ["it did not end in time"]
        return Trial(flip, before, Sample(()), error=f"fails with it: {lines[-1]}")
    return Trial(flip, before, after, compare(before, after))


# --- changes that avoid compiles ------------------------------------------------------------------


def _try_cold(
    command: Sequence[str], flips: Sequence[Flip], folder: Path, budget: Budget, say: Say
) -> list[Trial]:
    """Each run compiles everything, because that is what is to be avoided."""
    variants = [BASE, *(flip.variant for flip in flips)]
    runs: list[list[TimedRun]] = [[] for _ in variants]
    for turn in range(_COLD_RUNS):
        for number, variant in enumerate(variants):
            say(f"{variant.name}: from scratch, run {turn + 1} of {_COLD_RUNS}")
            place = folder / f"cold-{number}-{turn}"
            run = run_once(command, variant, place, cache=place / "cache", seconds=budget.seconds)
            runs[number].append(run)
    return [_cold_trial(runs[0], made, flip) for made, flip in zip(runs[1:], flips, strict=True)]


def _cold_trial(base: Sequence[TimedRun], changed: Sequence[TimedRun], flip: Flip) -> Trial:
    if any(run.exit_code != 0 for run in (*base, *changed)):
        return Trial(flip, Sample(()), Sample(()), error="the program fails with it")
    return Trial(
        flip,
        Sample(tuple(map(_all_seconds, base))),
        Sample(tuple(map(_all_seconds, changed))),
        compiles=(_compiling_calls(base[0]), _compiling_calls(changed[0])),
    )


def _all_seconds(run: TimedRun) -> float:
    """Seconds in compiled calls, with what was compiled in them."""
    return sum(call.total + sum(call.compiling) + sum(call.warming) for call in run.calls) / 1e9


def _compiling_calls(run: TimedRun) -> int:
    return sum(len(call.compiling) for call in run.calls)
