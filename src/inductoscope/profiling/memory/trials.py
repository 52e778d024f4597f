"""Tries other ways to compile the program, each in its own process, and says what they need.

A way that lowers the peak is then timed in turns with the program as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.profiling.memory.agent import AGENT
from inductoscope.profiling.memory.alternatives import Alternative
from inductoscope.profiling.memory.observed import CallResult, ProcessMemory, read_observed
from inductoscope.profiling.memory.profile import StepProfile
from inductoscope.profiling.memory.same_results import ResultComparison, compare_results
from inductoscope.profiling.orders import QUIET
from inductoscope.profiling.statistics import Sample, TimeComparison, compare
from inductoscope.profiling.timings import FOLDER
from inductoscope.profiling.turns import (
    TimedRun,
    Variant,
    calls_to_compare,
    run_in_turns,
    run_once,
)

Say = Callable[[str], None]

BASE = Variant("as it is")
# A peak that is lower by less than this is none.
_LOWER = 0.98
# Ways that are timed: each costs several runs.
_MOST_TIMED = 2

_NONE = Sample(())


@dataclass(frozen=True)
class TrialLimits:
    """How often the program is run, and how long a run may take."""

    turns: int = 5
    seconds: float = 600.0


@dataclass(frozen=True)
class MemoryTrial:
    """One way that was tried: its peak, its results, and its time where the peak is lower."""

    alternative: Alternative
    # The peak of the same call of the same function; None if it was not measured.
    peak: int | None = None
    base: int = 0
    # The lowest and the highest peak of its steps.
    peaks: tuple[int, ...] = ()
    results: ResultComparison | None = None
    # Seconds of compiled calls, one number per run, without and with it.
    base_seconds: Sample = _NONE
    seconds: Sample = _NONE
    time: TimeComparison | None = None
    error: str = ""

    @property
    def ratio(self) -> float:
        """What is left of the peak."""
        return self.peak / self.base if self.peak and self.base else 1.0

    @property
    def is_lower(self) -> bool:
        """Whether the peak is lower, and the results are the same."""
        is_same = self.results is not None and self.results.is_same
        return self.peak is not None and self.ratio < _LOWER and is_same and not self.error


def try_alternatives(
    command: Sequence[str],
    profile: StepProfile,
    base: Sequence[ProcessMemory],
    alternatives: Sequence[Alternative],
    folder: Path,
    limits: TrialLimits,
    say: Say,
) -> tuple[MemoryTrial, ...]:
    """Measure each way, then time those that need less; the lowest peak comes first."""
    runs = _MemoryRuns(command, folder, limits, say)
    trials = [runs.measure(alternative, profile, base) for alternative in alternatives]
    if any(trial.results and trial.results.different for trial in trials):
        why = runs.why_results_say_nothing(base)
        # Results that judge nothing are not shown as if they did.
        unjudged = [replace(t, error=t.error or why, results=None) for t in trials]
        trials = unjudged if why else trials
    trials = runs.time(trials)
    return tuple(sorted(trials, key=lambda trial: (not trial.is_lower, trial.ratio)))


class _MemoryRuns:
    """Runs of the program with its memory traced, each with a cache of its own."""

    def __init__(self, command: Sequence[str], folder: Path, limits: TrialLimits, say: Say) -> None:
        self._command, self._folder, self._limits, self._say = command, folder, limits, say
        self._caches: dict[str, Path] = {}

    def _run(self, variant: Variant) -> tuple[TimedRun, tuple[ProcessMemory, ...]]:
        self._say(f"{variant.name}: measuring memory")
        number = len(self._caches)
        place, cache = self._folder / f"memory-{number}", self._folder / f"memory-cache-{number}"
        self._caches[variant.name] = cache
        quiet = replace(variant, variables={**QUIET, **variant.variables})
        seconds = self._limits.seconds
        run = run_once(self._command, quiet, place, cache=cache, seconds=seconds, agent=AGENT)
        return run, read_observed(place / FOLDER)

    def measure(
        self, alternative: Alternative, profile: StepProfile, base: Sequence[ProcessMemory]
    ) -> MemoryTrial:
        """Run the program once with this way."""
        run, seen = self._run(alternative.variant)
        trial = MemoryTrial(alternative, base=profile.device.peak)
        if run.exit_code != 0 or run.not_applied:
            return replace(trial, error=_why_not(run))
        peaks = peaks_like(profile, seen)
        if not peaks:
            return replace(trial, error="no step of the same function was traced")
        known = profile.peaks or {}
        numbers = [number for number in peaks if number in known] or list(peaks)
        results = compare_results(_results(base), _results(seen))
        return replace(
            trial,
            peak=peaks.get(profile.step.number, max(peaks[number] for number in numbers)),
            peaks=tuple(peaks[number] for number in numbers),
            results=results,
        )

    def why_results_say_nothing(self, base: Sequence[ProcessMemory]) -> str:
        """Run the program as it is again: why its results cannot judge a way; empty if they can.

        They cannot where they differ from run to run, or where that is not known.
        """
        run, seen = self._run(BASE)
        noise = compare_results(_results(base), _results(seen))
        if run.exit_code == 0 and noise.is_same:
            return ""
        if run.exit_code == 0 and noise.different:
            return "the program's results differ from run to run, so they could not be compared"
        how = (
            "gave no results to compare"
            if run.exit_code == 0
            else "did not end in time"
            if run.exit_code is None
            else f"ended with exit code {run.exit_code}"
        )
        return f"the program as it is {how} when it was run again, so results could not be judged"

    def time(self, trials: Sequence[MemoryTrial]) -> list[MemoryTrial]:
        """Time those with a lower peak in turns with the program as it is."""
        chosen = _worth_timing(trials)
        if not chosen:
            return list(trials)
        variants = [BASE, *(trial.alternative.variant for trial in chosen)]
        done = run_in_turns(
            self._command,
            variants,
            self._folder,
            turns=self._limits.turns,
            seconds=self._limits.seconds,
            say=self._say,
            caches=self._caches,
        )
        counts = calls_to_compare(done)
        base = done[0].sample(counts)
        found = {runs.variant.name: runs.sample(counts) for runs in done[1:]}
        timed = []
        for trial in trials:
            seconds = found.get(trial.alternative.variant.name)
            if seconds is not None and seconds.count and base.count:
                trial = replace(
                    trial, base_seconds=base, seconds=seconds, time=compare(base, seconds)
                )
            timed.append(trial)
        return timed


def _worth_timing(trials: Sequence[MemoryTrial]) -> list[MemoryTrial]:
    """Of ways with about the same peak only the first, which is the mildest."""
    chosen: list[MemoryTrial] = []
    for trial in trials:
        is_new = all(abs(trial.ratio - other.ratio) > 1 - _LOWER for other in chosen)
        if trial.is_lower and is_new:
            chosen.append(trial)
    return sorted(chosen, key=lambda trial: trial.ratio)[:_MOST_TIMED]


def peaks_like(profile: StepProfile, seen: Sequence[ProcessMemory]) -> dict[int, int]:
    """The peaks of the same function on the same device, by the number of the call."""
    return {
        peak.number: peak.peaks[profile.device.device]
        for process in seen
        for peak in process.peaks
        if peak.function == profile.step.function and profile.device.device in peak.peaks
    }


def _results(processes: Sequence[ProcessMemory]) -> list[CallResult]:
    return [result for process in processes for result in process.results]


def _why_not(run: TimedRun) -> str:
    if run.not_applied:
        return f"could not be applied: {run.not_applied}"
    if run.exit_code is None:
        return "with it the program did not end in time"
    words = run.output.strip().splitlines()
    return f"with it the program fails: {words[-1][:200] if words else run.exit_code}"
