"""Where memory goes, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.profiling.memory_blocks import (
    SAVED,
    TEMPORARY,
    Block,
    BlockLabel,
    DeviceSteps,
    PlannedCall,
    StepProfile,
    timeline,
)
from inductoscope.profiling.memory_trials import EagerSteps, MemoryProfile, MemoryTrial
from inductoscope.recording.profile_file import alive_at_peak, left_out_at_peak
from inductoscope.views.report.profile import comparison_view, sample_view
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.views.report.times import time_text
from inductoscope.wording import bytes_text, count_of

# Blocks whose life is told one by one; of more, the largest.
_MOST_BLOCKS = 4000


def memory_view(profile: MemoryProfile) -> dict[str, Any]:
    """Every step with its blocks over time, what was tried, and what that says."""
    steps = [_step_view(step, profile.eager) for step in profile.steps]
    trials = [_trial_view(trial) for trial in profile.trials]
    return {
        "recording": profile.recording,
        "exit_code": profile.ending.exit_code,
        "headline": headline(steps, trials, profile.is_at_its_least),
        "at_its_least": profile.is_at_its_least,
        "steps": steps,
        "alternatives": trials,
        "findings": list(_findings(steps, trials)),
        "notes": [*profile.notes, *([profile.eager.error] if profile.eager.error else [])],
    }


def _step_view(profile: StepProfile, eager: EagerSteps) -> dict[str, Any]:
    step, device = profile.step, profile.device
    in_eager = eager.like(profile)
    eager_peak = eager.peak_like(profile)
    return {
        "function": step.function,
        "place": step.place,
        "call": step.number,
        "compiled_in_it": step.compiled,
        "ended_by": step.ended_by,
        **_device_view(profile),
        "peaks": [{"call": call, "bytes": n} for call, n in (profile.peaks or {}).items()],
        "varies": profile.varies,
        "has_backward": profile.has_backward,
        "eager_peak_bytes": eager_peak,
        "ratio_to_eager": device.peak / eager_peak if eager_peak else None,
        "graphs": [_graph_view(call) for call in profile.calls],
        "missed_reuses": [
            {
                "graph": call.graph,
                "new": missed.new,
                "old": missed.old,
                "bytes": missed.bytes,
                "kernel": missed.kernel,
                "reason": missed.reason,
            }
            for call in profile.calls
            for missed in (call.plan.missed if call.plan else ())
        ],
        "recomputed": [
            {"node": node.node, "operation": node.operation, "source": node.source}
            for node in profile.recomputed
        ],
        "eager": _device_view(in_eager) if in_eager is not None else None,
    }


def _device_view(profile: StepProfile) -> dict[str, Any]:
    """The memory of a device over time."""
    device = profile.device
    kept = _kept(device)
    changes = timeline(device)
    left_out = [block for block in device.blocks if block.number not in kept]
    return {
        "device": device.device,
        "seconds": (device.step.end - device.step.begin) / 1e9,
        "base_bytes": device.base,
        "unknown_bytes": device.unknown,
        "peak_bytes": device.peak,
        "peak_seconds": device.peak_at / 1e9,
        "end_bytes": device.base + sum(change for _, _, change in changes),
        "kinds": _kinds(profile),
        "blocks": [
            _block_view(block, profile.labels[block.number], device)
            for block in device.blocks
            if block.number in kept
        ],
        "events": list(_events(device, changes, kept)),
        "left_out": {
            "blocks": len(left_out),
            "bytes_at_peak": sum(b.bytes for b in left_out if b.is_there(device.peak_at)),
        },
    }


def _kept(device: DeviceSteps) -> set[int]:
    largest = sorted(device.blocks, key=lambda block: -block.bytes)
    return {block.number for block in largest[:_MOST_BLOCKS]}


def _kinds(profile: StepProfile) -> list[dict[str, Any]]:
    """Bytes at the peak by kind, the most first."""
    found: dict[str, int] = {}
    for block in profile.device.at_peak:
        kind = profile.labels[block.number].kind
        found[kind] = found.get(kind, 0) + block.bytes
    if profile.device.unknown:
        found["not seen"] = profile.device.unknown
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return [{"kind": kind, "bytes": size} for kind, size in ordered]


def _block_view(block: Block, label: BlockLabel, device: DeviceSteps) -> dict[str, Any]:
    return {
        "block": block.number,
        "bytes": block.bytes,
        "kind": label.kind,
        "name": label.name,
        "names": list(dict.fromkeys(note.name for note in block.names)),
        "graph": label.graph,
        "operation": label.operation,
        "source": label.source,
        "begin": None if block.begin is None else block.begin / 1e9,
        "end": None if block.end is None else block.end / 1e9,
        "at_peak": block.is_there(device.peak_at),
    }


def _events(device: DeviceSteps, changes: Sequence[tuple[int, int, int]], kept: set[int]) -> Any:
    """Allocations and frees in the order of time; the total counts all blocks."""
    total = device.base
    for at, number, change in changes:
        total += change
        if number in kept:
            yield {
                "seconds": at / 1e9,
                "what": "allocation" if change > 0 else "free",
                "block": number,
                "bytes": abs(change),
                "total": total,
            }


def _graph_view(call: PlannedCall) -> dict[str, Any]:
    return {
        "graph": call.graph,
        "phase": call.phase,
        "begin": call.begin,
        "end": call.end,
        "predicted_bytes": call.predicted,
        "measured_bytes": call.measured,
        "library_bytes": call.of_libraries,
        "agrees": call.agrees,
    }


def _trial_view(trial: MemoryTrial) -> dict[str, Any]:
    variant, results = trial.alternative.variant, trial.results
    return {
        "change": variant.name,
        "why": trial.alternative.why,
        "peak_bytes": trial.peak,
        "base_peak_bytes": trial.base,
        "ratio": trial.ratio if trial.peak is not None else None,
        "peaks": list(trial.peaks),
        "results": None
        if results is None
        else {
            "tensors": results.tensors,
            "apart": min(results.apart, 1e300),
            "different": results.different,
        },
        "base_seconds": sample_view(trial.base_seconds) if trial.time else None,
        "seconds": sample_view(trial.seconds) if trial.time else None,
        "comparison": comparison_view(trial.time) if trial.time else None,
        "helps": trial.is_lower,
        "note": trial.error,
    }


# --- what it says ---------------------------------------------------------------------------------


def headline(
    steps: Sequence[Mapping[str, Any]], trials: Sequence[Mapping[str, Any]], is_least: bool
) -> str:
    """The peak beside eager's, and what lowers it, in a sentence or two."""
    if not steps:
        return "No compiled call was made whose memory could be traced."
    step = steps[0]
    text = f"The peak is {bytes_text(step['peak_bytes'])}"
    if step["eager_peak_bytes"]:
        ratio = step["ratio_to_eager"]
        text += f", {ratio:.2f} times eager's {bytes_text(step['eager_peak_bytes'])}"
    return f"{text}. {_gain(step, trials, is_least)}".strip()


def _gain(step: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], is_least: bool) -> str:
    helping = [trial for trial in trials if trial["helps"]]
    if helping:
        best = helping[0]
        return f"{best['change']} makes it {best['ratio']:.2f} of that{_time_text(best)}."
    judged = [trial for trial in trials if trial["peak_bytes"] and not trial["note"]]
    if judged:
        return f"Nothing that was tried makes it lower ({len(judged)} tried)."
    if trials:
        return "What was tried could not be judged."
    if not is_least:
        return ""
    made = sum(row["bytes"] for row in step["kinds"] if row["kind"] in (SAVED, TEMPORARY))
    return (
        f"No setting was found that is worth a trial: {bytes_text(made)} of it are known to be "
        "saved for a backward pass or temporary."
    )


def _time_text(trial: Mapping[str, Any]) -> str:
    found = trial["comparison"]
    if found is None:
        return ""
    if found["verdict"] in ("faster", "slower"):
        return f", and the time {found['ratio']:.2f} of what it was"
    return ", with no difference in time shown"


def _findings(steps: Sequence[Mapping[str, Any]], trials: Sequence[Mapping[str, Any]]) -> Any:
    """What is worth knowing, each with how it was established."""
    for trial in trials:
        if not trial["helps"]:
            continue
        saved = next((r["bytes"] for r in steps[0]["kinds"] if r["kind"] == SAVED), 0)
        less = trial["base_peak_bytes"] - trial["peak_bytes"]
        yield {
            "rule": "saved_for_backward" if "_functorch" in trial["change"] else "memory_plan",
            "title": f"{trial['change']}: {bytes_text(less)} less at the peak",
            "how": f"tried: peak {trial['ratio']:.2f} of what it was{_time_text(trial)}; "
            f"{trial['results']['tensors']} tensors of the results compared, "
            f"{trial['results']['apart']:.1g} apart; saved for the backward pass at the peak: "
            f"{bytes_text(saved)}",
        }


# --- Where memory goes, on the terminal -----------------------------------------------------------

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
