"""Where memory goes, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.profiling.memory.blocks import Block, DeviceSteps, timeline
from inductoscope.profiling.memory.labels import SAVED, TEMPORARY, BlockLabel
from inductoscope.profiling.memory.profile import PlannedCall, StepProfile
from inductoscope.profiling.memory.running import EagerSteps, MemoryProfile
from inductoscope.profiling.memory.trials import MemoryTrial
from inductoscope.views.report.profile import comparison_view, sample_view
from inductoscope.vocabulary.counting import bytes_text

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
