"""Reads one log and reduces it to the decisions of the ranks that wrote it.

Line by line, so that memory does not grow with the log; of a payload only so much is kept. Nothing
in a log is trusted: a line that does not read is passed over.
"""

from __future__ import annotations

import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from lzma import LZMAError
from typing import IO

from inductoscope.analysis.ranks.decision_fold import RECORDS, DecisionFold, reads_artifact
from inductoscope.analysis.ranks.decisions import RankLog
from inductoscope.analysis.ranks.rank_numbers import rank_of_label, rank_of_path
from inductoscope.analysis.ranks.text_decisions import TextDecisions
from inductoscope.hangs.logs.files import STDIN, Log, open_log
from inductoscope.hangs.logs.records import RECORD, written_by
from inductoscope.hangs.logs.text import HEADER, LONGEST, clean, decode, is_clean, label_of

_MOST_PAYLOAD = 32 << 20
_HEADER_REACH = 400
_MOST_SAMPLED = 4000
_TAB = b"\t"
_NAME = re.compile(rb'"artifact": \{"name": "([^"\n]*)"')
_UNREADABLE = (OSError, EOFError, zlib.error, LZMAError)
_Key = tuple[str, str]


def read_rank_log(log: Log) -> tuple[RankLog, ...]:
    """The ranks that wrote a log; none if it names none."""
    reader = _LogReader()
    reader.read(log)
    return tuple(_rank_logs(reader, log))


def compared_lines(log: Log, rank: int, key: _Key) -> list[str]:
    """The lines of which a decision of a rank is the digest; empty if it has none."""
    reader = _LogReader(keeps_lines=True)
    reader.read(log)
    found = reader.of_rank(rank, log)
    return found.trace.lines.get(key, []) if found else []


def _rank_logs(reader: _LogReader, log: Log) -> Iterator[RankLog]:
    for rank, written in reader.ranks(log):
        form = "trace" if written.trace.decisions else "text"
        source: DecisionFold | TextDecisions = written.trace if form == "trace" else written.text
        decisions = source.decisions
        clock = written.trace.clock
        if decisions or clock.stage_seconds or written.lines:
            yield RankLog(
                rank=rank,
                decisions=decisions,
                stage_seconds=clock.stage_seconds,
                progress=source.progress,
                form=form,
                files=log.parts,
                began=written.began,
            )


class _WrittenByRank:
    """What one rank wrote into a log."""

    def __init__(self, *, keeps_lines: bool) -> None:
        self.trace = DecisionFold()
        self.trace.keeps_lines = keeps_lines
        self.text = TextDecisions()
        self.began = ""
        self.lines = 0


class _LogReader:
    """Divides the lines of a log among ranks. Lines that name none are kept under None."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self._keeps_lines = keeps_lines
        self._written: dict[int | None, _WrittenByRank] = {}
        self._named: set[int] = set()
        # All of a log that one process wrote; None where several did.
        self._alone: _WrittenByRank | None = None

    def ranks(self, log: Log) -> Iterator[tuple[int, _WrittenByRank]]:
        """Every rank, with what it wrote."""
        if self._alone is not None:
            # One process: before it knew its rank, it wrote without it.
            known = next(iter(self._named)) if len(self._named) == 1 else None
            rank = known if known is not None else rank_of_path(log.name)
            if rank is not None:
                yield rank, self._alone
            return
        for rank, written in self._written.items():
            if rank is not None:
                yield rank, written

    def of_rank(self, rank: int, log: Log) -> _WrittenByRank | None:
        """What this rank wrote."""
        return dict(self.ranks(log)).get(rank)

    def read(self, log: Log) -> None:
        """Read all parts; what cannot be read is left out, and the reader of logs says so."""
        parts = [path for path in log.parts if path != STDIN]
        # Of a rotated log, one part may have lines of one rank only, such as of a stuck one.
        if not _are_several(sum(map(_named_ranks, parts), Counter())):
            self._alone = _WrittenByRank(keeps_lines=self._keeps_lines)
        for path in parts:
            with suppress(*_UNREADABLE), open_log(path) as file:
                self._read(file)

    def _read(self, file: IO[bytes]) -> None:
        record: _RecordBuilder | None = None
        for line in _lines(file):
            if line[:1] == _TAB:
                if record is not None:
                    record.add(line)
                continue
            if record is not None:
                self._take_record(record)
            record = _begun(line)
            if record is None:
                self._take_line(line)
        if record is not None:
            self._take_record(record)

    def _of(self, rank: int | None, time: str) -> _WrittenByRank:
        if rank is not None:
            self._named.add(rank)
        written = self._alone
        if written is None:
            written = self._written.setdefault(rank, _WrittenByRank(keeps_lines=self._keeps_lines))
        written.began = written.began or time
        written.lines += 1
        return written

    def _take_record(self, record: _RecordBuilder) -> None:
        written = self._of(record.rank, record.time)
        written.trace.take(record.name, record.compile_id, record.head, record.payload)

    def _take_line(self, line: bytes) -> None:
        header = HEADER.search(line, 0, _HEADER_REACH)
        label = label_of(line[: header.start()]) if header else label_of(line[:60])
        rank = rank_of_label(label)
        if header is None and rank is None and self._alone is None:
            return
        time = header[2].decode() if header else ""
        text = decode(line[header.end() :] if header else line).strip()
        written = self._of(rank, time)
        written.text.take(text, in_torch=header is not None)


class _RecordBuilder:
    """A record that is being read."""

    def __init__(self, name: str, rank: int | None, compile_id: str, time: str, head: str) -> None:
        self.name = name
        self.rank = rank
        self.compile_id = compile_id
        self.time = time
        self.head = head
        self._payload: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        """Add a line of the payload."""
        if self._size < _MOST_PAYLOAD:
            self._payload.append(line[1:])
            self._size += len(line)

    @property
    def payload(self) -> str:
        """The payload, without the tabs."""
        return decode(b"".join(self._payload))


def _begun(line: bytes) -> _RecordBuilder | None:
    """The record that begins on this line; None if it is none that tells a decision."""
    head = RECORD.search(line, 0, _HEADER_REACH + 200)
    if head is None or head[6] not in RECORDS:
        return None
    name = decode(head[6])
    if name == "artifact":
        found = _NAME.search(line, head.start())
        name = decode(found[1]) if found else ""
        if not reads_artifact(name):
            return None
    json = line[head.end() :]
    digest = json.rfind(b', "has_payload"')
    rank, compile_id = written_by(json[: digest if digest > 0 else len(json)][-400:])
    return _RecordBuilder(
        name=name,
        rank=rank_of_label(rank),
        compile_id=compile_id or "",
        time=head[2].decode(),
        head=decode(line[head.start() :][:LONGEST]),
    )


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines, the rest of an over-long one left out."""
    buffered = io.BufferedReader(file, 1 << 20) if isinstance(file, io.RawIOBase) else file
    is_rest = False
    while line := buffered.readline(LONGEST * 16):
        if not is_rest:
            # What is in a payload is compared as it is.
            yield line if line[:1] == _TAB or is_clean(line) else clean(line)
        is_rest = not line.endswith(b"\n")


def _are_several(lines: Counter[int]) -> bool:
    """Whether lines are of more than one rank.

    Line numbers, as `grep -n` adds them, look like ranks; but ranks repeat.
    """
    return len(lines) > 1 and lines.total() >= 2 * len(lines)


def _named_ranks(path: str) -> Counter[int]:
    """How many lines at the beginning of a file are of each rank."""
    found: Counter[int] = Counter()
    head = b""
    with suppress(*_UNREADABLE), open_log(path) as file:
        read = getattr(file, "read1", file.read)
        head = read(1 << 20)
    for line in head.splitlines()[:_MOST_SAMPLED]:
        if line[:1] == _TAB:
            continue
        header = HEADER.search(line, 0, _HEADER_REACH)
        rank = rank_of_label(label_of(line[: header.start()])) if header else None
        if rank is not None:
            found[rank] += 1
    return found
