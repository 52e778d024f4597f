"""How long a process may go without progress before it counts as stalled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inductoscope.model.position import ProcessPosition
from inductoscope.vocabulary.stages import AUTOTUNE, CPP_COMPILE, SCHEDULER, TRITON_COMPILE

# Seconds by stage. Native compilers may well take minutes.
_BY_STAGE = {CPP_COMPILE: 180.0, TRITON_COMPILE: 180.0, AUTOTUNE: 300.0, SCHEDULER: 120.0}


@dataclass(frozen=True)
class Patience:
    """Seconds without progress, by where a process is; None where it is not watched."""

    # In any stage of the compiler that is not in `by_stage`.
    in_stage: float = 90.0
    by_stage: Mapping[str, float] = field(default_factory=dict)
    # Outside of the compiler, where no progress is recorded.
    outside: float | None = None
    # In a call of a compiled graph that is also made in eager, and in float64.
    in_call: float | None = None
    # Once eager has returned from that call: this many times what it took, at least `in_stage`.
    times_eager: float = 20.0
    # Where a native compiler is at work: seconds in which no process uses the processor at all.
    idle: float | None = None
    # How many times as long a process gets that others keep from the processor.
    when_starved: float = 5.0
    # How many times as long a large compile gets: where it is seen to trace on, or took long to get
    # where it is.
    when_large: float = 5.0

    @property
    def most_signs(self) -> float:
        """For how many seconds a process may trace a program and record nothing else."""
        return (self.when_large - 1) * self.in_stage

    def limit(self, position: ProcessPosition) -> float | None:
        """How long a process may stay where it is."""
        usual = self.usual_limit(position)
        if usual is None or not position.stages:
            return usual
        # What a compile has taken so far shows how large it is: it may be silent for as long. What
        # it was given while it traced is not given again.
        most = self.when_large * usual - position.signs
        return max(usual, min(position.seconds_inside, most))

    def usual_limit(self, position: ProcessPosition) -> float | None:
        """The same for a small compile."""
        innermost = position.stages.innermost
        if innermost is not None:
            return self.by_stage.get(innermost.stage, self.in_stage)
        if position.call is None or self.in_call is None:
            return self.outside
        if position.eager_seconds is None:
            return self.in_call
        return max(self.in_stage, self.times_eager * position.eager_seconds)


def patience_of_run(seconds: float | None) -> Patience:
    """For `run`, which reports a stall and continues; `seconds`, if given, apply everywhere."""
    if seconds is None:
        return Patience(by_stage=_BY_STAGE, outside=600.0)
    return Patience(in_stage=seconds, outside=seconds, when_large=1.0)


def patience_of_doctor(seconds: float) -> Patience:
    """For the doctor, which ends a program that stalls in the compiler or in compiled code."""
    return Patience(in_stage=seconds, in_call=5 * seconds, idle=seconds / 3, when_starved=4.0)
