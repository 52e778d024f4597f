"""Ranks that need much longer for a stage than the others do.

A rank's seconds come from its own clock. Clocks of hosts differ, so no time of one rank is compared
with a time of another: only how long something took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from inductoscope.analysis.ranks.decisions import RankLog
from inductoscope.vocabulary.stages import COMPILER_ORDER, NO_STAGE

# Fewer ranks have no typical one.
_FEWEST = 4
# A straggler takes so many times the median, and so many seconds more.
_TIMES, _SECONDS = 2.0, 1.0
# And lies so many times further from the median than a rank usually does.
_SPREADS = 6.0


@dataclass(frozen=True)
class StageTimes:
    """What a stage took on all ranks."""

    stage: str
    ranks: int
    median: float
    slowest: float
    slowest_rank: int


@dataclass(frozen=True)
class Straggler:
    """A rank that is slow in one stage."""

    rank: int
    stage: str
    seconds: float
    median: float


def stage_times(logs: Sequence[RankLog]) -> tuple[StageTimes, ...]:
    """Every stage that several ranks have timed, in the order of the compiler."""
    return tuple(
        StageTimes(stage, len(times), round(median(times.values()), 3), *_slowest(times))
        for stage, times in _by_stage(logs).items()
        if len(times) > 1
    )


def find_stragglers(logs: Sequence[RankLog]) -> tuple[Straggler, ...]:
    """Slow ranks, the slowest first."""
    found = []
    for stage, times in _by_stage(logs).items():
        if len(times) < _FEWEST:
            continue
        usual = median(times.values())
        spread = median(abs(seconds - usual) for seconds in times.values())
        limit = max(_TIMES * usual, usual + _SECONDS, usual + _SPREADS * spread)
        found += [
            Straggler(rank, stage, round(seconds, 3), round(usual, 3))
            for rank, seconds in times.items()
            if seconds > limit
        ]
    return tuple(sorted(found, key=lambda one: one.median - one.seconds))


def _slowest(times: dict[int, float]) -> tuple[float, int]:
    rank = max(times, key=lambda one: times[one])
    return round(times[rank], 3), rank


def _by_stage(logs: Sequence[RankLog]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for log in logs:
        for stage, seconds in log.stage_seconds:
            found[stage][log.rank] = seconds
    order = {stage: number for number, stage in enumerate(COMPILER_ORDER)}
    stages = sorted(found, key=lambda stage: (order.get(stage, 99), stage))
    return {stage: found[stage] for stage in stages if stage != NO_STAGE}
