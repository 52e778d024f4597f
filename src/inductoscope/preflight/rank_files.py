"""What one pretended rank leaves behind, and how it is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.analysis.ranks.decisions import Decision, RankLog, RankProgress
from inductoscope.analysis.ranks.rank_logs import read_rank_log
from inductoscope.hangs.logs.files import Log
from inductoscope.preflight.file_names import CALLS, TRACE
from inductoscope.preflight.messages import Message, read_messages


@dataclass(frozen=True)
class RankFiles:
    """What a rank wrote: its process group, if it made one, and its decisions."""

    log: RankLog
    # The backend that the program asked for; None if it made no process group.
    backend: str | None
    # How many ranks the program asked for; -1 if it left that to its environment.
    asked_world: int
    calls: int
    messages: tuple[Message, ...]
    has_more_calls: bool


def rank_folder(folder: Path, rank: int) -> Path:
    """Where a rank's files are."""
    return folder / f"rank_{rank}"


def read_rank(folder: Path, rank: int, *, ended: bool) -> RankFiles:
    """Read the folder of a rank."""
    own = rank_folder(folder, rank)
    log = _trace(own, rank)
    lines = list(_lines(own / CALLS))
    made = next((line for line in lines if "backend" in line), None)
    calls = tuple(_decisions(lines))
    progress = RankProgress.ENDED if ended else RankProgress.BUSY
    return RankFiles(
        log=replace(log, decisions=(*log.decisions, *calls), progress=progress, form="preflight"),
        backend=None if made is None else str(made["backend"]),
        asked_world=made.get("asked_world", -1) if made else -1,
        calls=len(calls),
        messages=tuple(read_messages(rank, lines, str(made["backend"]) if made else "")),
        has_more_calls=any("more" in line for line in lines),
    )


def _trace(own: Path, rank: int) -> RankLog:
    """The trace of the rank; of several, that of the process that compiled most."""
    found = [
        log
        for path in sorted((own / TRACE).glob("*.log"))
        for log in read_rank_log(Log(str(path), (str(path),)))
        if log.rank == rank
    ]
    return max(found, key=lambda log: len(log.decisions), default=RankLog(rank))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            read = json.loads(line)
        except ValueError:
            continue  # The last line of a rank that was killed.
        if isinstance(read, dict):
            yield read


def _decisions(lines: list[dict[str, Any]]) -> Iterator[Decision]:
    """The calls, numbered within their group: only ranks of one group wait for each other."""
    turns: Counter[str] = Counter()
    for line in lines:
        if "text" not in line or "way" in line:
            continue
        group, text = str(line["group"]), str(line["text"])
        turns[group] += 1
        where = f" ({line['where']})" if line.get("where") else ""
        yield Decision(
            kind="collective",
            key=f"call {turns[group]} in group {group}",
            value=text,
            shown=f"{text}{where}",
            among=tuple(rank for rank in line.get("ranks", ()) if isinstance(rank, int)),
            groups=(group,),
        )
