"""Results of `profile --advise` as data and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inductoscope.profiling.evidence import Cost
from inductoscope.profiling.flip_trials import FlipTrial, TrialResults
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, Printer
from inductoscope.views.report.times import picked
from inductoscope.wording import count_of

# Slower than eager by more than this is worth a colour.
_SLOWER = 1.05


def advice_view(
    results: TrialResults, command: Sequence[str], recording: str, costs: Sequence[Cost] = ()
) -> dict[str, Any]:
    base = results.base
    return {
        "command": list(command),
        "recording": recording,
        "runs": results.runs,
        "error": results.error,
        "base": None
        if base is None
        else {
            "calls": base.calls,
            "seconds_in_eager": base.seconds,
            "ratio_to_eager": base.ratio,
            "how": results.how,
        },
        "costs": [asdict(cost) for cost in costs],
        "advice": [_trial_view(trial) for trial in results.advice],
        "without_effect": [_trial_view(trial) for trial in results.trials if not trial.helps],
    }


def _trial_view(trial: FlipTrial) -> dict[str, Any]:
    return {
        **picked(trial.flip, "change", "why", "rule", "source", "prediction", "warning"),
        "code": trial.flip.to_paste,
        # These values are unknown for a change that was not measured.
        "seconds_saved": trial.saved if trial.changed.count else None,
        "ratio": trial.ratio if trial.changed.count else None,
        "seconds_predicted": trial.flip.predicted,
        **picked(trial, "helps", "conclusion", "how"),
    }


def print_advice(printer: Printer, view: Mapping[str, Any]) -> None:
    base = view["base"]
    if base is None:
        printer.line(view["error"])
    else:
        ratio = base["ratio_to_eager"]
        text = f"compiled calls take {ratio:.2f} times as long as in eager"
        printer.line(text, style=BAD if ratio > _SLOWER else GOOD)
        printer.line(base["how"], indent=2, style=FAINT)
    for cost in view["costs"]:
        printer.line(f"{_seconds(cost['seconds'])} per run: {cost['what']}")
        printer.line("; ".join(filter(None, (cost["source"], cost["how"]))), indent=2, style=FAINT)
    for number, trial in enumerate(view["advice"], start=1):
        _print_trial(printer, number, trial)
    tried = sum(not trial["warning"] for trial in view["without_effect"])
    if not view["advice"] and tried:
        printer.line(f"Nothing that helps was found; {count_of(tried, 'change')} tried.")
    elif not view["advice"] and base is not None:
        printer.line("No change was tried: nothing suggests one that torch calls safe.")
    for trial in view["without_effect"]:
        printer.line(f"{trial['conclusion']}: {trial['change']}", style=FAINT)
        printer.line(trial["how"], indent=2, style=FAINT)
    printer.pair("recording", view["recording"])


def _print_trial(printer: Printer, number: int, trial: Mapping[str, Any]) -> None:
    saved = f"saves {_seconds(trial['seconds_saved'])} per run"
    predicted = trial["seconds_predicted"]
    if predicted is not None:
        saved += f" (predicted: {_seconds(predicted)}, {trial['prediction']})"
    elif trial["prediction"]:
        saved += f" (not predicted: {trial['prediction']})"
    printer.line(f"{number}. {trial['change']}", style=GOOD)
    printer.pair("measured", f"{saved}; {trial['ratio']:.2f} of the time is left")
    printer.pair("why", trial["why"])
    if trial["source"]:
        printer.pair("where", trial["source"])
    printer.pair("how", trial["how"])
    if trial["code"] != trial["change"]:
        printer.code(trial["code"], indent=4)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
