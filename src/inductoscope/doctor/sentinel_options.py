"""Options of a sentinel, handed to the program's processes through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from inductoscope.doctor.instructions import VARIABLE
from inductoscope.launch.environment import with_parts
from inductoscope.recording.codec import decode, encode


@dataclass(frozen=True)
class SentinelOptions:
    """How to watch a long run."""

    # The share of the program's own time that shadowing may add.
    overhead: float = 0.05
    # The probability that a run without a fault raises any alarm.
    false_alarms: float = 1e-6
    # End the program at the first alarm.
    stop: bool = False

    def environment(self) -> dict[str, str]:
        """The variables that bring the sentinel into the program; all else stays as it is."""
        return {
            VARIABLE: json.dumps(encode(self)),
            **with_parts("record", "sentinel"),
        }


def options_from(environment: Mapping[str, str] = os.environ) -> SentinelOptions:
    """The options of this process."""
    return decode(SentinelOptions, json.loads(environment[VARIABLE]))
