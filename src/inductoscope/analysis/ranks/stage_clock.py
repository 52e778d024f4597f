"""Seconds of each stage, from the beginnings and ends of phases in a trace.

Only differences of one clock are taken: clocks of different hosts are never compared.
"""

from __future__ import annotations

import re
from collections import defaultdict

from inductoscope.vocabulary import stages
from inductoscope.vocabulary.stage_lookup import stage_of_phase

_NAME = re.compile(r'"name": "((?:[^"\\]|\\.)*)"')
_TIME = re.compile(r'"ts": (\d{1,18}(?:\.\d{1,9})?)')
_PHASE = re.compile(r'"ph": "([BE])"')


# Waits for kernels, whichever compiler they go to: the phase does not say whether it is Triton's.
_WAITS = re.compile(r"async_compile|PyCodeCache")


class StageClock:
    """Adds up what each stage took, without the phases inside it."""

    def __init__(self) -> None:
        self._open: dict[str, list[_OpenPhase]] = {}
        self._seconds: dict[str, float] = defaultdict(float)

    @property
    def is_open(self) -> bool:
        """Whether a phase has begun and not ended."""
        return any(self._open.values())

    @property
    def stage_seconds(self) -> tuple[tuple[str, float], ...]:
        """The stages that took time, in the order of the compiler."""
        order = {stage: number for number, stage in enumerate(stages.COMPILER_ORDER)}
        found = sorted(self._seconds.items(), key=lambda item: (order.get(item[0], 99), item[0]))
        return tuple((stage, round(seconds, 6)) for stage, seconds in found if seconds > 0)

    def take_event(self, compile_id: str, payload: str) -> None:
        """Take a chromium event as torch writes it."""
        name, time, phase = _NAME.search(payload), _TIME.search(payload), _PHASE.search(payload)
        if name is None or time is None or phase is None:
            return
        begin_or_end = self.begin if phase[1] == "B" else self.end
        begin_or_end(compile_id, name[1], float(time[1]) / 1e6)

    def begin(self, compile_id: str, name: str, time: float) -> None:
        """A phase begins."""
        self._open.setdefault(compile_id, []).append(_OpenPhase(name, time))

    def end(self, compile_id: str, name: str, time: float) -> None:
        """A phase ends, and with it what was left open inside it."""
        phases = self._open.get(compile_id, [])
        names = [phase.name for phase in phases]
        if name not in names:
            return  # It began before the log does.
        place = len(names) - 1 - names[::-1].index(name)
        phase = phases[place]
        del phases[place:]
        took = max(0.0, time - phase.began)
        stage = stages.WAITING if _WAITS.match(name) else stage_of_phase(name)
        self._seconds[stage] += max(0.0, took - phase.inside)
        if phases:
            phases[-1].inside += took

    def add(self, stage: str, seconds: float) -> None:
        """Add what is known otherwise."""
        self._seconds[stage] += seconds


class _OpenPhase:
    """A phase that has begun, and the seconds of what ended inside it."""

    def __init__(self, name: str, began: float) -> None:
        self.name = name
        self.began = began
        self.inside = 0.0
