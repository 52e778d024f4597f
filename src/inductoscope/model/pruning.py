"""Which recordings to delete: pure decisions about a list of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.errors import UsageError
from inductoscope.model.stored_recordings import StoredRecording

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_NUMBER_AND_UNIT = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True)
class PruningLimits:
    """What to keep. A recording goes only if every limit that is given lets it go."""

    # Seconds.
    older_than: float | None = None
    keep: int | None = None
    # Bytes.
    size: float | None = None


@dataclass(frozen=True)
class PruningPlan:
    """What to delete, and what must not be deleted although it is there, or beyond the limits."""

    delete: tuple[StoredRecording, ...]
    spared: tuple[StoredRecording, ...]


def plan_pruning(
    recordings: Sequence[StoredRecording], limits: PruningLimits, now: float
) -> PruningPlan:
    """What of the recordings, the newest first, the limits let go.

    What is not ours neither counts as one to keep nor takes the space of one.
    """
    ours = [recording for recording in recordings if not recording.not_ours]
    totals = itertools.accumulate(recording.size for recording in ours)
    beyond = [
        recording
        for number, (recording, total) in enumerate(zip(ours, totals, strict=True))
        if (limits.older_than is None or now - recording.created > limits.older_than)
        and (limits.keep is None or number >= limits.keep)
        and (limits.size is None or total > limits.size)
    ]
    return PruningPlan(
        delete=tuple(recording for recording in beyond if not recording.why_kept),
        spared=tuple(
            recording
            for recording in recordings
            if recording.not_ours or (recording in beyond and recording.why_kept)
        ),
    )


def read_duration(written: str) -> float:
    """Seconds, from words such as 7d."""
    return _read(written, _SECONDS, "--older-than", "a duration", "7d, 12h, 30m or 2w")


def read_size(written: str) -> float:
    """Bytes, from words such as 500MB."""
    return _read(written, _BYTES, "--size", "a size", "500MB, 1.5GB or 2GiB")


def _read(written: str, units: dict[str, int], option: str, what: str, examples: str) -> float:
    found = _NUMBER_AND_UNIT.fullmatch(written)
    unit = units.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise UsageError(f"{option} {written}: that is not {what}. Write {examples}.")
    return float(found[1]) * unit
