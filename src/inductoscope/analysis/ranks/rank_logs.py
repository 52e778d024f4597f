"""Reduces a log to the decisions of its ranks; TORCH_LOGS text yields fewer than a trace."""

from __future__ import annotations

import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from lzma import LZMAError
from typing import IO

from inductoscope.analysis.ranks.decisions import (
    RECORDS,
    Decision,
    DecisionFold,
    RankLog,
    RankProgress,
    reads_artifact,
)
from inductoscope.analysis.ranks.report import rank_of_label, rank_of_path
from inductoscope.hangs.logs.log_files import STDIN, Log, open_log
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.guard_reasons import read_guard
from inductoscope.torch_facts.log_text import (
    HEADER,
    LONGEST,
    clean,
    decode,
    label_of,
)
from inductoscope.torch_facts.printed_graphs import (
    collective_lines,
    collectives_in,
    digest,
    orders_in_groups,
)
from inductoscope.torch_facts.torch_trace import RECORD, written_by
from inductoscope.wording import count_of

_COMPILE = r"\[(?P<compile>!?[\d/]*\d+/\d+)(?:_\d+)?\]"
_TRACING = re.compile(
    rf"^{_COMPILE}.*torchdynamo start tracing (?P<name>\S+) (?P<file>\S+):(?P<line>\d+)"
)
_FAILED = re.compile(rf"^{_COMPILE} \[__recompiles\]\s+- (?P<reason>\d+/\d+: .*)")
_CACHE = re.compile(rf"^{_COMPILE}.*\bFX (?:graph )?cache (?P<state>hit|miss)\b", re.IGNORECASE)
_GRAPH = re.compile(rf"^{_COMPILE} \[__post_grad_graphs\] (?P<line>.*)")
_TABLE = re.compile(r"^(?:\[\w+\]:? ?)?AUTOTUNE (?P<operation>\w+\(.*\))")
_ROW = re.compile(
    r"^(?:\[\w+\]:? ?)?\s*(?P<choice>[A-Za-z_]\w+)\s+[\d.]+ ms\s+100\.0%\s*(?P<how>.*)"
)


class TextDecisions:
    """Takes the lines of one rank in turn."""

    def __init__(self) -> None:
        self._decisions: dict[tuple[str, str], Decision] = {}
        self._turns: Counter[str] = Counter()
        self._operation = ""
        # Lines of graphs, by compile, as far as collectives need them.
        self._graphs: dict[str, list[str]] = {}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """In the order in which they were taken."""
        for compile_id in list(self._graphs):
            self._close_graph(compile_id)
        return tuple(self._decisions.values())

    @property
    def progress(self) -> RankProgress:
        """Text does not tell for sure whether a compile is under way."""
        return RankProgress.AT_REST

    def take(self, text: str, *, in_torch: bool) -> None:
        """Take what follows the header of a line, or a line without one."""
        if not in_torch:
            self._take_printed(text)
            return
        for pattern, reader in _READERS:
            found = pattern.match(text)
            if found:
                reader(self, found)
                return

    def take_tracing(self, found: re.Match[str]) -> None:
        """Dynamo begins with a frame."""
        file = found["file"].replace("\\", "/").rpartition("/")[2]
        shown = f"{found['name']} {file}:{found['line']}"
        self._add(Decision("compile", found["compile"], shown, shown, found["compile"]))

    def take_failed(self, found: re.Match[str]) -> None:
        """A guard failed."""
        compile_id = found["compile"]
        if ("guard", compile_id) not in self._decisions:
            shown = read_guard(found["reason"]).condition
            self._add(Decision("guard", compile_id, shown, shown, compile_id))

    def take_cache(self, found: re.Match[str]) -> None:
        """The cache was asked."""
        key = self._key(f"{found['compile']} FX graph cache")
        state = found["state"].lower()
        self._add(Decision("cache", key, state, state, found["compile"]))

    def take_graph(self, found: re.Match[str]) -> None:
        """A line of a graph that is printed."""
        compile_id, line = found["compile"], found["line"]
        if "class " in line and "torch.nn.Module" in line:
            self._close_graph(compile_id)
        self._graphs.setdefault(compile_id, []).append(line)

    def _close_graph(self, compile_id: str) -> None:
        lines = self._graphs.pop(compile_id, [])
        if not any("def forward" in line for line in lines):
            return
        found = collectives_in("\n".join(lines))
        orders = orders_in_groups(found)
        key = self._key(f"{compile_id} post-grad graph")
        shown = count_of(len(found), "collective")
        made = Decision("collectives", key, digest(collective_lines(found)), shown, compile_id)
        self._add(made._replace(groups=tuple(orders), orders=tuple(orders.values())))

    def _take_printed(self, text: str) -> None:
        """Autotuning prints a table without a header; its first row is the winner."""
        table = _TABLE.match(text)
        if table:
            self._operation = self._key(f"autotuning of {table['operation']}")
            return
        row = _ROW.match(text) if self._operation else None
        if row:
            shown = f"{row['choice']} {row['how']}".strip()
            self._add(Decision(stages.AUTOTUNE, self._operation, shown, shown))
            self._operation = ""

    def _key(self, name: str) -> str:
        turn = self._turns[name]
        self._turns[name] += 1
        return f"{name} {turn + 1}" if turn else name

    def _add(self, decision: Decision) -> None:
        self._decisions[decision.kind, decision.key] = decision


_READERS = (
    (_TRACING, TextDecisions.take_tracing),
    (_FAILED, TextDecisions.take_failed),
    (_CACHE, TextDecisions.take_cache),
    (_GRAPH, TextDecisions.take_graph),
)


# --- Reads one log and reduces it to the decisions of the ranks that wrote it ---------------------
#
# Line by line, so that memory does not grow with the log; of a payload only so much is kept.
# Nothing in a log is trusted: a line that does not read is passed over.

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
    """Output of one rank in a log: its trace and its text."""

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
        """Output of this rank; None if the log has none."""
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
            yield line if line[:1] == _TAB else clean(line)
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
