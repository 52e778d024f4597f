"""Recordings for an absent GPU: the target device, and what the recording lacks.

Every view of such a recording says that nothing ran on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.recording.values import members


def recording_target(recording: Recording) -> str:
    """Return the target device, as 'cuda:90'; empty for a recording of a real run."""
    target = recording.manifest.get("target")
    return target[:40] if isinstance(target, str) else ""


def target_note(recording: Recording) -> str:
    """Return the note that every view shows for an absent GPU; empty for a real run."""
    target = recording_target(recording)
    if not target:
        return ""
    note = f"Compiled for {target}. Nothing ran on a GPU: no kernel was launched or timed."
    if recording.manifest.get("machine_code") is False:
        note += (
            " Kernels end as Triton source: machine code needs 'pip install triton' "
            "(no GPU is needed for it)."
        )
    return note


def left_out(recording: Recording) -> tuple[tuple[str, str], ...]:
    """Return the compiles whose graphs could not be recompiled, with the reason."""
    return tuple(_listed(recording, "left_out", "reason"))


def target_notes(recording: Recording) -> tuple[tuple[str, str], ...]:
    """Return the deviations from a real device, as pairs of compile and note."""
    earlier = _listed(recording, "notes", "note")  # Notes of recordings from earlier versions.
    return tuple(dict.fromkeys((*earlier, *recording.target_notes)))


def _listed(recording: Recording, name: str, text: str) -> Iterator[tuple[str, str]]:
    listed = recording.manifest.get(name)
    for item in map(members, listed if isinstance(listed, list) else []):
        yield str(item.get("compile", "")), str(item.get(text, ""))


def target_view(recording: Recording) -> dict[str, Any] | None:
    """Return the target and its notes as plain data; None for a recording of a real run."""
    target = recording_target(recording)
    if not target:
        return None
    return {
        "name": target,
        "ran_on_gpu": False,
        "note": target_note(recording),
        "left_out": [{"compile": name, "reason": why} for name, why in left_out(recording)],
        "notes": [{"compile": name, "note": text} for name, text in target_notes(recording)],
    }
