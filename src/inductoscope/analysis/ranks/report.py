"""The report on all ranks of a job: where each is, odd ones out, stragglers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from inductoscope.analysis.ranks.comparing import RankComparison, compare_ranks
from inductoscope.analysis.ranks.decisions import RankLog, Weight
from inductoscope.torch_facts.stages import COMPILER_ORDER, NO_STAGE
from inductoscope.wording import count_of

_MOST_RANGES = 6
# In the name of a file or folder, the last one first; then what torchrun --log-dir makes, and the
# number at the end of a name such as out.3.
_IN_NAME = re.compile(
    r"(?<![a-z])rank[_\-.=]?(\d{1,7})(?!.*(?<![a-z])rank[_\-.=]?\d)", re.IGNORECASE
)
_OF_TORCHRUN = re.compile(r"attempt_\d+/(\d{1,7})/std(?:out|err)\.log")
_AT_END = re.compile(r"\.(\d{1,7})(?:\.(?:gz|bz2|xz))?$")
# Torch's own prefix has the global rank; a launcher's may only have the local rank.
_IN_LABEL = (re.compile(r"rank ?(\d{1,7})"), re.compile(r"default(\d{1,7})|^(\d{1,7})(?=:|$)"))


def ranks_text(ranks: Iterable[int]) -> str:
    """Format ranks: 'rank 3', 'ranks 0-2, 7'; of many, only the first ones."""
    numbers = sorted(set(ranks))
    word = "rank" if len(numbers) == 1 else "ranks"
    return f"{word} {numbers_text(numbers)}"


def numbers_text(ranks: Iterable[int]) -> str:
    """Format numbers: '0-2, 7'; of many, the first ones and how many more there are."""
    ranges = _ranges(sorted(set(ranks)))
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    if len(shown) <= _MOST_RANGES:
        return ", ".join(shown)
    left = sum(last - first + 1 for first, last in ranges[_MOST_RANGES:])
    return f"{', '.join(shown[:_MOST_RANGES])} and {left} more"


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def rank_of_path(path: str) -> int | None:
    """Return the rank in a file's name; None if the name has none."""
    place = path.replace("\\", "/")
    for pattern in (_IN_NAME, _OF_TORCHRUN, _AT_END):
        found = pattern.search(place)
        if found:
            return int(found[1])
    return None


def rank_of_label(label: str) -> int | None:
    """Return the rank in torch's or a launcher's prefix of a line: '[rank3]:', 'rank 3', '3:'."""
    for pattern in _IN_LABEL:
        found = pattern.search(label)
        if found:
            return int(next(filter(None, found.groups())))
    return None


# --- Ranks that need much longer for a stage than the others do -----------------------------------
#
# A rank's seconds come from its own clock. Clocks of hosts differ, so no time of one rank is
# compared with a time of another: only how long something took.

# With fewer ranks, none is typical.
_FEWEST = 4
# A straggler takes this many times the median, and this many seconds longer.
_TIMES, _SECONDS = 2.0, 1.0
# Its distance from the median exceeds the usual one by this factor.
_SPREADS = 6.0


@dataclass(frozen=True)
class StageTimes:
    """The median and the slowest time of a stage over all ranks."""

    stage: str
    ranks: int
    median: float
    slowest: float
    slowest_rank: int


@dataclass(frozen=True)
class Straggler:
    rank: int
    stage: str
    seconds: float
    median: float


def stage_times(logs: Sequence[RankLog]) -> tuple[StageTimes, ...]:
    """Return every stage that several ranks timed, in the order of the compiler."""
    return tuple(
        StageTimes(stage, len(times), round(median(times.values()), 3), *_slowest(times))
        for stage, times in _by_stage(logs).items()
        if len(times) > 1
    )


def find_stragglers(logs: Sequence[RankLog]) -> tuple[Straggler, ...]:
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


# --- All ranks of a job in one report: where each is, who is the odd one out, who is slow ---------

ABOUT_CLOCKS = (
    "Clocks of hosts differ: durations and the order within each rank are compared, never the time "
    "of one rank with that of another."
)
# Returns the lines behind the digest of a rank's decision.
LinesOf = Callable[[RankLog, tuple[str, str]], list[str]]
_MOST_LINES_READ = 12
_LONGEST_LINE = 200
# Characters shown before the first difference in an over-long line.
_SHOWN_BEFORE = 60
# A job has more ranks without a log than this only if it has many with one.
_MOST_MISSING, _MOST_MISSING_EACH = 1000, 5


@dataclass(frozen=True)
class RankPlace:
    rank: int
    what: str
    title: str
    problem: bool
    confidence: str
    stage: str = ""
    compile: str = ""


@dataclass(frozen=True)
class FirstLine:
    """The first line in which two texts differ; empty for the text that has ended."""

    number: int
    here: str
    there: str


@dataclass(frozen=True)
class RankReport:
    ranks: tuple[int, ...]
    form: str
    missing: tuple[int, ...]
    # Ranks that are known only from another form of log, so not compared.
    not_compared: tuple[int, ...]
    places: tuple[RankPlace, ...]
    comparison: RankComparison
    # The first differing lines, by kind and key of a difference.
    first_lines: dict[tuple[str, str], FirstLine]
    stage_times: tuple[StageTimes, ...]
    stragglers: tuple[Straggler, ...]
    notes: tuple[str, ...] = ()

    @property
    def stuck(self) -> tuple[RankPlace, ...]:
        return tuple(place for place in self.places if place.problem)

    @property
    def is_problem(self) -> bool:
        """Whether ranks deadlock or will: they call different collectives."""
        return any(one.is_deadly for one in self.comparison.differences)


def report_on(
    logs: Sequence[RankLog],
    places: Sequence[RankPlace],
    lines_of: LinesOf,
    *,
    expected: Iterable[int] | None = None,
    ignored: Collection[str] = (),
    ends_tell: bool = True,
) -> RankReport:
    """Compare the ranks.

    `expected` has the ranks that should exist, if known; `ignored` has kinds of decisions that are
    not compared. `ends_tell`: ranks that ended will make no further calls.
    """
    chosen, notes = _one_log_each(logs)
    form = Counter(log.form for log in chosen).most_common(1)[0][0] if chosen else ""
    compared = [log for log in chosen if log.form == form]
    comparison = compare_ranks(compared, ignored, ends_tell=ends_tell)
    known = sorted({log.rank for log in logs} | {place.rank for place in places})
    if expected is None:
        expected, more = _as_many_as_known(known)
        notes += more
    return RankReport(
        ranks=tuple(known),
        form=form,
        missing=tuple(sorted(set(expected) - set(known))),
        not_compared=tuple(sorted(set(known) - {log.rank for log in compared})),
        places=tuple(sorted(places, key=lambda place: place.rank)),
        comparison=comparison,
        first_lines=_first_lines(comparison, {log.rank: log for log in compared}, lines_of),
        stage_times=stage_times(compared),
        stragglers=find_stragglers(compared),
        notes=tuple(notes),
    )


def _as_many_as_known(known: Sequence[int]) -> tuple[Iterable[int], list[str]]:
    """Return all ranks up to the highest; none if that is implausibly high."""
    last = max(known, default=-1)
    if last < max(_MOST_MISSING, _MOST_MISSING_EACH * len(known)):
        return range(last + 1), []
    return (), [
        f"ranks without a log are not named: rank {last} is far above the number of ranks that "
        "have one. --world says how many there should be"
    ]


def _one_log_each(logs: Sequence[RankLog]) -> tuple[list[RankLog], list[str]]:
    """Return the last log of each rank: a restarted rank wrote several."""
    of_rank: dict[int, list[RankLog]] = defaultdict(list)
    for log in logs:
        of_rank[log.rank].append(log)
    again = []
    for rank, found in of_rank.items():
        # All logs are of one rank, so they share a clock, unless the rank moved to another host.
        found.sort(key=lambda log: (log.form == "trace", log.began, len(log.decisions)))
        if sum(bool(log.decisions) and log.form == found[-1].form for log in found) > 1:
            again.append(rank)
    notes = []
    if again:
        notes.append(f"{ranks_text(again)} wrote several logs; the one that began last is compared")
    return [of_rank[rank][-1] for rank in sorted(of_rank)], notes


def _first_lines(
    comparison: RankComparison, logs: dict[int, RankLog], lines_of: LinesOf
) -> dict[tuple[str, str], FirstLine]:
    found = {}
    for one in comparison.differences[:_MOST_LINES_READ]:
        key, sides = (one.kind, one.key), one.sides[:2]
        if all(side.decision is not None for side in sides):
            majority, odd = (lines_of(logs[side.ranks[0]], key) for side in sides)
            line = first_difference(odd, majority)
            if line is not None:
                found[key] = line
    return found


def first_difference(odd: Sequence[str], majority: Sequence[str]) -> FirstLine | None:
    """Return the first line that differs; None if none does, or nothing can be compared."""
    for number, (here, there) in enumerate(zip_longest(odd, majority, fillvalue=""), 1):
        if here != there:
            return FirstLine(number, *_cut(here.strip(), there.strip()))
    return None


def _cut(one: str, other: str) -> tuple[str, str]:
    """Cut both lines to a length that can be shown, around their first difference."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    begin = max(0, same - _SHOWN_BEFORE) if same > _LONGEST_LINE - _SHOWN_BEFORE else 0
    return _part(one, begin), _part(other, begin)


def _part(line: str, begin: int) -> str:
    head = "…" if begin else ""
    rest = line[begin:]
    return head + (rest if len(rest) <= _LONGEST_LINE else rest[: _LONGEST_LINE - 1] + "…")


def headline(report: RankReport) -> str:
    """Sum up the most important result in one sentence."""
    count = len(report.ranks)
    deadly = next((odd for odd in report.comparison.odd if odd.is_deadly), None)
    if deadly is not None:
        return f"{ranks_text(deadly.odd.ranks)} of {count}: other collectives than the others"
    if report.is_problem:
        return f"{count} ranks call different collectives; none has a majority"
    stuck = [place.rank for place in report.stuck]
    if stuck:
        return f"{ranks_text(stuck)} of {count} stuck or failed"
    odd = _odd_ones(report, costly=False)
    if odd:
        return f"{ranks_text(odd)} of {count} decided otherwise than most"
    if any(split.weight is not Weight.COST for split in report.comparison.splits):
        return f"{count} ranks are divided; no side is the majority"
    if not report.comparison.decisions:
        return f"{count_of(count, 'rank')}, and no decision to compare"
    same = f"{count} ranks compile the same ({numbers_text(report.ranks)})"
    costly = _odd_ones(report, costly=True)
    return f"{same}; {ranks_text(costly)} spent more or less on it" if costly else same


def _odd_ones(report: RankReport, *, costly: bool) -> list[int]:
    found = (
        odd
        for odd in report.comparison.odd
        if (odd.weight is Weight.COST) is costly and not odd.others_may_follow
    )
    return sorted({rank for odd in found for rank in odd.odd.ranks})
