"""Tries flips in the user's program: recompiled, timed in turns, kept if beyond noise.

Every trial runs the whole program in its own process and cache, with half of the calls of a
compiled function made in eager. Runs are compared by the time of compiled calls as a multiple of
that in eager, because this ratio does not depend on other load of the machine. A change that is
not faster in its first run is given up, and so is one with which the same code is generated.

The ratio is that of sums over all calls: for each group of calls that do the same work, the median
in eager and the median compiled are weighted by the number of such calls. Each run gives one ratio:
calls in one process are correlated, so that their number says nothing about noise between runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from inductoscope.analysis.diff.compare import generate_same_code
from inductoscope.model.fold import load
from inductoscope.profiling.flips import Flip
from inductoscope.profiling.statistics import (
    FASTER,
    FEWEST_RATIOS,
    FEWEST_RUNS,
    TOO_FEW,
    Sample,
    TimeComparison,
    compare,
    compare_ratios,
)
from inductoscope.profiling.timings import (
    DIFFERENTIATED,
    FUNCTION,
    IN_EAGER,
    CallTimes,
    ProcessTimes,
)
from inductoscope.profiling.turns import BASE, ProgramRuns, TimedRun, Variant
from inductoscope.wording import count_of

# The fewest calls of each side that a group must have in a run.
_FEWEST_CALLS = 3

# The name and place of a function, and the group of its calls.
Key = tuple[str, str, str]


@dataclass(frozen=True)
class PairedCalls:
    key: Key
    compiled: Sample
    eager: Sample
    calls: int

    @property
    def seconds(self) -> float:
        return self.eager.median * self.calls

    @property
    def function(self) -> Key:
        """The key of the compiled function, for all kinds of arguments."""
        name, place, group = self.key
        return name, place, group.partition(".")[0]


@dataclass(frozen=True)
class AgainstEager:
    # The time of compiled calls relative to that in eager in the same run, one value per run.
    compiled: Sample
    # Seconds of an average compiled call, one value per run.
    in_seconds: Sample
    # Seconds per run of all these calls, if each took the median in eager.
    seconds: float
    calls: int
    # The same per function, with its name and place.
    functions: tuple[AgainstEager, ...] = ()
    name: str = ""
    place: str = ""
    # Seconds per run from the first compiled call to the last, without calls that compiled.
    span: float = 0.0
    # Whether the profiler synchronized with a GPU after each call, unlike the program itself.
    waited_for_gpu: bool = False

    @property
    def ratio(self) -> float:
        return self.compiled.median

    @property
    def per_call(self) -> float:
        return self.seconds / self.calls if self.calls else 0.0

    @property
    def lost(self) -> float:
        return (self.ratio - 1) * self.seconds

    @property
    def slowest(self) -> float:
        return max((each.ratio for each in self.functions), default=self.ratio)

    def compared(self) -> TimeComparison:
        return compare_ratios(self.compiled)


def against_eager(
    runs: Sequence[TimedRun], only: Collection[Key] | None = None
) -> AgainstEager | None:
    if any(run.exit_code != 0 or run.not_applied for run in runs):
        return None
    pairs = [[p for p in paired_calls(run) if only is None or p.key in only] for run in runs]
    whole = _together(pairs)
    if whole is None:
        return None
    functions = []
    for key in dict.fromkeys(pair.function for run in pairs for pair in run):
        own = _together([[pair for pair in run if pair.function == key] for run in pairs])
        if own is not None:
            functions.append(replace(own, name=key[0], place=key[1]))
    processes = [process for run in runs for process in run.processes]
    return replace(
        whole,
        functions=tuple(functions),
        span=sum(process.span for process in processes) / 1e9 / len(runs),
        waited_for_gpu=any(process.waited_for_gpu for process in processes),
    )


def paired_calls(run: TimedRun) -> list[PairedCalls]:
    return [pair for process in run.processes for pair in _pairs_of(process)]


def _pairs_of(process: ProcessTimes) -> list[PairedCalls]:
    by_key: dict[tuple[str, Key], CallTimes] = {
        (calls.kind, (calls.name, calls.place, calls.group)): calls for calls in process.calls
    }
    found = []
    for (kind, key), ours in by_key.items():
        theirs = by_key.get((IN_EAGER, key))
        if kind != FUNCTION or theirs is None:
            continue
        pair = PairedCalls(key, ours.seconds, theirs.seconds, ours.count + theirs.count)
        if min(pair.compiled.count, pair.eager.count) >= _FEWEST_CALLS and pair.seconds > 0:
            found.append(pair)
    return found


def is_differentiated(runs: Sequence[TimedRun]) -> bool:
    return any(calls.kind == DIFFERENTIATED for run in runs for calls in run.calls)


def _together(runs: Sequence[Sequence[PairedCalls]]) -> AgainstEager | None:
    made = [pairs for pairs in runs if pairs]
    if not made:
        return None
    ours = [sum(pair.compiled.median * pair.calls for pair in pairs) for pairs in made]
    theirs = [sum(pair.seconds for pair in pairs) for pairs in made]
    calls = [sum(pair.calls for pair in pairs) for pairs in made]
    return AgainstEager(
        Sample(tuple(one / other for one, other in zip(ours, theirs, strict=True))),
        Sample(tuple(one / count for one, count in zip(ours, calls, strict=True))),
        sum(theirs) / len(made),
        sum(calls) // len(made),
    )


# --- trials ---------------------------------------------------------------------------------------

# A change with a higher ratio than this after its first run is not tried again.
_PROMISING = 0.95
# A change with a higher ratio than this is not worth a line of code.
_WORTHWHILE = 0.95
# Runs of each variant where compiles are counted, which do not vary by chance.
_TURNS_TO_COUNT = 2
_WITHOUT_RECOMPILES = 0.8
# What saves more than this multiple of its prediction was not understood, or not measured well.
# Predictions are rough: on a busy machine, a change that helps saved seven times as much.
_MOST_BEYOND_PREDICTION = 100.0

# What a trial says of a change.
HELPS, NO_HELP, GIVEN_UP, NOT_CONCLUDED = "helps", "no help", "given up", "not concluded"
SAME_CODE, NOT_TRIED = "same code", "not tried"

_TIME_UP = "the time for trials was up"


@dataclass(frozen=True)
class FlipTrial:
    flip: Flip
    # Compiled calls without and with the change. For changes that avoid compiles: seconds per run.
    base: Sample
    changed: Sample
    # Seconds per run that the change saves; negative for a loss.
    saved: float = 0.0
    comparison: TimeComparison | None = None
    # Calls in a run that compiled something, without and with the change; None if not counted.
    compiles: tuple[int, int] | None = None
    # Why it was not measured.
    error: str = ""
    generates_same_code: bool = False

    @property
    def ratio(self) -> float:
        """The time with the change relative to that without; 1 if it was not measured."""
        if not self.changed.count or self.base.median <= 0:
            return 1.0
        return self.changed.median / self.base.median

    @property
    def helps(self) -> bool:
        return self.conclusion == HELPS

    @property
    def conclusion(self) -> str:
        if self.flip.warning:
            return NOT_TRIED
        if self.generates_same_code:
            return SAME_CODE
        if self.error:
            return NOT_TRIED
        is_few = self.comparison is not None and self.comparison.verdict == TOO_FEW
        if not self._is_faster:
            return GIVEN_UP if is_few else NO_HELP
        return NOT_CONCLUDED if is_few or self._contradiction else HELPS

    @property
    def _is_faster(self) -> bool:
        """Whether it is faster beyond noise, or, in too few runs to tell, by their medians."""
        if not self.changed.count:
            return False
        if self.compiles is not None:
            fewer = self.compiles[1] < self.compiles[0]
            return fewer and max(self.changed.values) < _WITHOUT_RECOMPILES * min(self.base.values)
        if self.comparison is None or self.comparison.verdict not in (FASTER, TOO_FEW):
            return False
        return self.ratio < _WORTHWHILE

    @property
    def _contradiction(self) -> str:
        """How the measurement contradicts the prediction; empty if it does not."""
        predicted = self.flip.predicted
        if predicted is None or self.saved <= _MOST_BEYOND_PREDICTION * predicted:
            return ""
        times = f"{self.saved / predicted:.0f} times" if predicted > 0 else "more than"
        return (
            f"what was measured is {times} what was predicted ({self.flip.prediction}), so one of "
            "the two is wrong"
        )

    @property
    def how(self) -> str:
        if self.error:
            return self.error
        contradiction = self._contradiction if self._is_faster else ""
        return "; ".join(filter(None, (contradiction, _how_measured(self))))


def _how_measured(trial: FlipTrial) -> str:
    if trial.comparison is None:
        return _how_counted(trial)
    runs = f"{count_of(trial.changed.count, 'run')} with the change, {trial.base.count} without"
    by = "each against eager in the same run"
    if trial.flip.shortens_compiles:
        by = "with empty caches"
    elif trial.flip.changes_eager:
        by = "in seconds"
    return f"{runs}, {by}; {trial.comparison.certainty}"


def _how_counted(trial: FlipTrial) -> str:
    before, after = trial.compiles or (0, 0)
    runs = f"{trial.base.count} runs each, in turns, with empty caches"
    return f"{before} calls compiled something, with the change {after}; {runs}"


@dataclass(frozen=True)
class TrialResults:
    trials: tuple[FlipTrial, ...]
    # The unchanged program; None if no function was called often enough.
    base: AgainstEager | None
    error: str = ""
    # The number of runs of the program.
    runs: int = 0

    @property
    def advice(self) -> tuple[FlipTrial, ...]:
        return tuple(trial for trial in self.trials if trial.helps)

    @property
    def how(self) -> str:
        if self.base is None:
            return self.error
        calls = f"{self.base.calls} calls per run, half of them in eager, in random order"
        gpu = ", each as long as it takes to enqueue or to run" if self.base.waited_for_gpu else ""
        runs = count_of(self.base.compiled.count, "run")
        return f"{calls}{gpu}; {runs}; {self.base.compared().certainty}"


def try_flips(runs: ProgramRuns, flips: Sequence[Flip], than_eager: float = 0.0) -> TrialResults:
    """Time the program with each change, if it is at least `than_eager` times as long as eager."""
    safe = [flip for flip in flips if not flip.warning]
    results = _steady(runs, [flip for flip in safe if not flip.is_tried_cold], than_eager)
    cold = [flip for flip in safe if flip.is_tried_cold]
    shown = [
        _not_measured(flip, f'not tried, because torch warns: "{flip.warning}"')
        for flip in flips
        if flip.warning
    ]
    found = (*results.trials, *_cold(runs, cold), *shown)
    return replace(results, trials=_ranked(found), runs=runs.made)


def try_cold(runs: ProgramRuns, flips: Sequence[Flip]) -> TrialResults:
    """Try changes that avoid compiles; each run has an empty cache, so that the savings show."""
    return TrialResults(_ranked(_cold(runs, flips)), None, runs=runs.made)


def _not_measured(flip: Flip, why: str) -> FlipTrial:
    return FlipTrial(flip, Sample(()), Sample(()), error=why)


def _ranked(trials: Sequence[FlipTrial]) -> tuple[FlipTrial, ...]:
    return tuple(sorted(trials, key=lambda trial: (not trial.helps, -trial.saved)))


def _steady(runs: ProgramRuns, flips: Sequence[Flip], than_eager: float) -> TrialResults:
    """Compare compiled calls with eager in turns; drop changes that do not help."""
    by_name = {flip.change: flip for flip in flips}
    same: set[str] = set()

    def goes_on(done: Mapping[str, Sequence[TimedRun]], variant: Variant) -> bool:
        base = against_eager(done[BASE.name])
        if variant is BASE:
            return base is not None and base.slowest >= than_eager
        flip, made = by_name[variant.name], done[variant.name]
        if len(made) == 1 and flip.acts_by_code and _is_same_code(done[BASE.name][0], made[0]):
            same.add(flip.change)
            return False
        return len(made) < FEWEST_RUNS and _is_promising(base, made, flip)

    variants = [BASE, *(flip.variant for flip in flips)]
    unchanged, *changed = runs.in_turns(variants, FEWEST_RATIOS, goes_on, "alternate")
    base = against_eager(unchanged.runs)
    if base is None:
        return TrialResults((), None, _why_not_compared(unchanged.runs))
    if base.slowest < than_eager:
        return TrialResults((), base)
    tried = zip(changed, flips, strict=True)
    return TrialResults(
        tuple(
            _same_code(flip) if flip.change in same else _trial(unchanged.runs, made.runs, flip)
            for made, flip in tried
        ),
        base,
    )


def _is_same_code(base: TimedRun, changed: TimedRun) -> bool:
    if base.recording is None or changed.recording is None or changed.exit_code != 0:
        return False
    return generate_same_code(load(base.recording), load(changed.recording))


def _cold(runs: ProgramRuns, flips: Sequence[Flip]) -> list[FlipTrial]:
    """Run the program with empty caches, as it is and with each change."""
    found: list[FlipTrial] = []
    for turns in (_TURNS_TO_COUNT, FEWEST_RUNS):
        tried = {flip.variant.name: flip for flip in flips if _turns_of(flip) == turns}
        if tried:
            variants = [BASE, *(flip.variant for flip in tried.values())]
            base, *changed = runs.in_turns(variants, turns, is_cold=True)
            found += [_cold_trial(base.runs, c.runs, tried[c.variant.name]) for c in changed]
    return found


def _turns_of(flip: Flip) -> int:
    return FEWEST_RUNS if flip.shortens_compiles else _TURNS_TO_COUNT


def _is_promising(base: AgainstEager | None, runs: Sequence[TimedRun], flip: Flip) -> bool:
    changed = against_eager(runs)
    if base is None or changed is None:
        return False
    before, after = _samples(base, changed, flip)
    return after.median < _PROMISING * before.median


def _samples(base: AgainstEager, changed: AgainstEager, flip: Flip) -> tuple[Sample, Sample]:
    """Return the compiled calls without and with the change, each relative to eager."""
    if flip.changes_eager:  # Then eager is no measure, only seconds are.
        return base.in_seconds, changed.in_seconds
    return base.compiled, changed.compiled


# --- results of trials ----------------------------------------------------------------------------


def _why_not_compared(runs: Sequence[TimedRun]) -> str:
    failed = [run for run in runs if run.exit_code != 0]
    if failed:
        return f"The program {failed[0].failure}."
    if is_differentiated(runs):
        return (
            "Results of compiled functions are differentiated, but no call has a backward pass of "
            "its own, so nothing is said about run time."
        )
    if not any(run.calls for run in runs):
        if any(process.several_threads for run in runs for process in run.processes):
            return (
                "The program calls compiled functions from several threads, which disturb each "
                "other: nothing is said about run time."
            )
        return "No call of a compiled function was seen, so there is nothing to compare with eager."
    return "No compiled function is called often enough to compare it with eager."


def _trial(base_runs: Sequence[TimedRun], runs: Sequence[TimedRun], flip: Flip) -> FlipTrial:
    keys = [{pair.key for run in each for pair in paired_calls(run)} for each in (base_runs, runs)]
    both = keys[0] & keys[1]
    base, changed = against_eager(base_runs, both), against_eager(runs, both)
    if base is None or changed is None:
        why = _why_not_tried(base_runs, runs, "too few calls were compiled")
        return _not_measured(flip, why)
    before, after = _samples(base, changed, flip)
    unit = base.calls if flip.changes_eager else base.seconds
    saved = (before.median - after.median) * unit
    return FlipTrial(_with_seconds(flip, base), before, after, saved, compare(before, after))


def _same_code(flip: Flip) -> FlipTrial:
    why = "not timed, because the same kernels and wrappers are generated with it"
    return replace(_not_measured(flip, why), generates_same_code=True)


def _with_seconds(flip: Flip, base: AgainstEager) -> Flip:
    if flip.left is not None:
        return replace(flip, predicted=(1 - flip.left) * base.ratio * base.seconds)
    lost = sum(max(function.lost, 0.0) for function in base.functions)
    if flip.leaves_to_eager and lost:
        return replace(flip, predicted=lost, prediction="what is lost against eager")
    return flip


def _why_not_tried(base: Sequence[TimedRun], runs: Sequence[TimedRun], otherwise: str) -> str:
    if any(run.exit_code != 0 for run in base):
        return "not measured: the program fails without it, too"
    if not base or not runs:
        return f"not tried: {_TIME_UP}"
    if any(run.not_applied for run in runs):
        return f"could not be applied: {next(r.not_applied for r in runs if r.not_applied)}"
    failure = next((run.failure for run in runs if run.failure), "")
    if failure:
        return f"not measured: with it the program {failure}"
    return f"not measured: {otherwise}"


def _cold_trial(base: Sequence[TimedRun], changed: Sequence[TimedRun], flip: Flip) -> FlipTrial:
    is_whole = len(base) == len(changed) == _turns_of(flip)
    if not is_whole or any(run.exit_code != 0 or run.not_applied for run in (*base, *changed)):
        return _not_measured(flip, _why_not_tried(base, changed, _TIME_UP))
    before = Sample(tuple(map(_all_seconds, base)))
    after = Sample(tuple(map(_all_seconds, changed)))
    saved = before.median - after.median
    if flip.shortens_compiles:
        return FlipTrial(flip, before, after, saved, compare(before, after))
    compiles = _compiling_calls(base[0]), _compiling_calls(changed[0])
    return FlipTrial(flip, before, after, saved, compiles=compiles)


def _all_seconds(run: TimedRun) -> float:
    return sum(call.total + sum(call.compiling) + sum(call.warming) for call in run.calls) / 1e9


def _compiling_calls(run: TimedRun) -> int:
    return sum(len(call.compiling) for call in run.calls)
