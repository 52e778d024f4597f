"""One pair of the fusion ledger in full: each time it was considered, and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from inductoscope.analysis.fusion.costs import ESTABLISHED, bandwidth_for
from inductoscope.analysis.fusion.decisions import Consideration
from inductoscope.analysis.fusion.naming import FoundPair
from inductoscope.analysis.fusion.row import FUSED, LedgerRow
from inductoscope.analysis.fusion.trying import Trial, settings_text
from inductoscope.model.entities import Recording
from inductoscope.model.target import target_view
from inductoscope.views.report.fusion import print_change, time_text
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.vocabulary.counting import bytes_text, count_of

View = dict[str, Any]

_MOST_PARTS = 5
_STYLES = {"fused": GOOD, "refused": BAD, "possible": "", "never tried": WARN}


# --- data -----------------------------------------------------------------------------------------


def pair_view(recording: Recording, found: FoundPair, *, bandwidth: float | None = None) -> View:
    """What is known about a pair; `bandwidth` must be the one passed to `find_pair`."""
    row = found.row
    view: View = {
        "schema": 1,
        "recording": recording.path,
        "target": target_view(recording),
        "graph": found.graph,
        "words": found.words,
        "other_pairs": found.others,
        "pair": None,
        "considered": [],
        "moved": [],
        "tries": [],
        "trials": [],
    }
    if row is None:
        return view
    speed = bandwidth_for(recording, row.device, given=bandwidth)
    return {
        **view,
        "label": row.label,
        "pair": row,
        "considered": row.considered,
        "moved": row.moved,
        "time": None
        if speed is None
        else f"{ESTABLISHED}; {speed.gigabytes:.0f} GB/s, {speed.source}",
        "tries": row.tries,
    }


def trials_view(row: LedgerRow, trials: Iterable[Trial]) -> list[View]:
    """The pair's outcome with other settings."""
    return [
        {
            "settings": dict(trial.settings),
            "outcome": trial.outcome,
            "fused": trial.fused,
            "reason": trial.reason,
            "kernels": trial.kernels,
            "error": trial.error,
            "as_recorded": trial.outcome == row.outcome,
        }
        for trial in trials
    ]


# --- terminal -------------------------------------------------------------------------------------


def print_pair(printer: Printer, view: View) -> None:
    """A pair as text."""
    if view["target"]:
        printer.line(view["target"]["note"], style=WARN)
    if view["pair"] is None:
        printer.heading(view["graph"])
        printer.line(view["words"][:1].upper() + view["words"][1:])
        return
    pair: LedgerRow = view["pair"]
    printer.heading(f"{pair.label}   ({pair.graph})")
    kind = f" ({pair.kind})" if pair.kind else ""
    printer.pair("outcome", f"{pair.outcome}{kind}; {_established(pair)}")
    printer.pair("first", ", ".join(pair.first_operations) or "?")
    printer.pair("second", ", ".join(pair.second_operations) or "?")
    printer.pair("kernels", _kernels(pair))
    _print_costs(printer, view)
    if view["words"]:
        printer.pair("also", view["words"])
    if view["other_pairs"]:
        text = f"{view['other_pairs']} more between these two kernels; this is the costliest"
        printer.pair("pairs", text)
    printer.line()
    _print_considered(printer, pair.considered)
    printer.heading("Why")
    printer.line(pair.reason, indent=4)
    for value in pair.values:
        printer.line(value, indent=6, style=FAINT)
    print_change(printer, pair.what_to_change)
    _print_trials(printer, view)


def _kernels(pair: LedgerRow) -> str:
    names = list(dict.fromkeys(filter(None, pair.kernels)))
    if len(names) == 1 and pair.outcome != FUSED:
        # The C++ backend writes consecutive loops into one function.
        return f"{names[0]} (one function, but separate loops)"
    return " and ".join(names) or "?"


def _established(pair: LedgerRow) -> str:
    if pair.confidence == "proven":
        return "torch says so" if pair.torch else "proven by the recording"
    return f"{pair.confidence}: concluded from the recording"


def _print_costs(printer: Printer, view: View) -> None:
    pair: LedgerRow = view["pair"]
    words = "saves" if pair.outcome == FUSED else "costs"
    time = pair.microseconds
    most = "at most " if pair.at_most and pair.bytes else ""
    total = most + bytes_text(pair.bytes) + (f", {time_text(time)}" if time is not None else "")
    parts = [
        f"{moved.buffer} read {bytes_text(moved.read_bytes)}"
        + (f" and written {bytes_text(moved.written_bytes)}" if moved.written_bytes else "")
        for moved in pair.moved
    ]
    printer.pair(words, f"{total} ({', '.join(parts)})" if parts else total)
    if view["time"]:
        printer.pair("", view["time"])


def _print_considered(printer: Printer, items: Iterable[Consideration]) -> None:
    if not items:
        printer.line("torch never considered this pair.")
        printer.line()
        return
    printer.heading("Each time torch considered it")

    def same(item: Consideration) -> tuple[str, ...]:
        return item.first, item.second, item.outcome, item.torch, item.reason

    for _, found in groupby(items, key=same):
        group = list(found)
        rounds = sorted({item.round for item in group})
        _print_consideration(printer, group[-1], rounds)
    printer.line()


def _print_consideration(printer: Printer, item: Consideration, rounds: list[int]) -> None:
    first, last = rounds[0], rounds[-1]
    when = f"round {first}" if first == last else f"rounds {first} to {last}"
    groups = f"{group_text(item.first)} with {group_text(item.second)}"
    about = f"{when}: {groups}: {item.outcome}"
    if item.outcome == "possible":
        about += ", but not fused in that round"
    if item.within:
        about += f" (as part of {' with '.join(map(group_text, item.within))})"
    printer.line(about, indent=2, style=_STYLES.get(item.outcome, ""))
    if item.outcome == "refused":
        printer.pair("torch", item.torch or "gives no reason", indent=4, width=8)
        if item.reason:
            printer.pair("means", item.reason, indent=4, width=8)
    if item.shared_bytes is not None:
        printer.pair("shared", bytes_text(item.shared_bytes), indent=4, width=8)


def group_text(name: str) -> str:
    """A group; by its first and last node if it has many."""
    parts = name.split("_")
    if len(parts) <= _MOST_PARTS:
        return name
    return f"{parts[0]}_{parts[1]}_..._{parts[-1]} ({len(parts)} nodes)"


def _print_trials(printer: Printer, view: View) -> None:
    trials = view["trials"]
    if not trials:
        if view["tries"] and view["pair"].outcome != FUSED:
            settings = " or ".join(settings_text(item) for item in view["tries"])
            printer.line(f"Worth trying (--try does it): {settings}", indent=4)
        return
    printer.line()
    printer.heading("Tried by recompiling the graph (nothing was run or timed)")
    for trial in trials:
        printer.line(settings_text(trial["settings"]), indent=2)
        style = GOOD if trial["fused"] else ""
        printer.line(_trial_text(trial), indent=6, style=style)
    printer.line(_conclusion(trials), indent=2)


def _trial_text(trial: View) -> str:
    if trial["error"]:
        return f"unknown: {trial['error']}"
    kernels = f"; {count_of(trial['kernels'], 'kernel')} in the graph" if trial["kernels"] else ""
    reason = "" if trial["fused"] else f": {trial['reason']}"
    return f"{trial['outcome']}{kernels}{reason}"


def _conclusion(trials: list[View]) -> str:
    if not trials[0]["as_recorded"]:
        return "The recorded outcome was not reproduced, so the trial proves nothing."
    helped = [trial for trial in trials[1:] if trial["fused"]]
    if helped:
        return f"Proven: with {settings_text(helped[0]['settings'])} torch fuses the two."
    if len(trials) == 1:
        return "No known setting could change it."
    return "None of these settings makes the two fuse."
