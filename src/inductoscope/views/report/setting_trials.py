"""Settings that were tried, as data and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.profiling.settings.trials import SettingTrial, SettingTrials
from inductoscope.profiling.statistics import FASTER, FEWEST_RUNS, SLOWER, TOO_FEW
from inductoscope.views.report.profile import comparison_view, sample_view
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, Printer
from inductoscope.views.report.times import time_text

_STYLES = {FASTER: GOOD, SLOWER: BAD}


def trials_view(trials: SettingTrials, command: Sequence[str], turns: int) -> dict[str, Any]:
    """Every setting with its times and how they compare."""
    return {
        "command": list(command),
        "turns": turns,
        "calls": [
            {"kind": kind, "name": name, "calls": count} for kind, name, count in trials.calls
        ],
        "base": _trial_view(trials.base),
        "tries": [_trial_view(trial) for trial in trials.trials],
    }


def _trial_view(trial: SettingTrial) -> dict[str, Any]:
    found = trial.comparison
    return {
        "name": trial.variant.name,
        "settings": dict(trial.variant.settings),
        "runs": trial.runs,
        "seconds": sample_view(trial.seconds),
        "note": trial.note,
        "comparison": None if found is None else comparison_view(found),
    }


def print_trials(printer: Printer, view: Mapping[str, Any]) -> None:
    """The program as it is, then each setting."""
    printer.heading(f"time of a compiled call, {view['turns']} runs of each in turns")
    if not view["calls"]:
        printer.line("No compiled call was made that neither compiled nor warmed up.")
    width = max(len(row["name"]) for row in (view["base"], *view["tries"]))
    for row in (view["base"], *view["tries"]):
        found = row["comparison"]
        time = time_text(row["seconds"]) if row["seconds"]["values"] else "?"
        about = "" if found is None else _verdict_text(found)
        style = _STYLES.get(found["verdict"], "") if found else ""
        printer.line(f"{row['name']:<{width}}  {time:>15}  {about}", indent=2, style=style)
        if row["note"]:
            printer.line(row["note"], indent=4, style=FAINT)
    printer.line()
    printer.line(
        "±: half of the distance between the quartiles of the runs. A difference counts if a rank "
        "test over the runs says that chance makes it in less than 2 of 100 comparisons.",
        style=FAINT,
    )


def _verdict_text(found: Mapping[str, Any]) -> str:
    interval = f"{found['low']:.2f} to {found['high']:.2f}"
    if found["verdict"] == TOO_FEW:
        return f"too few runs to compare; {FEWEST_RUNS} are needed"
    if found["verdict"] == FASTER:
        return f"faster: {found['ratio']:.2f} of the time ({interval})"
    if found["verdict"] == SLOWER:
        return f"slower: {found['ratio']:.2f} times as long ({interval})"
    return f"no difference shown ({interval} times as long)"
