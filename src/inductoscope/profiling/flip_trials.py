"""Tries flips in the user's program: recompiled, timed in turns, kept if beyond noise.

Every trial runs the whole program in its own process and cache, with half of the calls of a
compiled function made in eager. Runs are compared by the time of compiled calls as a multiple of
that in eager, because this ratio does not depend on other load of the machine. A change that is
not faster in its first run is given up.

The ratio is that of sums over all calls: for each group of calls that do the same work, the median
in eager and the median compiled are weighted by the number of such calls. Each block of
neighbouring calls gives one ratio, so that a difference can be told from noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from inductoscope.profiling.flips import Flip
from inductoscope.profiling.statistics import TOO_FEW, Sample, TimeComparison, blocks_of, compare
from inductoscope.profiling.timings import (
    DIFFERENTIATED,
    FUNCTION,
    IN_EAGER,
    CallTimes,
    ProcessTimes,
)
from inductoscope.profiling.turns import BASE, ProgramRuns, TimedRun, Variant

# Blocks per run, and the fewest calls of each side that a group must have in a block.
_BLOCKS = 10
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
    # One value per block of calls, relative to the medians in eager in the same run.
    compiled: Sample
    eager: Sample
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
        return compare(self.eager, self.compiled)


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
    compiled: list[float] = []
    eager: list[float] = []
    for pairs in made:
        blocks = min(_BLOCKS, *(min(pair.compiled.count, pair.eager.count) for pair in pairs))
        seconds = sum(pair.seconds for pair in pairs)
        ours = [(blocks_of(pair.compiled.values, blocks), pair.calls) for pair in pairs]
        theirs = [(blocks_of(pair.eager.values, blocks), pair.calls) for pair in pairs]
        for number in range(blocks):
            compiled.append(sum(values[number] * calls for values, calls in ours) / seconds)
            eager.append(sum(values[number] * calls for values, calls in theirs) / seconds)
    return AgainstEager(
        Sample(tuple(compiled)),
        Sample(tuple(eager)),
        sum(pair.seconds for pairs in made for pair in pairs) / len(made),
        sum(pair.calls for pairs in made for pair in pairs) // len(made),
    )


# --- trials ---------------------------------------------------------------------------------------

# A change with a higher ratio than this after its first run is not tried again.
_PROMISING = 0.95
# A change with a higher ratio than this is not worth a line of code.
_WORTHWHILE = 0.95
# Runs of each variant. More would tell nothing of compiles, which do not vary by chance.
_TURNS = 2
_WITHOUT_RECOMPILES = 0.8

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
    error: str = ""

    @property
    def ratio(self) -> float:
        """The time with the change relative to that without; 1 if it was not measured."""
        if not self.changed.count or self.base.median <= 0:
            return 1.0
        return self.changed.median / self.base.median

    @property
    def helps(self) -> bool:
        if not self.changed.count or self.error:
            return False
        if self.compiles is not None:
            fewer = self.flip.shortens_compiles or self.compiles[1] < self.compiles[0]
            return fewer and max(self.changed.values) < _WITHOUT_RECOMPILES * min(self.base.values)
        differs = self.comparison is not None and self.comparison.differs
        return differs and self.ratio < _WORTHWHILE

    @property
    def how(self) -> str:
        if self.error or self.comparison is None:
            return self.error or _how_counted(self)
        blocks = f"{self.changed.count} blocks of calls with the change, {self.base.count} without"
        by = "in seconds" if self.flip.changes_eager else "each against eager in the same run"
        return f"{blocks}, {by}; {_certainty(self.comparison)}"


def _how_counted(trial: FlipTrial) -> str:
    before, after = trial.compiles or (0, 0)
    runs = f"{trial.base.count} runs each, in turns, with empty caches"
    return f"{before} calls compiled something, with the change {after}; {runs}"


def _certainty(comparison: TimeComparison) -> str:
    is_few = comparison.verdict == TOO_FEW
    return "too few to tell from noise" if is_few else comparison.certainty


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
        blocks = f"{self.base.compiled.count} blocks of calls against {self.base.eager.count}"
        return f"{calls}{gpu}; {blocks}; {_certainty(self.base.compared())}"


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
    found = (*results.trials, *(_cold(runs, cold) if cold else ()), *shown)
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

    def goes_on(done: Mapping[str, Sequence[TimedRun]], variant: Variant) -> bool:
        base = against_eager(done[BASE.name])
        if variant is BASE:
            return base is not None and base.slowest >= than_eager
        return _is_promising(base, done[variant.name], by_name[variant.name])

    variants = [BASE, *(flip.variant for flip in flips)]
    unchanged, *changed = runs.in_turns(variants, _TURNS, goes_on, "alternate")
    base = against_eager(unchanged.runs)
    if base is None:
        return TrialResults((), None, _why_not_compared(unchanged.runs))
    if base.slowest < than_eager:
        return TrialResults((), base)
    tried = zip(changed, flips, strict=True)
    return TrialResults(
        tuple(_trial(unchanged.runs, made.runs, flip) for made, flip in tried), base
    )


def _cold(runs: ProgramRuns, flips: Sequence[Flip]) -> list[FlipTrial]:
    variants = [BASE, *(flip.variant for flip in flips)]
    unchanged, *changed = runs.in_turns(variants, _TURNS, is_cold=True)
    tried = zip(changed, flips, strict=True)
    return [_cold_trial(unchanged.runs, made.runs, flip) for made, flip in tried]


def _is_promising(base: AgainstEager | None, runs: Sequence[TimedRun], flip: Flip) -> bool:
    changed = against_eager(runs)
    if base is None or changed is None:
        return False
    return _compiled_after(base, changed, flip).median < _PROMISING * base.ratio


def _compiled_after(base: AgainstEager, changed: AgainstEager, flip: Flip) -> Sample:
    """Return the compiled calls with the change, as multiples of eager without it."""
    if not flip.changes_eager:
        return changed.compiled
    # Eager is faster with it, too: then it is no measure, only seconds are.
    factor = changed.per_call / base.per_call
    return Sample(tuple(value * factor for value in changed.compiled.values))


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
    after = _compiled_after(base, changed, flip)
    flip = _with_seconds(flip, base)
    saved = (base.ratio - after.median) * base.seconds
    return FlipTrial(flip, base.compiled, after, saved, compare(base.compiled, after))


def _with_seconds(flip: Flip, base: AgainstEager) -> Flip:
    if flip.left is not None:
        return replace(flip, predicted=(1 - flip.left) * base.ratio * base.seconds)
    if flip.leaves_to_eager:
        lost = max(base.lost, 0.0)
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
    is_whole = len(base) == len(changed) == _TURNS
    if not is_whole or any(run.exit_code != 0 or run.not_applied for run in (*base, *changed)):
        return _not_measured(flip, _why_not_tried(base, changed, _TIME_UP))
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
    return sum(call.total + sum(call.compiling) + sum(call.warming) for call in run.calls) / 1e9


def _compiling_calls(run: TimedRun) -> int:
    return sum(len(call.compiling) for call in run.calls)
