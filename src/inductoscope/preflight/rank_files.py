"""The files of a pretended rank, and faults in its point-to-point messages (send, recv).

Each message must be received, with the size it is sent with. Sends and receives between two ranks
match in call order. Deadlocks are found by simulating the recorded calls: a blocking call returns
once its counterpart has been called.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from inductoscope.analysis.ranks.comparing import RankSide
from inductoscope.analysis.ranks.decisions import Decision, RankLog, RankProgress
from inductoscope.analysis.ranks.rank_logs import read_rank_log
from inductoscope.hangs.logs.log_files import Log
from inductoscope.preflight.rank_folder import ANY_RANK, CALLS, RECEIVE, SEND, TRACE, rank_folder
from inductoscope.preflight.rank_processes import RankRun

_KIND = "message"
_OTHER = {SEND: RECEIVE, RECEIVE: SEND}


class _Channel(NamedTuple):
    group: str
    source: int
    target: int
    tag: int

    @property
    def name(self) -> str:
        tag = f", tag {self.tag}" if self.tag else ""
        return f"from rank {self.source} to rank {self.target} in group {self.group}{tag}"


@dataclass(frozen=True)
class Message:
    """One side of a message: a send or a receive that a rank called."""

    rank: int
    way: str
    channel: _Channel
    # The type and number of elements, and the size in bytes.
    what: str
    size: int
    where: str
    blocks: bool

    @property
    def ends(self) -> set[int]:
        return {self.channel.source, self.channel.target}

    @property
    def side(self) -> RankSide:
        words = f"{self.way} {self.what}"
        place = f" ({self.where})" if self.where else ""
        return RankSide((self.rank,), Decision(_KIND, self.channel.name, words, f"{words}{place}"))


HANG, MISMATCH = "hang", "mismatch"


@dataclass(frozen=True)
class Prediction:
    """A mismatch between calls of different ranks."""

    kind: str
    decision: str
    sides: tuple[RankSide, ...]
    # Whether the program made the calls, or only has them in a compiled graph.
    was_called: bool = True
    # Whether the calls are send and recv rather than collectives.
    is_message: bool = True


def read_messages(rank: int, lines: Iterable[Mapping[str, Any]], backend: str) -> list[Message]:
    """Return the messages among a rank's calls. NCCL ignores tags."""
    found = []
    for line in lines:
        way, peer = line.get("way"), line.get("peer")
        if way not in (SEND, RECEIVE) or not isinstance(peer, int):
            continue
        ends = (rank, peer) if way == SEND else (peer, rank)
        tag = 0 if "nccl" in backend else int(line.get("tag", 0))
        found.append(
            Message(
                rank=rank,
                way=str(way),
                channel=_Channel(str(line.get("group", "")), *ends, tag),
                what=str(line.get("text", "")),
                size=int(line.get("size", 0)),
                where=str(line.get("where", "")),
                blocks=bool(line.get("blocks")),
            )
        )
    return found


def message_faults(
    of_rank: Mapping[int, Sequence[Message]], ended: Iterable[int], backend: str
) -> tuple[list[Prediction], list[str]]:
    """Return faults between ranks that finished, and notes."""
    known = set(ended)
    vague = {m.rank for messages in of_rank.values() for m in messages if _is_vague(m)}
    notes = ["Ranks that receive from any rank were not matched with senders."] if vague else []
    played = {
        rank: [m for m in messages if m.ends <= known and m.channel.target not in vague]
        for rank, messages in of_rank.items()
    }
    sent, received = (defaultdict[_Channel, list[Message]](list) for _ in range(2))
    for messages in played.values():
        for one in messages:
            (sent if one.way == SEND else received)[one.channel].append(one)
    faults: list[Prediction] = []
    for channel in sorted({*sent, *received}):
        found, note = _compare(channel, sent[channel], received[channel], backend)
        faults += found
        notes += note
    # A missing message also causes waits, and is reported already.
    return faults or _deadlock(played), notes


def _is_vague(message: Message) -> bool:
    return message.channel.source == ANY_RANK


def _compare(
    channel: _Channel, sent: list[Message], received: list[Message], backend: str
) -> tuple[list[Prediction], list[str]]:
    """Return the first fault between two ranks; later ones may be its consequence."""
    notes = []
    for number, (one, other) in enumerate(zip(sent, received, strict=False), 1):
        if one.what == other.what:
            continue
        # Gloo accepts a receive buffer larger than the message; NCCL requires equal sizes.
        if one.size > other.size or "nccl" in backend:
            name = f"message {number} {channel.name}"
            return [Prediction(MISMATCH, name, (one.side, other.side))], []
        notes = [f"Message {number} {channel.name}: {one.what} is received as {other.what}."]
    if len(sent) == len(received):
        return [], notes
    number = min(len(sent), len(received)) + 1
    left = (sent if len(sent) > len(received) else received)[number - 1]
    missing = channel.target if left.way == SEND else channel.source
    words = "does not receive it" if left.way == SEND else "does not send it"
    nothing = RankSide((missing,), Decision(_KIND, channel.name, words))
    name = f"message {number} {channel.name}"
    return [Prediction(HANG, name, (left.side, nothing))], notes


def _deadlock(of_rank: Mapping[int, Sequence[Message]]) -> list[Prediction]:
    """Simulate the calls; ranks left at the end wait for each other."""
    waiting = {rank: deque(messages) for rank, messages in of_rank.items()}
    called: Counter[tuple[_Channel, str]] = Counter()
    # The number of each rank's first pending message in its channel, once it is called.
    turn: dict[int, int] = {}
    has_moved = True
    while has_moved:
        has_moved = False
        for rank, queue in waiting.items():
            while queue:
                one = queue[0]
                if rank not in turn:
                    called[one.channel, one.way] += 1
                    turn[rank] = called[one.channel, one.way]
                    has_moved = True
                if one.blocks and called[one.channel, _OTHER[one.way]] < turn[rank]:
                    break
                queue.popleft()
                del turn[rank]
    stuck = tuple(queue[0].side for queue in waiting.values() if queue)
    return [Prediction(HANG, "messages that wait for each other", stuck)] if stuck else []


# --- What one pretended rank leaves behind, and how it is read ------------------------------------


@dataclass(frozen=True)
class RankFiles:
    """A run as one rank: its process group, if it created one, and its decisions."""

    run: RankRun
    log: RankLog
    # The backend that the program requested; None if it created no process group.
    backend: str | None
    # The world size that the program requested; -1 if it left that to its environment.
    asked_world: int
    calls: int
    messages: tuple[Message, ...]
    has_more_calls: bool


def read_rank(folder: Path, run: RankRun) -> RankFiles:
    own = rank_folder(folder, run.rank)
    log = _trace(own, run.rank)
    lines = list(_lines(own / CALLS))
    made = next((line for line in lines if "backend" in line), None)
    calls = tuple(_decisions(lines))
    progress = RankProgress.ENDED if run.ended_well else RankProgress.BUSY
    return RankFiles(
        run=run,
        log=replace(log, decisions=(*log.decisions, *calls), progress=progress, form="preflight"),
        backend=None if made is None else str(made["backend"]),
        asked_world=made.get("asked_world", -1) if made else -1,
        calls=len(calls),
        messages=tuple(read_messages(run.rank, lines, str(made["backend"]) if made else "")),
        has_more_calls=any("more" in line for line in lines),
    )


def _trace(own: Path, rank: int) -> RankLog:
    """Return the trace of the rank; of several, that of the process that compiled most."""
    found = [
        log
        for path in sorted((own / TRACE).glob("*.log"))
        for log in read_rank_log(Log(str(path), (str(path),)), several=False)
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
    """Yield the calls, numbered per group: only ranks of one group wait for each other."""
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
