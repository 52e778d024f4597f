"""Reads the logs of many ranks at once: each is reduced to its decisions where it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inductoscope.analysis.ranks.decisions import RankLog
from inductoscope.analysis.ranks.rank_logs import compared_lines, read_rank_log
from inductoscope.analysis.ranks.rank_numbers import rank_of_label, rank_of_path
from inductoscope.analysis.ranks.report import LinesOf, RankPlace, RankReport, report_on
from inductoscope.hangs.logs.answer import Answer, Kind, urgency
from inductoscope.hangs.logs.applicability import judge
from inductoscope.hangs.logs.files import STDIN, Log
from inductoscope.hangs.logs.reading import PIECE, LogReading, ReadFile, read_log
from inductoscope.processes.side_by_side import Map

_AT_ONCE = 4


@dataclass(frozen=True)
class ReducedLog:
    """What is kept of one log."""

    log: Log
    answers: tuple[Answer, ...]
    files: tuple[ReadFile, ...]
    ranks: tuple[RankLog, ...]


@dataclass(frozen=True)
class ReducedLogs:
    """What is kept of all logs: the answers, the most telling first, and the ranks."""

    answers: list[Answer]
    reading: LogReading
    report: RankReport | None


def are_many(logs: Sequence[Log]) -> bool:
    """Whether it is faster to read several logs at once than one with several processes."""
    if len(logs) < 2 or any(STDIN in log.parts for log in logs):
        return False
    sizes = [os.stat(path).st_size for log in logs for path in log.parts if os.path.exists(path)]
    return len(logs) >= _AT_ONCE or max(sizes, default=0) <= 2 * PIECE


def reduce_log(log: Log) -> ReducedLog:
    """Read one log. Runs in a worker, which keeps nothing of it."""
    reading = read_log(log)
    return ReducedLog(log, tuple(judge(reading)), tuple(reading.files), read_rank_log(log))


def reduce_logs(logs: Sequence[Log], map_: Map, *, world: int | None = None) -> ReducedLogs:
    """Read logs with a `map` that may use several processes."""
    return joined(list(map_(reduce_log, logs)), lines_of_file, world)


def joined(reduced: Sequence[ReducedLog], lines_of: LinesOf, world: int | None) -> ReducedLogs:
    """All that was kept; `lines_of` reads a rank's log again."""
    files = [file for one in reduced for file in one.files]
    answers = _most_telling_first(reduced)
    return ReducedLogs(answers, LogReading([], files), _report(reduced, lines_of, world))


def ranks_in(
    logs: Sequence[Log], answers: Sequence[Answer], world: int | None
) -> RankReport | None:
    """The ranks in logs whose answers are known; they are read once more if they name several."""
    ranks = {_rank(answer) for answer in answers} - {None}
    if len(ranks) < _fewest(world):
        return None
    reduced = [
        ReducedLog(
            log,
            tuple(answer for answer in answers if answer.program.log == log.name),
            (),
            read_rank_log(log),
        )
        for log in logs
        if STDIN not in log.parts
    ]
    return _report(reduced, lines_of_file, world)


def _most_telling_first(reduced: Sequence[ReducedLog]) -> list[Answer]:
    answers = [answer for one in reduced for answer in one.answers]
    failed = {answer.program.log for answer in answers if answer.kind is Kind.ERROR}

    def order(answer: Answer) -> tuple[bool, int, str]:
        # In one log the first error comes first; errors in several have no order.
        is_placed = answer.kind is Kind.ERROR and len(failed) == 1
        return (*urgency(answer), "" if is_placed else answer.program.label)

    return sorted(answers, key=order)


# --- ranks ----------------------------------------------------------------------------------------


def _report(
    reduced: Sequence[ReducedLog], lines_of: LinesOf, world: int | None
) -> RankReport | None:
    """None where too few ranks are known."""
    logs = [rank for one in reduced for rank in one.ranks]
    places = list(_places(reduced))
    known = {log.rank for log in logs} | {place.rank for place in places}
    if len(known) < _fewest(world):
        return None
    expected = None if world is None else range(world)
    return report_on(logs, places, lines_of, expected=expected)


def _fewest(world: int | None) -> int:
    """One rank is compared with none, but others may be missing where more are expected."""
    return 2 if world is None else 1


def _places(reduced: Sequence[ReducedLog]) -> Iterator[RankPlace]:
    """Where each rank is: of several answers about one, the most telling."""
    best: dict[int, Answer] = {}
    for one in reduced:
        for answer in one.answers:
            rank = _rank(answer)
            if rank is None and len(one.ranks) == 1:
                rank = one.ranks[0].rank
            if rank is not None and (rank not in best or urgency(answer) < urgency(best[rank])):
                best[rank] = answer
    for rank, answer in sorted(best.items()):
        yield RankPlace(
            rank=rank,
            what=answer.kind.value,
            title=answer.title,
            is_problem=answer.is_problem,
            confidence=answer.confidence,
            stage=answer.stage,
            compile=answer.compile_id,
        )


def _rank(answer: Answer) -> int | None:
    label = rank_of_label(answer.program.label)
    return label if label is not None else rank_of_path(answer.program.log)


def lines_of_file(log: RankLog, key: tuple[str, str]) -> list[str]:
    """Read a rank's log again, for the lines that differ; none if no log was read."""
    if not log.files:
        return []
    return compared_lines(Log(log.files[0], log.files), log.rank, key)
