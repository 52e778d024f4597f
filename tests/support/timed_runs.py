"""Runs of a program with times that a test writes down."""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.profiling.timings import FUNCTION, IN_EAGER, CallTimes, ProcessTimes
from inductoscope.profiling.turns import TimedRun


@dataclass(frozen=True)
class Calls:
    """Calls of a function: half compiled, half in eager, with so many seconds each."""

    name: str
    place: str
    compiled: float
    eager: float
    count: int = 20
    group: str = "1.1"

    @property
    def times(self) -> tuple[CallTimes, CallTimes]:
        """Records of a clock; calls vary by a few percent."""
        return self._side(FUNCTION, self.compiled), self._side(IN_EAGER, self.eager)

    def _side(self, kind: str, seconds: float) -> CallTimes:
        count = self.count // 2
        values = tuple(round(seconds * 1e9 * (1 + 0.01 * (n % 5 - 2))) for n in range(count))
        return CallTimes(self.name, kind, self.place, count, sum(values), values, group=self.group)


def timed_run(*calls: Calls, idle: float = 0.0, gpu: bool = False) -> TimedRun:
    """A run with these calls, and so many seconds between them."""
    times = tuple(each for some in calls for each in some.times)
    span = sum(each.total for each in times) + round(idle * 1e9)
    return TimedRun(0, 1.0, (ProcessTimes(1, times, waited_for_gpu=gpu, span=span),))
