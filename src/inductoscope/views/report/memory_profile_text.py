"""Where memory goes, on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.recording.stored_memory import alive_at_peak, left_out_at_peak
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.views.report.times import time_text
from inductoscope.vocabulary.counting import bytes_text, count_of

_MOST_ROWS = 12
_MOST_RECOMPUTED = 8
# Where the text begins beside a number of bytes.
_TEXT = 12


def print_memory(printer: Printer, view: Mapping[str, Any]) -> None:
    """The headline, then each step, then what was tried."""
    printer.line(view["headline"])
    for step in view["steps"]:
        printer.line()
        _print_step(printer, step)
    if view["alternatives"]:
        printer.line()
        _print_alternatives(printer, view["alternatives"])
    for note in view["notes"]:
        printer.line(f"note: {note}", style=FAINT)
    printer.pair("recording", view["recording"])


def _print_step(printer: Printer, step: Mapping[str, Any]) -> None:
    place = f" ({_short(step['place'])})" if step["place"] else ""
    printer.heading(f"{step['function']}{place}, from call {step['call']} to the {_until(step)}")
    if step["compiled_in_it"]:
        about = "something was compiled in it, so it may need more than later ones"
        printer.line(about, indent=2, style=WARN)
    peak = f"{bytes_text(step['peak_bytes'])} on {step['device']}, of which "
    printer.pair("peak", peak + f"{bytes_text(step['base_bytes'])} were there before")
    if step["eager_peak_bytes"]:
        ratio = step["ratio_to_eager"]
        text = f"{bytes_text(step['eager_peak_bytes'])}; compiled is {ratio:.2f} of that"
        printer.pair("in eager", text)
    if step["varies"]:
        peaks = [row["bytes"] for row in step["peaks"]]
        low, high = bytes_text(min(peaks)), bytes_text(max(peaks))
        text = f"{low} to {high} in {count_of(len(peaks), 'step')}"
        printer.pair("varies", text)
    _print_kinds(printer, step)
    _print_blocks(printer, step)
    _print_graphs(printer, step["graphs"])
    _print_missed(printer, step["missed_reuses"])
    _print_recomputed(printer, step)


def _print_kinds(printer: Printer, step: Mapping[str, Any]) -> None:
    printer.line("alive at the peak, by kind", indent=2)
    for row in step["kinds"]:
        share = row["bytes"] / step["peak_bytes"] if step["peak_bytes"] else 0
        printer.line(f"{bytes_text(row['bytes']):>10}  {share:>4.0%}  {row['kind']}", indent=4)


def _print_blocks(printer: Printer, step: Mapping[str, Any]) -> None:
    rows = _together(alive_at_peak(step))
    printer.line(f"alive at the peak, {min(len(rows), _MOST_ROWS)} of {len(rows)}", indent=2)
    for blocks in rows[:_MOST_ROWS]:
        first = blocks[0]
        size = sum(block["bytes"] for block in blocks)
        names = _names(blocks)
        made = " · ".join(part for part in (first["operation"], _short(first["source"])) if part)
        printer.line(f"{bytes_text(size):>10}  {first['kind']}{names}", indent=4, column=_TEXT)
        if made:
            printer.line(f"made by {made}", indent=4 + _TEXT, style=FAINT)
    left_out, left_out_bytes = left_out_at_peak(step)
    if left_out:
        text = f"{count_of(left_out, 'smaller block')} of the step, not kept"
        printer.line(f"{bytes_text(left_out_bytes):>10}  {text}", indent=4, style=FAINT)


def _together(blocks: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Blocks of one kind that one line makes, in one row; the most bytes first."""
    rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for block in blocks:
        is_known = block["operation"] or block["source"]
        what = str(block["block"]) if not is_known and block["name"] else ""
        key = block["kind"], block["graph"], block["operation"], block["source"], what
        rows.setdefault(key, []).append(block)
    return sorted(rows.values(), key=lambda row: -sum(block["bytes"] for block in row))


def _names(blocks: Sequence[Mapping[str, Any]]) -> str:
    names = [block["name"] for block in blocks if block["name"]]
    graph = blocks[0]["graph"]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    many = f", {len(blocks)} blocks" if len(blocks) > 1 else ""
    inside = f" of {graph}" if graph and shown else ""
    return f"{': ' if shown else ''}{shown}{inside}{many}"


def _print_graphs(printer: Printer, graphs: Sequence[Mapping[str, Any]]) -> None:
    if not graphs:
        return
    printer.line("what each graph adds at its highest: by its plan, and measured", indent=2)
    for row in graphs[:_MOST_ROWS]:
        known = row["predicted_bytes"]
        plan = "?" if known is None else bytes_text(known)
        library = row["library_bytes"]
        own = f", {bytes_text(library)} of it libraries' own" if library else ""
        text = f"{plan:>10}  {bytes_text(row['measured_bytes']):>10}  {row['graph']}{own}"
        is_odd = known is not None and not row["agrees"]
        odd = ", the plan is not right" if is_odd else ""
        printer.line(text + odd, indent=4, column=2 * _TEXT)


def _print_missed(printer: Printer, missed: Sequence[Mapping[str, Any]]) -> None:
    for row in missed[:_MOST_ROWS]:
        printer.line(
            f"not reused: {row['new']} ({bytes_text(row['bytes'])}) was allocated while "
            f"{row['old']} was read for the last time, by {row['kernel']}: {row['reason']}",
            indent=2,
        )


def _print_recomputed(printer: Printer, step: Mapping[str, Any]) -> None:
    again = step["recomputed"]
    if not again:
        if step["has_backward"]:
            printer.line("The backward pass computes nothing of the forward pass again.", indent=2)
        return
    rows = dict.fromkeys(f"{row['operation']} · {_short(row['source'])}" for row in again)
    shown = ", ".join(list(rows)[:_MOST_RECOMPUTED])
    more = len(rows) - _MOST_RECOMPUTED
    printer.line(
        f"computed again in the backward pass, not saved: {shown}"
        + (f" and {more} more" if more > 0 else ""),
        indent=2,
    )


def _print_alternatives(printer: Printer, trials: Sequence[Mapping[str, Any]]) -> None:
    printer.heading("tried, each in its own process")
    for trial in trials:
        style = GOOD if trial["helps"] else (BAD if trial["note"] else FAINT)
        printer.line(trial["change"], indent=2, style=style)
        printer.line(_trial_text(trial), indent=4)


def _trial_text(trial: Mapping[str, Any]) -> str:
    parts = []
    if trial["peak_bytes"] is not None:
        parts.append(f"peak {bytes_text(trial['peak_bytes'])}, {trial['ratio']:.2f} of what it was")
    found = trial["comparison"]
    if found is not None:
        before, after = time_text(trial["base_seconds"]), time_text(trial["seconds"])
        parts.append(
            f"compiled calls {after} per run, before {before}: {found['ratio']:.2f} "
            f"({found['low']:.2f} to {found['high']:.2f}), {found['verdict']}"
        )
    results = trial["results"]
    if results is not None:
        different = results["different"]
        same = f"results differ: {different}" if different else "results the same"
        compared = f"{same} ({results['tensors']} tensors, {results['apart']:.1g} apart)"
        parts.append(compared if results["tensors"] else "results could not be compared")
    if trial["note"]:
        parts.append(trial["note"])
    return "; ".join(parts)


def _until(step: Mapping[str, Any]) -> str:
    return "next" if step["ended_by"] == "next call" else str(step["ended_by"])


def _short(place: str) -> str:
    """A place without its folder."""
    return place.rpartition("/")[2]
