"""The fusion ledger on a terminal and as JSON: what was refused, what it costs, what to change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inductoscope.analysis.fusion.costs import ESTABLISHED, bandwidth_for
from inductoscope.analysis.fusion.ledger import ledger
from inductoscope.analysis.fusion.row import FUSED, NEVER, REFUSED, LedgerRow, Outcome
from inductoscope.analysis.fusion.totals import Condition, Loss, bytes_moved, conditions
from inductoscope.model.entities import InductorGraph, Recording
from inductoscope.model.schedule import read_schedule
from inductoscope.model.target import target_view
from inductoscope.views.report.plain_text import visible
from inductoscope.views.report.terminal import FAINT, GOOD, WARN, Printer
from inductoscope.vocabulary.counting import bytes_text, count_of

View = dict[str, Any]

OUTCOMES: dict[str, Outcome] = {"fused": FUSED, "refused": REFUSED, "never": NEVER}
SORTS = ("bytes", "order", "score", "reason")

_MOST_VALUES = 4
_MOST_EXAMPLES = 3
# A shorter part of an operation's name would say nothing.
_SHORTEST = 4


@dataclass(frozen=True)
class Selection:
    """Which part of the ledger is wanted; empty fields select everything."""

    graph: str = ""
    outcome: str = ""
    sort: str = "bytes"
    limit: int = 10
    bandwidth: float | None = None


# --- data -----------------------------------------------------------------------------------------


def fusion_view(recording: Recording, selection: Selection) -> View:
    """The ledger, its sums, and the deciding conditions, costliest first."""
    every = [
        row
        for row in ledger(recording, bandwidth=selection.bandwidth)
        if is_graph(row.graph, selection.graph)
    ]
    wanted = OUTCOMES.get(selection.outcome, "")
    rows = _sorted([row for row in every if wanted in ("", row.outcome)], selection.sort)
    return {
        "schema": 1,
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


def is_graph(key: str, wanted: str) -> bool:
    """Whether a graph is the requested one: '0/0 forward', '0/0' or 'forward'."""
    return not wanted or key == wanted or wanted in key.split(" ", 1)


def _sorted(rows: list[LedgerRow], sort: str) -> list[LedgerRow]:
    if sort == "bytes":
        return sorted(rows, key=lambda row: -(row.bytes or 0))
    if sort == "score":
        return sorted(rows, key=lambda row: -(row.score or 0))
    if sort == "reason":
        return sorted(rows, key=lambda row: (row.condition, -(row.bytes or 0)))
    return rows


def _total(rows: Iterable[LedgerRow], outcome: str) -> View:
    chosen = [row for row in rows if row.outcome == outcome]
    return {"pairs": len(chosen), "bytes": bytes_moved(chosen)}


def _time(recording: Recording, rows: Iterable[LedgerRow], given: float | None) -> View:
    devices = sorted({row.device for row in rows})
    known = {
        device: speed
        for device in devices
        if (speed := bandwidth_for(recording, device, given=given)) is not None
    }
    return {
        "established": ESTABLISHED,
        "bandwidths": {
            device: {"gigabytes_per_second": speed.gigabytes, "source": speed.source}
            for device, speed in known.items()
        },
        "unknown": [device for device in devices if device not in known],
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
    """The ledger as text."""
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
        moved = f"{bytes_text(total['bytes']):>9} {words}" if total["pairs"] else ""
        printer.pair(outcome, f"{count} {moved}".rstrip())
    for device, speed in view["time"]["bandwidths"].items():
        text = f"{speed['gigabytes_per_second']:.0f} GB/s on {device} ({speed['source']})"
        printer.pair("time", f"{view['time']['established']}: {text}")
    if view["time"]["unknown"]:
        devices = ", ".join(view["time"]["unknown"])
        printer.pair("time", f"unknown for {devices}; pass --bandwidth GB/s")
    printer.line()


def _print_losses(printer: Printer, view: View) -> None:
    found = [
        (loss, condition.number)
        for condition in _conditions(view, REFUSED)
        for loss in condition.losses
    ]
    if not found:
        return
    found.sort(key=lambda item: -(item[0].bytes or 0))
    table = [(_size(loss, view), loss.graph, loss.label, number) for loss, number in found]
    printer.heading("Costliest refusals")
    legend = "->: the second reads what the first writes; &: both read the same buffer"
    printer.line(legend, indent=2, style=FAINT)
    _print_table(printer, table[: view["limit"]])
    _print_more(printer, len(table), view["limit"])


def _print_rows(printer: Printer, view: View, title: str) -> None:
    printer.heading(title)
    table = [
        (
            _size(row, view),
            row.graph,
            row.label,
            row.kind if row.outcome == FUSED else row.condition,
        )
        for row in view["rows"]
    ]
    _print_table(printer, table[: view["limit"]])
    _print_more(printer, len(table), view["limit"])


def _print_table(printer: Printer, table: list[tuple[str, str, str, Any]]) -> None:
    """Rows of size, graph, pair and reason; operations are shortened if a pair is too long."""
    if not table:
        printer.line("none", indent=2)
        return
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


def shortened_pair(label: str, room: int) -> str:
    """Both nodes by name, as --why takes them; operations get the remaining room."""
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


def time_text(microseconds: float) -> str:
    """A time in at most eight characters."""
    if microseconds < 1:
        return f"{microseconds * 1000:.0f} ns"
    if microseconds < 1000:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1000:.1f} ms"


def _print_more(printer: Printer, count: int, limit: int) -> None:
    if count > limit:
        printer.line(f"{count - limit} more: --limit {count}", indent=2, style=FAINT)
    printer.line()


def _print_conditions(printer: Printer, view: View, outcome: str, title: str) -> None:
    chosen = _conditions(view, outcome)
    if not chosen:
        return
    printer.heading(title)
    for condition in chosen:
        count = count_of(condition.pairs, "pair")
        mark = f"[{condition.number}] " if outcome == REFUSED else "- "
        printer.line(f"{mark}{condition.condition}: {count}, {bytes_text(condition.bytes)}")
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
    """What to do, or that nothing can be done."""
    if change:
        prefix = "" if change.startswith("Nothing") else "To change: "
        printer.line(prefix + change, indent=4, style=GOOD)
