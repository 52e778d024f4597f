"""Runs the program with each setting in turns, and says which of them change its speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.profiling.statistics import Sample, TimeComparison, compare
from inductoscope.profiling.turns import (
    Say,
    TimedRun,
    Variant,
    VariantRuns,
    calls_to_compare,
    run_in_turns,
)

BASE = "as it is"


@dataclass(frozen=True)
class SettingTrial:
    """One setting: the time of the program's compiled calls with it, against those without."""

    variant: Variant
    # Seconds of one compiled call, one number per run: the median of each thing that is called,
    # weighted by how often the program calls it.
    seconds: Sample
    comparison: TimeComparison | None
    runs: int
    # Why nothing can be said, or what to know beside it.
    note: str = ""


@dataclass(frozen=True)
class SettingTrials:
    """All settings that were tried, and the program as it is."""

    base: SettingTrial
    trials: tuple[SettingTrial, ...]
    # What was timed: kind and name, and how often the program calls it.
    calls: tuple[tuple[str, str, int], ...]
    # The run of the program as it is that failed: then nothing is compared.
    failed: TimedRun | None = None


def try_settings(
    command: Sequence[str],
    variants: Sequence[Variant],
    folder: Path,
    *,
    turns: int,
    seconds: float,
    say: Say,
) -> SettingTrials:
    """Run the program as it is and with each setting, in turns, and compare."""
    everything = (Variant(BASE), *variants)
    done = run_in_turns(command, everything, folder, turns=turns, seconds=seconds, say=say)
    base, *others = done
    if base.failed:
        return _not_compared(base, others, seconds)
    counts = calls_to_compare(done)
    number = sum(counts.values())
    first = _trial(base, counts, number, None)
    return SettingTrials(
        first,
        tuple(_trial(runs, counts, number, first.seconds) for runs in others),
        tuple((kind, name, count) for (kind, name), count in counts.items()),
    )


def _not_compared(
    base: VariantRuns, others: Sequence[VariantRuns], seconds: float
) -> SettingTrials:
    """What is said where the program fails as it is."""
    if base.failed[0].exit_code is None:
        raise ToolFailure(f"{_why_failed(base)}. Give it more than {seconds:g} s: --time-limit.")
    why = "it is not compared, because the program fails as it is"
    return SettingTrials(
        SettingTrial(base.variant, Sample(()), None, len(base.runs), _why_failed(base)),
        tuple(SettingTrial(o.variant, Sample(()), None, len(o.runs), why) for o in others),
        (),
        base.failed[0],
    )


def _trial(
    runs: VariantRuns,
    counts: dict[tuple[str, str], int],
    number: int,
    base: Sample | None,
) -> SettingTrial:
    total = runs.sample(counts)
    sample = Sample(tuple(value / number for value in total.values)) if number else Sample(())
    is_comparable = base is not None and sample.count and not _not_applied(runs)
    comparison = compare(base, sample) if base is not None and is_comparable else None
    return SettingTrial(runs.variant, sample, comparison, len(runs.runs), _note(runs, sample))


def _not_applied(runs: VariantRuns) -> str:
    return next((run.not_applied for run in runs.runs if run.not_applied), "")


def _note(runs: VariantRuns, sample: Sample) -> str:
    if runs.failed:
        return _why_failed(runs)
    if _not_applied(runs):
        return f"it could not be applied: {_not_applied(runs)}"
    if not sample.count:
        return "no compiled call was made that neither compiled nor warmed up"
    changed = [
        f"{name} was {now} when the program ended: the program sets it itself"
        for run in runs.runs[:1]
        for process in run.processes
        for name, now in process.settings.items()
        if now != repr(runs.variant.settings.get(name))
    ]
    if changed:
        return changed[0]
    return "its runs vary too much to say much" if sample.is_noisy else ""


def _why_failed(runs: VariantRuns) -> str:
    run = runs.failed[0]
    words = run.output.strip().splitlines()
    if run.exit_code is None:
        how = "took too long"
    elif run.exit_code < 0:
        how = f"ended with signal {-run.exit_code}"
    else:
        how = f"ended with exit code {run.exit_code}"
    name = "the program" if runs.variant.name == BASE else "it"
    last = f": {words[-1][:200]}" if words else ""
    return f"{name} {how}{last}"
