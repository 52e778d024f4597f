"""An alarm, and the call that is stored with it for the doctor to examine."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.errors import UsageError
from inductoscope.recording.codec import decode, encode

# Folders of kept calls, and the files in each.
KEPT = "kept"
ALARM = "alarm.json"
INPUTS = "inputs.pt"
GRAPH = "graph.txt"


@dataclass(frozen=True)
class Alarm:
    """A value of a compiled graph with a biased error."""

    compile: str
    value: str
    direction: str
    # Relative to the value's size, averaged over the shadowed calls.
    bias: float
    eager_bias: float
    # The standard deviation of the last calls' mean error under other roundings.
    rounding: float
    # The number of calls of the graph so far, and of shadowed calls among them.
    calls: int
    shadowed: int
    # The probability of any alarm in a run without a fault.
    false_alarms: float
    # The folder of the stored call.
    kept: str = ""
    # The user's lines that the graph was made from.
    sources: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The bias, as a sentence."""
        if not math.isfinite(self.bias):
            what = "is NaN or Inf where eager and float64 are finite"
        elif self.direction == "scale":
            way = "too large" if self.bias > 0 else "too small"
            what = f"is {way} by a factor of about {1 + abs(self.bias):.6g}"
        else:
            what = f"is shifted by about {self.bias:+.3g} of its size"
        return (
            f"graph {self.compile}: {self.value} {what} on average over {self.shadowed} shadowed "
            f"calls of {self.calls}; eager is off by {self.eager_bias:+.1e} there, and rounding "
            f"moves the average of the last of them by {self.rounding:.1e}"
        )

    @property
    def bound(self) -> str:
        """The bound on the probability of a false alarm, as a clause."""
        return (
            f"a run without a fault raises an alarm with a probability of at most "
            f"{self.false_alarms:.0e}"
        )


def write_alarm(alarm: Alarm, folder: Path) -> None:
    """Write the alarm; called last, so that a folder with an alarm is complete."""
    (folder / ALARM).write_text(json.dumps(encode(alarm), indent=1), "utf-8")


def read_alarm(folder: Path) -> Alarm:
    """Read the alarm in the folder of a stored call; raise UsageError if there is none."""
    try:
        return decode(Alarm, json.loads((folder / ALARM).read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} holds no call that the sentinel kept: {ALARM} cannot be read ({error})."
        ) from error


def read_alarms(place: Path) -> list[tuple[Path, Alarm]]:
    """Return the folders of stored calls, oldest first, with their alarms."""
    found = []
    for path in sorted(place.glob(f"{KEPT}-*/{ALARM}"), key=lambda path: path.stat().st_mtime):
        with contextlib.suppress(UsageError):
            found.append((path.parent, read_alarm(path.parent)))
    return found
