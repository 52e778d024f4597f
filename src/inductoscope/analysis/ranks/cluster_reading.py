"""Reads the logs of many ranks where they lie: on the machines of a cluster.

Every worker says which logs it sees. What several see, on a disk that they share, is read once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from inductoscope.analysis.ranks.decisions import RankLog
from inductoscope.analysis.ranks.rank_logs import compared_lines
from inductoscope.analysis.ranks.reading import ReducedLog, ReducedLogs, joined, reduce_log
from inductoscope.errors import ToolFailure, UsageError
from inductoscope.executors.cluster import Cluster, ClusterWorker
from inductoscope.hangs.logs.files import Log, find_logs
from inductoscope.hangs.logs.reading import ReadFile

# What tells files of one name on different disks apart, and stays as it is while a log grows.
_Mark = tuple[tuple[int, str], ...]
_LONGEST_FIRST_LINE = 4096


@dataclass(frozen=True)
class PlacedLog:
    """A log, and the workers that see it."""

    log: Log
    workers: tuple[ClusterWorker, ...]


def list_logs(paths: Sequence[str]) -> list[tuple[Log, _Mark]]:
    """The logs that this machine has at these paths; called on a worker."""
    found = []
    for path in paths:
        with contextlib.suppress(UsageError, OSError):  # Another worker may have it.
            found += [(log, tuple(map(_mark, log.parts))) for log in find_logs([path])]
    return found


def _mark(path: str) -> tuple[int, str]:
    """The number of the file, and its first line: machines set up alike number files alike."""
    with open(path, "rb") as file:
        first = file.readline(_LONGEST_FIRST_LINE)
    return os.stat(path).st_ino, sha1(first).hexdigest()


def reduce_where_they_lie(
    paths: Sequence[str], cluster: Cluster, *, world: int | None = None
) -> ReducedLogs:
    """Read the logs at these paths, each on a worker that sees it."""
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
        future = executors[each.workers].submit(compared_lines, each.log, rank.rank, key)
        for _ in cluster.as_done({future: each.workers}):
            with contextlib.suppress(CancelledError):
                return future.result()
        return []

    # In the order in which they were found, whichever was read first.
    return joined([reduced[each] for each in placed], lines_of, world)


def place_logs(workers: Sequence[ClusterWorker], seen: Mapping[str, Any]) -> list[PlacedLog]:
    """Which workers see each log; of two files with one name, the machine is part of the name."""
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
    """What a worker has read; a log whose workers are gone counts as one that cannot be read."""
    try:
        return future.result()
    except CancelledError:
        problem = "the workers that see it are gone"
    except Exception as error:
        problem = f"a worker could not read it: {error}"
    return ReducedLog(placed.log, (), (ReadFile(placed.log.name, damage=[problem]),), ())
