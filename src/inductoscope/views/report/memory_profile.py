"""Results of `profile --memory` as data and on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inductoscope.profiling.memory_blocks import (
    SAVED,
    TEMPORARY,
    Block,
    BlockLabel,
    DeviceSteps,
    StepProfile,
)
from inductoscope.profiling.memory_trials import MemoryProfile, MemoryTrial
from inductoscope.recording.profile_file import alive_at_peak, left_out_at_peak
from inductoscope.views.report.terminal import BAD, FAINT, GOOD, WARN, Printer
from inductoscope.views.report.times import comparison_view, picked, sample_view, short, time_text
from inductoscope.wording import bytes_text, count_of

# The most blocks whose lifetime is listed; the largest ones are kept.
_MOST_BLOCKS = 4000
_MOST_ROWS = 12
_MOST_RECOMPUTED = 8
# The column at which the text begins beside a number of bytes.
_TEXT = 12


def memory_view(profile: MemoryProfile) -> dict[str, Any]:
    steps = [_step_view(step, profile) for step in profile.steps]
    trials = [_trial_view(trial) for trial in profile.trials]
    return {
        "recording": profile.recording,
        "exit_code": profile.ending.exit_code,
        "headline": _headline(steps, trials, profile.is_at_its_least),
        "at_its_least": profile.is_at_its_least,
        "steps": steps,
        "alternatives": trials,
        "findings": list(_findings(steps, trials)),
        "notes": list(profile.notes),
    }


def _step_view(profile: StepProfile, whole: MemoryProfile) -> dict[str, Any]:
    step, in_eager, eager_peak = profile.step, whole.in_eager(profile), whole.eager_peak(profile)
    return {
        **picked(step, "function", "place", "ended_by"),
        "call": step.number,
        "compiled_in_it": step.compiled,
        **_device_view(profile),
        "peaks": [{"call": call, "bytes": n} for call, n in profile.peaks.items()],
        **picked(profile, "varies", "has_backward"),
        "eager_peak_bytes": eager_peak,
        "ratio_to_eager": profile.device.peak / eager_peak if eager_peak else None,
        "graphs": [
            {
                **picked(call, "graph", "phase", "begin", "end", "agrees"),
                "predicted_bytes": call.predicted,
                "measured_bytes": call.measured,
                "library_bytes": call.of_libraries,
            }
            for call in profile.calls
        ],
        "missed_reuses": [
            {"graph": call.graph, **asdict(missed)}
            for call in profile.calls
            for missed in call.missed
        ],
        "recomputed": list(profile.recomputed),
        "eager": _device_view(in_eager) if in_eager is not None else None,
    }


def _device_view(profile: StepProfile) -> dict[str, Any]:
    device = profile.device
    largest = sorted(device.blocks, key=lambda block: -block.bytes)
    kept = {block.number for block in largest[:_MOST_BLOCKS]}
    changes = device.timeline
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
        "events": list(_events(device.base, changes, kept)),
        "left_out": {
            "blocks": len(largest[_MOST_BLOCKS:]),
            "bytes_at_peak": sum(
                b.bytes for b in largest[_MOST_BLOCKS:] if b.is_there(device.peak_at)
            ),
        },
    }


def _kinds(profile: StepProfile) -> list[dict[str, Any]]:
    found = profile.kinds
    if profile.device.unknown:
        found["not seen"] = profile.device.unknown
    return [{"kind": kind, "bytes": size} for kind, size in found.most_common()]


def _block_view(block: Block, label: BlockLabel, device: DeviceSteps) -> dict[str, Any]:
    return {
        "block": block.number,
        "bytes": block.bytes,
        **asdict(label),
        "names": list(dict.fromkeys(note.name for note in block.names)),
        "begin": None if block.begin is None else block.begin / 1e9,
        "end": None if block.end is None else block.end / 1e9,
        "at_peak": block.is_there(device.peak_at),
    }


def _events(
    total: int, changes: Sequence[tuple[int, int, int]], kept: set[int]
) -> Iterator[dict[str, Any]]:
    """Yield allocations and frees by time; the total counts all blocks."""
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


def _trial_view(trial: MemoryTrial) -> dict[str, Any]:
    results, time = trial.results, trial.time
    return {
        "change": trial.flip.change,
        "why": trial.flip.why,
        "peak_bytes": trial.peak,
        "base_peak_bytes": trial.base,
        "ratio": trial.ratio if trial.peak is not None else None,
        "peaks": trial.peaks,
        "results": results
        and {
            **picked(results, "tensors", "different"),
            # JSON has no infinity.
            "apart": min(results.apart, 1e300),
        },
        "base_seconds": sample_view(time.base) if time else None,
        "seconds": sample_view(time.other) if time else None,
        "comparison": comparison_view(time) if time else None,
        "helps": trial.is_lower,
        "note": trial.error,
    }


# --- conclusions ----------------------------------------------------------------------------------


def _headline(
    steps: Sequence[Mapping[str, Any]], trials: Sequence[Mapping[str, Any]], is_least: bool
) -> str:
    if not steps:
        return "No compiled call was made whose memory could be traced."
    step = steps[0]
    text = f"The peak is {bytes_text(step['peak_bytes'])}"
    if step["eager_peak_bytes"]:
        ratio = step["ratio_to_eager"]
        text += f", {ratio:.2f} times eager's {bytes_text(step['eager_peak_bytes'])}"
    return f"{text}. {_gain(step, trials, is_least)}".strip()


def _gain(step: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], is_least: bool) -> str:
    best = next((trial for trial in trials if trial["helps"]), None)
    if best is not None:
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


def _findings(
    steps: Sequence[Mapping[str, Any]], trials: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for trial in (trial for trial in trials if trial["helps"]):
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


# --- on the terminal ------------------------------------------------------------------------------


def print_memory(printer: Printer, view: Mapping[str, Any]) -> None:
    printer.line(view["headline"])
    for step in view["steps"]:
        printer.line()
        _print_step(printer, step)
    if view["alternatives"]:
        printer.line()
        printer.heading("tried, each in its own process")
    for trial in view["alternatives"]:
        style = GOOD if trial["helps"] else (BAD if trial["note"] else FAINT)
        printer.line(trial["change"], indent=2, style=style)
        printer.line("; ".join(_trial_texts(trial)), indent=4)
    for note in view["notes"]:
        printer.line(f"note: {note}", style=FAINT)
    printer.pair("recording", view["recording"])


def _print_step(printer: Printer, step: Mapping[str, Any]) -> None:
    place = f" ({short(step['place'])})" if step["place"] else ""
    until = "next" if step["ended_by"] == "next call" else step["ended_by"]
    printer.heading(f"{step['function']}{place}, from call {step['call']} to the {until}")
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
        printer.pair("varies", f"{low} to {high} in {count_of(len(peaks), 'step')}")
    printer.line("alive at the peak, by kind", indent=2)
    for row in step["kinds"]:
        share = row["bytes"] / step["peak_bytes"] if step["peak_bytes"] else 0
        printer.line(f"{bytes_text(row['bytes']):>10}  {share:>4.0%}  {row['kind']}", indent=4)
    _print_blocks(printer, step)
    _print_graphs(printer, step["graphs"])
    for row in step["missed_reuses"][:_MOST_ROWS]:
        printer.line(
            f"not reused: {row['new']} ({bytes_text(row['bytes'])}) was allocated while "
            f"{row['old']} was read for the last time, by {row['kernel']}: {row['reason']}",
            indent=2,
        )
    _print_recomputed(printer, step)


def _print_blocks(printer: Printer, step: Mapping[str, Any]) -> None:
    rows = _together(alive_at_peak(step))
    printer.line(f"alive at the peak, {min(len(rows), _MOST_ROWS)} of {len(rows)}", indent=2)
    for blocks in rows[:_MOST_ROWS]:
        first, size = blocks[0], bytes_text(sum(block["bytes"] for block in blocks))
        printer.line(f"{size:>10}  {first['kind']}{_names(blocks)}", indent=4, column=_TEXT)
        made = " · ".join(filter(None, (first["operation"], short(first["source"]))))
        if made:
            printer.line(f"made by {made}", indent=4 + _TEXT, style=FAINT)
    left_out, left_out_bytes = left_out_at_peak(step)
    if left_out:
        text = f"{count_of(left_out, 'smaller block')} of the step, not kept"
        printer.line(f"{bytes_text(left_out_bytes):>10}  {text}", indent=4, style=FAINT)


def _together(blocks: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group blocks of one kind from one source line; largest groups first."""
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
    if graphs:
        printer.line("what each graph adds at its highest: by its plan, and measured", indent=2)
    for row in graphs[:_MOST_ROWS]:
        known, library = row["predicted_bytes"], row["library_bytes"]
        plan = "?" if known is None else bytes_text(known)
        own = f", {bytes_text(library)} of it libraries' own" if library else ""
        odd = ", the plan is not right" if known is not None and not row["agrees"] else ""
        text = f"{plan:>10}  {bytes_text(row['measured_bytes']):>10}  {row['graph']}{own}{odd}"
        printer.line(text, indent=4, column=2 * _TEXT)


def _print_recomputed(printer: Printer, step: Mapping[str, Any]) -> None:
    rows = dict.fromkeys(f"{r['operation']} · {short(r['source'])}" for r in step["recomputed"])
    if not rows and step["has_backward"]:
        printer.line("The backward pass computes nothing of the forward pass again.", indent=2)
    if rows:
        more = len(rows) - _MOST_RECOMPUTED
        shown = ", ".join(list(rows)[:_MOST_RECOMPUTED]) + (f" and {more} more" if more > 0 else "")
        printer.line(f"computed again in the backward pass, not saved: {shown}", indent=2)


def _trial_texts(trial: Mapping[str, Any]) -> Iterator[str]:
    if trial["peak_bytes"] is not None:
        yield f"peak {bytes_text(trial['peak_bytes'])}, {trial['ratio']:.2f} of what it was"
    found, results = trial["comparison"], trial["results"]
    if found is not None:
        before, after = time_text(trial["base_seconds"]), time_text(trial["seconds"])
        yield (
            f"compiled calls {after} per run, before {before}: {found['ratio']:.2f} "
            f"({found['low']:.2f} to {found['high']:.2f}), {found['verdict']}"
        )
    if results is not None and results["tensors"]:
        different = results["different"]
        same = f"results differ: {different}" if different else "results the same"
        yield f"{same} ({results['tensors']} tensors, {results['apart']:.1g} apart)"
    elif results is not None:
        yield "results could not be compared"
    if trial["note"]:
        yield trial["note"]
