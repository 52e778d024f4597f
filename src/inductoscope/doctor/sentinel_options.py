"""Options of a sentinel, passed to the program's processes through the environment."""

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
    """The options for watching a long run."""

    # The share of the program's own time that shadowing may add.
    overhead: float = 0.05
    # The probability of any alarm in a run without a fault.
    false_alarms: float = 1e-6
    # Whether to end the program at the first alarm.
    stop: bool = False

    def environment(self) -> dict[str, str]:
        """Return the variables that start the sentinel in the program and change nothing else."""
        return {
            VARIABLE: json.dumps(encode(self)),
            **with_parts("record", "sentinel"),
        }


def options_from(environment: Mapping[str, str] = os.environ) -> SentinelOptions:
    return decode(SentinelOptions, json.loads(environment[VARIABLE]))
