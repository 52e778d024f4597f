"""The fusion ledger on a terminal and as JSON: refused pairs, their costs, and remedies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from inductoscope.analysis.fusion.decisions import Consideration, settings_text
from inductoscope.analysis.fusion.ledger import (
    ESTABLISHED,
    FUSED,
    NEVER,
    REFUSED,
    Condition,
    LedgerRow,
    Loss,
    Outcome,
    bandwidth_for,
    bytes_moved,
    conditions,
    is_bound,
    ledger,
)
from inductoscope.analysis.fusion.naming import FoundPair
from inductoscope.model.entities import InductorGraph, Recording
from inductoscope.model.schedule import read_schedule
from inductoscope.model.target import target_view
from inductoscope.views.plain_text import visible
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.wording import bytes_text, count_of

if TYPE_CHECKING:
    from inductoscope.analysis.fusion.trials import Trial

View = dict[str, Any]

OUTCOMES: dict[str, Outcome] = {"fused": FUSED, "refused": REFUSED, "never": NEVER}

_MOST_VALUES = 4
_MOST_EXAMPLES = 3
# A shorter part of an operation's name would say nothing.
_SHORTEST = 4


@dataclass(frozen=True)
class Selection:
    """The selected part of the ledger; empty fields select everything."""

    graph: str = ""
    outcome: str = ""
    sort: str = "bytes"
    limit: int = 10
    bandwidth: float | None = None


# --- data -----------------------------------------------------------------------------------------


def fusion_view(recording: Recording, selection: Selection) -> View:
    """Return the ledger, its totals, and the deciding conditions, costliest first."""
    every = [
        row
        for row in ledger(recording, bandwidth=selection.bandwidth)
        if is_graph(row.graph, selection.graph)
    ]
    wanted = OUTCOMES.get(selection.outcome, "")
    rows = [row for row in every if wanted in ("", row.outcome)]
    rows.sort(key=_SORTS.get(selection.sort, lambda row: 0))
    return {
        "recording": recording.path,
        "target": target_view(recording),
        "outcome": wanted,
        "sort": selection.sort,
        "limit": selection.limit,
        "totals": {outcome: _total(every, outcome) for outcome in OUTCOMES.values()},
        "time": _time(recording, every, selection.bandwidth),
        "conditions": [
            condition
            for outcome in (REFUSED, NEVER)
            if wanted in ("", outcome)
            for condition in conditions(every, outcome)
        ],
        "rows": rows,
        "notes": _notes(recording, selection.graph),
    }


def _total(rows: list[LedgerRow], outcome: str) -> View:
    chosen = [row for row in rows if row.outcome == outcome]
    return {"pairs": len(chosen), "bytes": bytes_moved(chosen), "at_most": is_bound(chosen)}


def is_graph(key: str, wanted: str) -> bool:
    """Check whether a graph matches: '0/0 forward', '0/0' or 'forward'."""
    return not wanted or key == wanted or wanted in key.split(" ", 1)


# The sort key of rows, before schedule order.
_SORTS: dict[str, Callable[[LedgerRow], Any]] = {
    "bytes": lambda row: -(row.bytes or 0),
    "score": lambda row: -(row.score or 0),
    "reason": lambda row: (row.condition, -(row.bytes or 0)),
}


def _time(recording: Recording, rows: Iterable[LedgerRow], given: float | None) -> View:
    devices = sorted({row.device for row in rows})
    speeds = {device: bandwidth_for(recording, device, given=given) for device in devices}
    return {
        "established": ESTABLISHED,
        "bandwidths": {
            device: {"gigabytes_per_second": speed.gigabytes, "source": speed.source}
            for device, speed in speeds.items()
            if speed is not None
        },
        "unknown": [device for device in devices if speeds[device] is None],
    }


def _notes(recording: Recording, wanted: str) -> list[str]:
    graphs = [graph for graph in recording.graphs if is_graph(graph.key, wanted)]
    notes = [note for graph in graphs if (note := _missing(recording, graph))]
    if not graphs:
        known = ", ".join(graph.key for graph in recording.graphs)
        what = f"graph {wanted!r}" if wanted and known else "graph that Inductor compiled"
        notes.append(f"The recording has no {what}." + (f" It has: {known}." if known else ""))
    return notes


def _missing(recording: Recording, graph: InductorGraph) -> str:
    if graph.cached:
        return f"{graph.key} came from torch's cache, so fusion did not run."
    if not graph.scheduled_before:
        return f"{graph.key}: no scheduler nodes were recorded, so its fusions are unknown."
    if not read_schedule(recording, graph.scheduled_before):
        return f"{graph.key}: the list of scheduler nodes is missing or damaged."
    if not graph.rounds:
        return f"{graph.key}: no finished fusion round was recorded."
    if not graph.scheduled_after:
        return f"{graph.key}: the end of scheduling is missing; this is what was done before."
    return ""


# --- terminal -------------------------------------------------------------------------------------


def print_fusion(printer: Printer, view: View) -> None:
    if view["target"]:
        printer.line(view["target"]["note"], style=WARN)
    for note in view["notes"]:
        printer.line(note, style=WARN)
    if not any(total["pairs"] for total in view["totals"].values()):
        if not view["notes"]:
            printer.line("No scheduler nodes share data: there was nothing to fuse.")
        return
    _print_totals(printer, view)
    if view["outcome"] == FUSED:
        _print_rows(printer, view, "Fused")
        return
    if view["sort"] != "bytes" or view["outcome"] == NEVER:
        _print_rows(printer, view, "Pairs")
    else:
        _print_losses(printer, view)
    for outcome, title in ((REFUSED, "Why refused"), (NEVER, "Why never tried")):
        _print_conditions(printer, view, outcome, title)
    printer.line("One pair in full: inductoscope fusion --why FIRST SECOND [--try]", style=FAINT)


def _print_totals(printer: Printer, view: View) -> None:
    said = {
        FUSED: "no longer moved",
        REFUSED: "moved again because of it",
        NEVER: "moved again",
    }
    printer.heading("Fusion ledger")
    for outcome, words in said.items():
        total = view["totals"][outcome]
        count = f"{total['pairs']:5} pair{'s' if total['pairs'] != 1 else ' '}"
        moved = f"{_moved(total['bytes'], total['at_most']):>9} {words}" if total["pairs"] else ""
        printer.pair(outcome, f"{count} {moved}".rstrip())
    for device, speed in view["time"]["bandwidths"].items():
        text = f"{speed['gigabytes_per_second']:.0f} GB/s on {device} ({speed['source']})"
        printer.pair("time", f"{view['time']['established']}: {text}")
    if view["time"]["unknown"]:
        devices = ", ".join(view["time"]["unknown"])
        printer.pair("time", f"unknown for {devices}; pass --bandwidth GB/s")
    printer.line()


def _print_losses(printer: Printer, view: View) -> None:
    conditions = _conditions(view, REFUSED)
    found = [(loss, condition.number) for condition in conditions for loss in condition.losses]
    if not found:
        return
    found.sort(key=lambda item: -(item[0].bytes or 0))
    table = [(_size(loss, view), loss.graph, loss.label, number) for loss, number in found]
    printer.heading("Costliest refusals")
    legend = "->: the second reads what the first writes; &: both read the same buffer"
    printer.line(legend, indent=2, style=FAINT)
    _print_table(printer, table, view["limit"])


def _print_rows(printer: Printer, view: View, title: str) -> None:
    printer.heading(title)
    table = []
    for row in view["rows"]:
        why = row.kind if row.outcome == FUSED else row.condition
        table.append((_size(row, view), row.graph, row.label, why))
    _print_table(printer, table, view["limit"])


def _print_table(printer: Printer, every: list[tuple[str, str, str, Any]], limit: int) -> None:
    """Print rows of size, graph, pair and reason; shorten operations of long pairs."""
    if not every:
        printer.line("none", indent=2)
        printer.line()
        return
    table = every[:limit]
    several = len({graph for _, graph, _, _ in table}) > 1
    graphs = max(len(visible(graph)) for _, graph, _, _ in table) if several else 0
    reasons = [f"[{why}]" if isinstance(why, int) else visible(str(why)) for *_, why in table]
    reason = min(24, max(map(len, reasons)))
    sizes = max(10, *(len(size) for size, *_ in table)) + 2
    room = max(20, printer.width - sizes - 2 - (graphs + 2 if several else 0) - reason - 2)
    for (size, graph, pair, _), why in zip(table, reasons, strict=True):
        place = f"{visible(graph):{graphs}}  " if several else ""
        pair = shortened_pair(visible(pair), room)
        printer.line(
            f"{size:>{sizes}}  {place}{pair:{room}}  {_shortened(why, reason)}".rstrip(), indent=0
        )
    if len(every) > limit:
        more = len(every) - limit
        printer.line(f"{more} more: --limit {len(every)}", indent=2, style=FAINT)
    printer.line()


def shortened_pair(label: str, room: int) -> str:
    """Shorten a pair: keep both node names, as --why takes them, and fit operations in the rest."""
    words = label.split(" ")
    if len(label) <= room or len(words) != 5:
        return _shortened(label, room)
    first, one, arrow, second, other = words
    left = room - len(f"{first} {arrow} {second}") - 2
    if left < 2 * _SHORTEST:
        return _shortened(f"{first} {arrow} {second}", room)
    share = max(left // 2, left - len(other)) if len(one) > left // 2 else len(one)
    return f"{first} {_shortened(one, share)} {arrow} {second} {_shortened(other, left - share)}"


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 3] + "..."


def _size(item: LedgerRow | Loss, view: View) -> str:
    speed = view["time"]["bandwidths"].get(item.device)
    size = ("<=" if item.at_most and item.bytes else "") + bytes_text(item.bytes)
    if speed is None or item.bytes is None:
        return size
    return f"{size} {time_text(item.bytes / (speed['gigabytes_per_second'] * 1000))}"


def _moved(count: int | None, at_most: bool) -> str:
    return ("at most " if at_most and count else "") + bytes_text(count)


def time_text(microseconds: float) -> str:
    """Format microseconds in at most eight characters."""
    if microseconds < 1:
        return f"{microseconds * 1000:.0f} ns"
    if microseconds < 1000:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1000:.1f} ms"


def _print_conditions(printer: Printer, view: View, outcome: str, title: str) -> None:
    chosen = _conditions(view, outcome)
    if not chosen:
        return
    printer.heading(title)
    for condition in chosen:
        count = count_of(condition.pairs, "pair")
        mark = f"[{condition.number}] " if outcome == REFUSED else "- "
        moved = _moved(condition.bytes, condition.at_most)
        printer.line(f"{mark}{condition.condition}: {count}, {moved} moved again")
        printer.line(condition.reason, indent=4)
        for value in condition.losses[0].values[:_MOST_VALUES]:
            printer.line(value, indent=6, style=FAINT)
        if outcome == NEVER:
            for loss in condition.losses[:_MOST_EXAMPLES]:
                printer.line(f"{_size(loss, view):>9}  {loss.label}", indent=6, style=FAINT)
        print_change(printer, condition.what_to_change)
    printer.line()


def _conditions(view: View, outcome: str) -> list[Condition]:
    return [condition for condition in view["conditions"] if condition.outcome == outcome]


def print_change(printer: Printer, change: str) -> None:
    """Print how to change the outcome, or that nothing can be done."""
    if change:
        prefix = "" if change.startswith("Nothing") else "To change: "
        printer.line(prefix + change, indent=4, style=GOOD)


# --- One pair of the fusion ledger in full: each time it was considered, and what to change -------

_MOST_PARTS = 5
_STYLES = {"fused": GOOD, "refused": BAD, "possible": "", "never tried": WARN}


# --- data -----------------------------------------------------------------------------------------


def pair_view(recording: Recording, found: FoundPair, *, bandwidth: float | None = None) -> View:
    """Return all data on a pair; `bandwidth` must be the one passed to `find_pair`."""
    row = found.row
    view: View = {
        "recording": recording.path,
        "target": target_view(recording),
        "graph": found.graph,
        "words": found.words,
        "other_pairs": found.others,
        "pair": row,
        "considered": row.considered if row else (),
        "moved": row.moved if row else (),
        "tries": row.tries if row else (),
        "trials": [],
    }
    if row is None:
        return view
    speed = bandwidth_for(recording, row.device, given=bandwidth)
    time = None if speed is None else f"{ESTABLISHED}; {speed.gigabytes:.0f} GB/s, {speed.source}"
    return {**view, "label": row.label, "time": time}


def trials_view(row: LedgerRow, trials: Iterable[Trial]) -> list[View]:
    return [
        {**asdict(trial), "fused": trial.fused, "as_recorded": trial.outcome == row.outcome}
        for trial in trials
    ]


# --- terminal -------------------------------------------------------------------------------------


def print_pair(printer: Printer, view: View) -> None:
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
    others = view["other_pairs"]
    more = f"{others} more between these two kernels; this is the costliest" if others else ""
    printer.pairs({"also": view["words"], "pairs": more})
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
    total = _moved(pair.bytes, pair.at_most)
    total += f", {time_text(time)}" if time is not None else ""
    parts = [
        f"{moved.buffer} read {bytes_text(moved.read_bytes)}"
        + (f" and written {bytes_text(moved.written_bytes)}" if moved.written_bytes else "")
        for moved in pair.moved
    ]
    printer.pair(words, f"{total} ({', '.join(parts)})" if parts else total)
    if view["time"]:
        printer.pair("", view["time"])


def _print_considered(printer: Printer, items: Sequence[Consideration]) -> None:
    if not items:
        printer.line("torch never considered this pair.")
        printer.line()
        return
    printer.heading("Each time torch considered it")

    fused = {item.round for item in items if item.outcome == FUSED}

    def same(item: Consideration) -> tuple[str | bool, ...]:
        is_fused = item.round in fused
        return item.first, item.second, item.outcome, item.torch, item.reason, is_fused

    for (*_, is_fused), found in groupby(items, key=same):
        _print_consideration(printer, list(found), is_fused=bool(is_fused))
    printer.line()


def _print_consideration(
    printer: Printer, same: Sequence[Consideration], *, is_fused: bool
) -> None:
    """Print what torch decided in some rounds; `is_fused` if it fused the pair in them."""
    item = same[-1]
    first, last = min(each.round for each in same), max(each.round for each in same)
    when = f"round {first}" if first == last else f"rounds {first} to {last}"
    groups = f"{group_text(item.first)} with {group_text(item.second)}"
    about = f"{when}: {groups}: {item.outcome}"
    if item.outcome == "possible" and not is_fused:
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
    """Format a fused group; abbreviate a long one to its first and last node."""
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
