"""Memory profiles of a program: compiled, in eager, and with alternatives that may need less.

Each alternative is proposed for a reason and tried in its own process. One that lowers the peak
and gives the same results is then timed in turns with the unchanged program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.launch.environment import PartName
from inductoscope.model.entities import Ending, Recording
from inductoscope.model.fold import load
from inductoscope.profiling.flips import Flip
from inductoscope.profiling.kernel_profile import run_profiled
from inductoscope.profiling.memory_blocks import (
    OUTPUT,
    SAVED,
    TEMPORARY,
    StepProfile,
    peaks_of,
    profiles_of,
)
from inductoscope.profiling.memory_trace import CallResult, ProcessMemory, TensorSummary
from inductoscope.profiling.statistics import TimeComparison, compare
from inductoscope.profiling.timings import FOLDER, read_measured
from inductoscope.profiling.turns import (
    BASE,
    ProgramRuns,
    TimedRun,
    Variant,
    VariantRuns,
    calls_to_compare,
)

# Activation memory budgets to try, from mild to aggressive recomputation.
_BUDGETS = (0.75, 0.5, 0.25, 0.0)
# Savings below this many bytes, or this share of the peak, are not worth a trial.
_LEAST_BYTES = 1 << 20
_LEAST_SHARE = 0.03
_CONFIG = "torch._inductor.config"


def alternatives_for(profile: StepProfile, settings: Mapping[str, str]) -> tuple[Flip, ...]:
    """Return the changes worth a trial; `settings` are those set by the program itself."""
    return tuple(_alternatives(profile, settings))


def _alternatives(profile: StepProfile, settings: Mapping[str, str]) -> Iterator[Flip]:
    def is_worth_it(*kinds: str) -> bool:
        least = max(_LEAST_BYTES, _LEAST_SHARE * profile.device.peak)
        return sum(profile.kinds[kind] for kind in kinds) >= least

    if profile.has_backward and is_worth_it(SAVED):
        why = "the partitioner saves tensors for the backward pass that can be computed again"
        budgets = [f"activation_memory_budget = {budget}" for budget in _BUDGETS]
        for text in (*budgets, "aggressive_recomputation = True"):
            change = f"torch._functorch.config.{text}"
            yield Flip(change, why, code=f"import torch._functorch.config\n{change}")
    if is_worth_it(TEMPORARY, OUTPUT, SAVED):
        why = "the program has switched it off"
        for name in ("allow_buffer_reuse", "inplace_buffers", "reorder_for_peak_memory"):
            if settings.get(f"{_CONFIG}.{name}") == "False":
                yield Flip(f"{_CONFIG}.{name} = True", why, settings={name: True}, overrules=True)
    if is_worth_it(TEMPORARY):
        why = "temporaries are alive at the peak"
        for name, value in (("memory_planning", True), ("reorder_for_peak_memory", False)):
            if f"{_CONFIG}.{name}" not in settings:
                yield Flip(f"{_CONFIG}.{name} = {value}", why, settings={name: value})


# --- the results of two runs ----------------------------------------------------------------------

# Tolerances for results that were computed in a different order, by dtype.
_TOLERANCES = {"torch.float64": 1e-9, "torch.float32": 1e-4, "torch.float16": 2e-2}
_BFLOAT16 = 5e-2


@dataclass(frozen=True)
class ResultComparison:
    tensors: int
    apart: float
    # The first result that differs beyond rounding; empty if there is none.
    different: str = ""

    @property
    def is_same(self) -> bool:
        """Whether something was compared, and nothing differs."""
        return self.tensors > 0 and not self.different


def compare_results(base: Sequence[CallResult], other: Sequence[CallResult]) -> ResultComparison:
    """Compare the results of calls that both runs made."""
    theirs = {(result.thing, result.number): result for result in other}
    tensors, apart, different = 0, 0.0, ""
    for result in base:
        match = theirs.get((result.thing, result.number))
        if match is None:
            continue
        if len(match.tensors) != len(result.tensors):
            return ResultComparison(tensors + 1, math.inf, f"{result.thing}: number of tensors")
        for number, (first, second) in enumerate(zip(result.tensors, match.tensors, strict=True)):
            tensors += 1
            distance = _distance(first, second)
            apart = max(apart, distance)
            if distance > _TOLERANCES.get(first.dtype, _BFLOAT16) and not different:
                different = f"{result.thing}, call {result.number}, tensor {number + 1}"
    return ResultComparison(tensors, apart, different)


def _distance(first: TensorSummary, second: TensorSummary) -> float:
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return math.inf
    size = max(1, math.prod(first.shape))
    typical = max(first.norm, second.norm) / math.sqrt(size)
    pairs = [*zip(first.some, second.some, strict=False), (first.norm, second.norm)]
    # A sum may cancel, so differences are relative to the sum of magnitudes.
    sums = _apart(first.total, second.total, max(first.norm, second.norm) * math.sqrt(size))
    return max(sums, *(_apart(a, b, max(abs(a), abs(b), typical)) for a, b in pairs))


def _apart(first: float, second: float, scale: float) -> float:
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    if not math.isfinite(first) or not math.isfinite(second):
        return math.inf
    return abs(first - second) / scale if scale else math.inf


# --- trials ---------------------------------------------------------------------------------------

# A peak counts as lower below this ratio.
_LOWER = 0.98
# The most alternatives that are timed: each costs several runs.
_MOST_TIMED = 2


@dataclass(frozen=True)
class MemoryTrial:
    flip: Flip
    # The peak of the same call of the same function; None if it was not measured.
    peak: int | None = None
    base: int = 0
    # The lowest and the highest peak of its steps.
    peaks: tuple[int, ...] = ()
    results: ResultComparison | None = None
    # Seconds of compiled calls, one value per run, without and with the alternative.
    time: TimeComparison | None = None
    error: str = ""

    @property
    def ratio(self) -> float:
        return self.peak / self.base if self.peak and self.base else 1.0

    @property
    def is_lower(self) -> bool:
        is_same = self.results is not None and self.results.is_same
        return self.peak is not None and self.ratio < _LOWER and is_same and not self.error


def try_alternatives(
    runs: ProgramRuns,
    profile: StepProfile,
    base: Sequence[ProcessMemory],
    alternatives: Sequence[Flip],
) -> tuple[MemoryTrial, ...]:
    """Measure each alternative, then time those that need less; the lowest peak comes first."""

    def run(variant: Variant) -> tuple[TimedRun, tuple[ProcessMemory, ...]]:
        runs.say(f"{variant.name}: measuring memory")
        return run_traced(runs, variant)

    trials = [_tried(each, profile, base, *run(each.variant)) for each in alternatives]
    if any(trial.results and trial.results.different for trial in trials):
        why = _why_results_say_nothing(base, *run(BASE))
        # Comparisons with no significance are not shown.
        unjudged = [replace(t, error=t.error or why, results=None) for t in trials]
        trials = unjudged if why else trials
    chosen = _worth_timing(trials)
    if chosen:
        variants = [BASE, *(trial.flip.variant for trial in chosen)]
        done = runs.in_turns(variants, runs.turns, fills_caches=True)
        trials = [_timed(trial, done) for trial in trials]
    return tuple(sorted(trials, key=lambda trial: (not trial.is_lower, trial.ratio)))


def run_traced(
    runs: ProgramRuns, variant: Variant, profiler: PartName = "memory"
) -> tuple[TimedRun, tuple[ProcessMemory, ...]]:
    run = runs.run_once(variant, profiler)
    return run, read_measured(ProcessMemory, run.measured)


def _tried(
    flip: Flip,
    profile: StepProfile,
    base: Sequence[ProcessMemory],
    run: TimedRun,
    seen: Sequence[ProcessMemory],
) -> MemoryTrial:
    trial = MemoryTrial(flip, base=profile.device.peak)
    if run.not_applied:
        return replace(trial, error=f"could not be applied: {run.not_applied}")
    if run.failure:
        return replace(trial, error=f"with it the program {run.failure}")
    peaks = peaks_of(seen, profile.step.function, profile.device.device)
    if not peaks:
        return replace(trial, error="no step of the same function was traced")
    like = {number: peaks[number] for number in peaks if number in profile.peaks} or peaks
    return replace(
        trial,
        peak=peaks.get(profile.step.number, max(like.values())),
        peaks=tuple(like.values()),
        results=compare_results(_results(base), _results(seen)),
    )


def _why_results_say_nothing(
    base: Sequence[ProcessMemory], run: TimedRun, seen: Sequence[ProcessMemory]
) -> str:
    """Return why results cannot be used to judge alternatives; empty if they can.

    They cannot if they vary from run to run of the unchanged program, or if that is unknown.
    """
    noise = compare_results(_results(base), _results(seen))
    if not run.failure and noise.is_same:
        return ""
    if not run.failure and noise.different:
        return "the program's results differ from run to run, so they could not be compared"
    how = run.failure or "gave no results to compare"
    return f"the program as it is {how} when it was run again, so results could not be judged"


def _worth_timing(trials: Sequence[MemoryTrial]) -> list[MemoryTrial]:
    """Select alternatives to time; of those with about the same peak, only the mildest."""
    chosen: list[MemoryTrial] = []
    for trial in trials:
        is_new = all(abs(trial.ratio - other.ratio) > 1 - _LOWER for other in chosen)
        if trial.is_lower and is_new:
            chosen.append(trial)
    return sorted(chosen, key=lambda trial: trial.ratio)[:_MOST_TIMED]


def _timed(trial: MemoryTrial, done: Sequence[VariantRuns]) -> MemoryTrial:
    counts = calls_to_compare(done)
    base = done[0].sample(counts)
    for runs in done[1:]:
        seconds = runs.sample(counts)
        if runs.variant.name == trial.flip.change and seconds.count and base.count:
            return replace(trial, time=compare(base, seconds))
    return trial


def _results(processes: Sequence[ProcessMemory]) -> list[CallResult]:
    return [result for process in processes for result in process.results]


# --- the profile ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryProfile:
    ending: Ending
    recording: str
    steps: tuple[StepProfile, ...]
    # The same steps in eager.
    eager: tuple[StepProfile, ...] = ()
    trials: tuple[MemoryTrial, ...] = ()
    # Whether no setting of torch can lower the peak by much, so that none was tried.
    is_at_its_least: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.steps

    def in_eager(self, profile: StepProfile) -> StepProfile | None:
        """Return the step of the same function in eager."""
        wanted = profile.step.function, profile.device.device
        same = (s for s in self.eager if (s.step.function, s.device.device) == wanted)
        return next(same, None)

    def eager_peak(self, profile: StepProfile) -> int | None:
        """Return the peak of the same call, or of any call of the function if it was not traced."""
        found = self.in_eager(profile)
        return None if found is None else found.peaks.get(profile.step.number, found.device.peak)


def profile_memory(
    runs: ProgramRuns, folder: Path, *, stdout: int | None, with_eager: bool
) -> MemoryProfile:
    """Run the program recorded and with its memory traced, then the runs to compare with."""
    ending = run_profiled(runs.command, folder, "memory", stdout=stdout)
    recording = load(folder)
    seen = read_measured(ProcessMemory, folder / FOLDER)
    steps = profiles_of(seen, recording)
    notes = tuple(dict.fromkeys(note for process in seen for note in process.notes))
    if not steps or ending.exit_code != 0:
        return MemoryProfile(ending, str(folder), steps, notes=notes)
    eager, error = _in_eager(runs) if with_eager else ((), "")
    alternatives = alternatives_for(steps[0], _settings_made(recording))
    trials: tuple[MemoryTrial, ...] = ()
    if alternatives and runs.turns:
        trials = try_alternatives(runs, steps[0], seen, alternatives)
    return MemoryProfile(
        ending,
        str(folder),
        steps,
        eager,
        trials,
        not alternatives,
        (*notes, *filter(None, [error])),
    )


def _in_eager(runs: ProgramRuns) -> tuple[tuple[StepProfile, ...], str]:
    """Return the steps in eager, or why they were not measured."""
    runs.say("measuring memory in eager")
    run, seen = run_traced(runs, Variant("in eager"), "eager-memory")
    if run.failure:
        return (), f"in eager the program {run.failure}"
    steps = profiles_of(seen)
    return steps, "" if steps else "no step was traced in eager"


def _settings_made(recording: Recording) -> dict[str, str]:
    made = [each.settings.config for each in recording.compiles if each.settings is not None]
    return {name: value for config in made for name, value in config.items()}
