"""Reads the logs of many ranks at once: each is reduced to its decisions by a worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import TYPE_CHECKING, Any

from inductoscope.analysis.ranks.decisions import RankLog
from inductoscope.analysis.ranks.rank_logs import compared_lines, read_rank_log
from inductoscope.analysis.ranks.report import (
    LinesOf,
    RankPlace,
    RankReport,
    rank_of_label,
    rank_of_path,
    report_on,
)
from inductoscope.errors import ToolFailure, UsageError
from inductoscope.hangs.logs.answers import Answer, Kind, judge, urgency
from inductoscope.hangs.logs.log_files import STDIN, Log, find_logs
from inductoscope.hangs.logs.reading import PIECE, ReadFile, read_logs
from inductoscope.processes.side_by_side import several_at_once

if TYPE_CHECKING:
    from inductoscope.processes.cluster import Cluster, ClusterWorker

_AT_ONCE = 4


@dataclass(frozen=True)
class ReducedLog:
    log: Log
    answers: tuple[Answer, ...]
    files: tuple[ReadFile, ...]
    ranks: tuple[RankLog, ...] = ()


@dataclass(frozen=True)
class ReducedLogs:
    """All logs, reduced to their answers, most telling first, and the report on ranks."""

    answers: list[Answer]
    files: list[ReadFile]
    report: RankReport | None


def reduce_logs(logs: Sequence[Log], cores: int | None, *, world: int | None) -> ReducedLogs:
    """Reduce logs with at most `cores` processes, by default one per core."""
    if _are_many(logs):
        with several_at_once(cores, len(logs)) as map_:
            return joined(list(map_(reduce_log, logs)), compared_lines, world)
    reduced = [_answered(log, cores) for log in logs]
    ranks = {_rank(answer) for one in reduced for answer in one.answers} - {None}
    if len(ranks) >= _fewest(world):  # Else they need not be read once more.
        reduced = [_with_ranks(one) for one in reduced]
    return joined(reduced, compared_lines, world)


def _are_many(logs: Sequence[Log]) -> bool:
    """Check whether reading several logs in parallel beats splitting each among processes."""
    if len(logs) < 2 or any(STDIN in log.parts for log in logs):
        return False
    sizes = [os.stat(path).st_size for log in logs for path in log.parts if os.path.exists(path)]
    return len(logs) >= _AT_ONCE or max(sizes, default=0) <= 2 * PIECE


def reduce_log(log: Log) -> ReducedLog:
    """Read and reduce one log. Runs in a worker, which keeps no state."""
    return _with_ranks(_answered(log, 1))


def _answered(log: Log, cores: int | None) -> ReducedLog:
    reading = read_logs([log], cores=cores)
    return ReducedLog(log, tuple(judge(reading)), tuple(reading.files))


def _with_ranks(one: ReducedLog) -> ReducedLog:
    named = {rank_of_label(answer.program.label) for answer in one.answers} - {None}
    return replace(one, ranks=read_rank_log(one.log, several=len(named) > 1))


def joined(reduced: Sequence[ReducedLog], lines_of: LinesOf, world: int | None) -> ReducedLogs:
    """Join reduced logs; `lines_of` reads a rank's log again."""
    files = [file for one in reduced for file in one.files]
    return ReducedLogs(_most_telling_first(reduced), files, _report(reduced, lines_of, world))


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
    """Report on the ranks; None if too few are known."""
    # Standard input cannot be read once more, so nothing of it can be compared.
    reduced = [one for one in reduced if STDIN not in one.log.parts]
    logs = [rank for one in reduced for rank in one.ranks]
    places = list(_places(reduced))
    known = {log.rank for log in logs} | {place.rank for place in places}
    if len(known) < _fewest(world):
        return None
    expected = None if world is None else range(world)
    return report_on(logs, places, lines_of, expected=expected)


def _fewest(world: int | None) -> int:
    """Return the least number of ranks to report on; one is enough if `world` is given."""
    return 2 if world is None else 1


def _places(reduced: Sequence[ReducedLog]) -> Iterator[RankPlace]:
    """Yield where each rank is, by the most telling answer about it."""
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
            problem=answer.is_problem,
            confidence=answer.confidence,
            stage=answer.stage,
            compile=answer.compile_id,
        )


def _rank(answer: Answer) -> int | None:
    label = rank_of_label(answer.program.label)
    return label if label is not None else rank_of_path(answer.program.log)


# --- Reads the logs of many ranks where they lie: on the machines of a cluster --------------------
#
# Every worker says which logs it sees. What several see, on a disk that they share, is read once.

# Identifies a file among files of one name on other disks, and is stable while a log grows.
_Mark = tuple[tuple[int, str], ...]
_LONGEST_FIRST_LINE = 4096


@dataclass(frozen=True)
class PlacedLog:
    log: Log
    workers: tuple[ClusterWorker, ...]


def list_logs(paths: Sequence[str]) -> list[tuple[Log, _Mark]]:
    """Return the logs at these paths on this machine; called on a worker."""
    found = []
    for path in paths:
        with contextlib.suppress(UsageError, OSError):  # Another worker may have it.
            found += [(log, tuple(map(_mark, log.parts))) for log in find_logs([path])]
    return found


def _mark(path: str) -> tuple[int, str]:
    """Return inode and digest of the first line: inodes alone may coincide between machines."""
    with open(path, "rb") as file:
        first = file.readline(_LONGEST_FIRST_LINE)
    return os.stat(path).st_ino, sha1(first).hexdigest()


def reduce_where_they_lie(
    paths: Sequence[str], cluster: Cluster, *, world: int | None = None
) -> ReducedLogs:
    """Reduce the logs at these paths, each on a worker that sees it."""
    seen = cluster.on_every_worker(list_logs, [os.path.abspath(path) for path in paths])
    placed = place_logs(cluster.workers, seen)
    if not placed:
        raise UsageError(
            f"No worker of {cluster.address} sees a log at {', '.join(paths)}. Give the path that "
            "the logs have on the machines of the workers."
        )
    executors = {each.workers: cluster.executor(each.workers) for each in placed}
    asked: dict[Future[ReducedLog], PlacedLog] = {
        executors[each.workers].submit(reduce_log, each.log): each for each in placed
    }
    done = cluster.as_done({future: each.workers for future, each in asked.items()})
    reduced = {asked[future]: _result(future, asked[future]) for future in done}
    where = {id(rank): each for each, one in reduced.items() for rank in one.ranks}

    def lines_of(rank: RankLog, key: tuple[str, str]) -> list[str]:
        each = where[id(rank)]
        future = executors[each.workers].submit(compared_lines, rank, key)
        for _ in cluster.as_done({future: each.workers}):
            with contextlib.suppress(CancelledError):
                return future.result()
        return []

    # The results keep the order in which the logs were found.
    return joined([reduced[each] for each in placed], lines_of, world)


def place_logs(workers: Sequence[ClusterWorker], seen: Mapping[str, Any]) -> list[PlacedLog]:
    """Find the workers that see each log; logs that share a name get their host as a prefix."""
    found: dict[tuple[Log, _Mark], list[ClusterWorker]] = {}
    for worker in workers:
        answer = seen.get(worker.address, ())
        if isinstance(answer, BaseException):
            raise ToolFailure(f"The worker {worker.address} cannot list its logs: {answer}")
        for log, mark in answer:
            found.setdefault((log, mark), []).append(worker)
    names = [log.name for log, _ in found]
    return [
        PlacedLog(
            log if names.count(log.name) == 1 else Log(f"{seeing[0].host}:{log.name}", log.parts),
            tuple(seeing),
        )
        for (log, _), seeing in sorted(found.items(), key=lambda item: item[0][0].name)
    ]


def _result(future: Future[ReducedLog], placed: PlacedLog) -> ReducedLog:
    """Return a worker's result; a log whose workers are gone counts as unreadable."""
    try:
        return future.result()
    except CancelledError:
        problem = "the workers that see it are gone"
    except Exception as error:
        problem = f"a worker could not read it: {error}"
    return ReducedLog(placed.log, (), (ReadFile(placed.log.name, damage=[problem]),))
