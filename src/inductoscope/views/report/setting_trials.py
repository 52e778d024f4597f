"""Results of `profile --try` and `--autotune` as data and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.profiling.autotuning import TunedOperation, TuningResult
from inductoscope.profiling.statistics import FASTER, FEWEST_RUNS, SLOWER, TOO_FEW
from inductoscope.profiling.turns import SettingTrial, SettingTrials
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.views.report.times import comparison_view, picked, sample_view, time_text
from inductoscope.wording import count_of

_STYLES = {FASTER: GOOD, SLOWER: BAD}


def trials_view(trials: SettingTrials, command: Sequence[str], turns: int) -> dict[str, Any]:
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
    printer.heading(f"time of a compiled call, {view['turns']} runs of each in turns")
    if not view["calls"]:
        printer.line("No compiled call was made that neither compiled nor warmed up.")
    width = max(len(row["name"]) for row in (view["base"], *view["tries"]))
    for row in (view["base"], *view["tries"]):
        found = row["comparison"]
        about = "" if found is None else _verdict_text(found)
        _print_row(printer, row, width, about, _STYLES.get(found["verdict"], "") if found else "")
    printer.line()
    printer.line(
        "±: half of the distance between the quartiles of the runs. A difference counts if a rank "
        "test over the runs says that chance makes it in less than 2 of 100 comparisons.",
        style=FAINT,
    )


def _print_row(
    printer: Printer, row: Mapping[str, Any], width: int, about: str, style: str = ""
) -> None:
    time = time_text(row["seconds"]) if row["seconds"]["values"] else "?"
    printer.line(f"{row['name']:<{width}}  {time:>15}  {about}", indent=2, style=style)
    if row["note"]:
        printer.line(row["note"], indent=4, style=FAINT)


def _verdict_text(found: Mapping[str, Any]) -> str:
    interval = f"{found['low']:.2f} to {found['high']:.2f}"
    if found["verdict"] == TOO_FEW:
        return f"too few runs to compare; {FEWEST_RUNS} are needed"
    if found["verdict"] == FASTER:
        return f"faster: {found['ratio']:.2f} of the time ({interval})"
    if found["verdict"] == SLOWER:
        return f"slower: {found['ratio']:.2f} times as long ({interval})"
    return f"no difference shown ({interval} times as long)"


# --- autotuning -----------------------------------------------------------------------------------

_SHOWN = 5


def tuning_view(
    result: TuningResult, command: Sequence[str], recording: str, turns: int
) -> dict[str, Any]:
    return {
        "command": list(command),
        "recording": recording,
        "graphs": result.graphs,
        "seconds_of_search": result.seconds,
        "operations": [_operation_view(each) for each in result.operations],
        "in_program": None if result.trials is None else trials_view(result.trials, command, turns),
        "seconds_gained_per_call": result.gain,
        "pays_after_calls": result.pays_after,
    }


def _operation_view(found: TunedOperation) -> dict[str, Any]:
    tuned = found.tuned
    untimed = [choice for choice in tuned.choices if choice.milliseconds is None]
    about = "name", "description", "milliseconds", "failed", "compile_seconds", "is_generated"
    return {
        **picked(tuned, "operation", "winner"),
        **picked(found, "graph", "source", "spread", "calls", "regret", "is_slower_than_library"),
        "choices": [picked(choice, *about) for choice in (*tuned.timed, *untimed)],
        "library": tuned.library.name if tuned.library else None,
        "library_against_winner": tuned.gain,
        "winner_in_program": sample_view(found.in_program)
        if found.in_program.count and tuned.winner
        else None,
    }


def print_tuning(printer: Printer, view: Mapping[str, Any]) -> None:
    searched = [each for each in view["operations"] if len(each["choices"]) > 1]
    if not view["graphs"]:
        printer.line("Nothing was compiled, so there was nothing to choose.")
    elif not searched:
        printer.line(
            "The program does not autotune: no operation had more than one choice. "
            'torch.compile(mode="max-autotune-no-cudagraphs") makes torch search.'
        )
    for each in searched:
        _print_operation(printer, each)
    if view["in_program"] is not None:
        _print_worth(printer, view)
    printer.pair("recording", view["recording"])


def _print_operation(printer: Printer, each: Mapping[str, Any]) -> None:
    where = f" · {each['source']}" if each["source"] else ""
    printer.heading(f"{each['operation']}{where}, graph {each['graph']}")
    timed = [choice for choice in each["choices"] if choice["milliseconds"] is not None]
    library = [choice for choice in timed[_SHOWN:] if choice["name"] == each["library"]]
    for choice in (*timed[:_SHOWN], *library):
        kind = "generated" if choice["is_generated"] else "library"
        mark = "chosen" if choice["name"] == each["winner"] else ""
        text = f"{choice['milliseconds']:>10.4f} ms  {kind:<9}  {choice['name']}  {mark}"
        printer.line(text.rstrip(), indent=2)
    left = len(each["choices"]) - len(timed[:_SHOWN]) - len(library)
    if left:
        printer.line(f"{count_of(left, 'further choice')}", indent=2, style=FAINT)
    printer.line(_summary(each), indent=2)


def _summary(each: Mapping[str, Any]) -> str:
    parts = []
    if each["spread"] is not None:
        parts.append(f"the slowest takes {each['spread']:.1f} times as long as the fastest")
    if each["library"] == each["winner"]:
        parts.append("the library won")
    elif each["library_against_winner"] is not None:
        parts.append(
            f"the library's {each['library']} takes {each['library_against_winner']:.2f} times as "
            "long as the winner"
        )
    if each["winner_in_program"] is not None:
        parts.append(f"the winner takes {time_text(each['winner_in_program'])} in the program")
        if each["regret"] is not None:
            parts[-1] += f", {each['regret']:.2f} times what the search measured"
        if each["is_slower_than_library"]:
            parts[-1] += "; longer than the library took in the search"
    return "; ".join(parts) or "what torch took was not timed"


def _print_worth(printer: Printer, view: Mapping[str, Any]) -> None:
    base, without = view["in_program"]["base"], view["in_program"]["tries"][0]
    printer.heading(f"in the program, {view['in_program']['turns']} runs of each in turns")
    for row in (base, without):
        _print_row(printer, row, 20, "per compiled call")
    gain, search = view["seconds_gained_per_call"], view["seconds_of_search"]
    if without["comparison"] is None:
        printer.line(f"What it gains was not measured. The search took {search:.1f} s.", style=WARN)
    elif gain is None:
        is_few = without["comparison"]["verdict"] == TOO_FEW
        few = f": that takes --turns {FEWEST_RUNS}" if is_few else ""
        printer.line(f"No difference can be shown{few}. The search took {search:.1f} s.")
    elif gain <= 0:
        text = (
            f"Autotuning makes it slower, by {-gain * 1e6:.1f} µs per call; it took {search:.1f} s."
        )
        printer.line(text, style=BAD)
    else:
        printer.line(
            f"Autotuning saves {gain * 1e6:.1f} µs per call. The search took {search:.1f} s, which "
            f"pays after {view['pays_after_calls']:,} calls.",
            style=GOOD,
        )
