"""What a profiler asks of a run of the program, handed over through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.recording.codec import decode, encode

VARIABLE = "INDUCTOSCOPE_PROFILE"
INSIDE_VARIABLE = "INDUCTOSCOPE_INSIDE"
AGENT = "profiling.agent"
# torch's profiler says on standard error that it starts and stops, unless it is told not to.
QUIET = {"KINETO_LOG_LEVEL": "99"}


@dataclass(frozen=True)
class Orders:
    """How to run the program, and what to measure."""

    # Whether to record like `run` does.
    records: bool = False
    # Settings of torch._inductor.config to try, by their names there; values are JSON.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Statements to execute once torch is imported.
    code: str = ""
    # Whether to keep the arguments of compiled functions, for timing their graphs alone.
    keeps_inputs: bool = False

    def environment(self, agent: str = AGENT) -> dict[str, str]:
        """The variables that carry the orders; `agent` is the part of the tool that gets them."""
        return {VARIABLE: json.dumps(encode(self)), INSIDE_VARIABLE: agent}


def orders_from(environment: Mapping[str, str] = os.environ) -> Orders:
    """The orders for this run."""
    return decode(Orders, json.loads(environment[VARIABLE]))
