"""How long each step of an examination took, by process: a profile of the doctor itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepTime:
    """One step. CPU seconds are those of the process and of its children that have ended."""

    process: str
    step: str
    seconds: float
    cpu_seconds: float


@dataclass
class StepClock:
    """Times the steps of one process."""

    process: str
    times: list[StepTime] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What runs inside counts as this step, whether or not it succeeds."""
        started, used = time.monotonic(), cpu_seconds()
        try:
            yield
        finally:
            seconds, cpu = time.monotonic() - started, cpu_seconds() - used
            self.times.append(StepTime(self.process, name, round(seconds, 2), round(cpu, 2)))


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])
