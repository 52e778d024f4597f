"""Recordings of a device that was not there: which, and what is not in them.

Every view of such a recording says that nothing ran on a GPU.
"""

from __future__ import annotations

from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.recording.values import members


def recording_target(recording: Recording) -> str:
    """The device that was pretended, as 'cuda:90'; empty for a recording of a real run."""
    return _name(recording.manifest.get("target"))


def _name(value: Any) -> str:
    return value[:40] if isinstance(value, str) else ""


def target_note(recording: Recording) -> str:
    """The note that every view shows on a recording for an absent GPU; empty for a real run."""
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
    """Compiles whose graphs could not be compiled again, and why not."""
    listed = recording.manifest.get("left_out")
    found = [members(item) for item in (listed if isinstance(listed, list) else [])]
    return tuple((str(item.get("compile", "")), str(item.get("reason", ""))) for item in found)


def target_notes(recording: Recording) -> tuple[tuple[str, str], ...]:
    """Per compile, what is not as it would be on the device."""
    listed = recording.manifest.get("notes")  # Where earlier versions kept them.
    found = [members(item) for item in (listed if isinstance(listed, list) else [])]
    earlier = [(str(item.get("compile", "")), str(item.get("note", ""))) for item in found]
    return tuple(dict.fromkeys((*earlier, *recording.target_notes)))


def target_view(recording: Recording) -> dict[str, Any] | None:
    """The same as data; None for a recording of a real run."""
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
