"""Reduces a log to the decisions of its ranks; TORCH_LOGS text yields fewer than a trace."""

from __future__ import annotations

import io
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from lzma import LZMAError
from typing import IO

from inductoscope.analysis.ranks.decisions import (
    RECORDS,
    Decision,
    DecisionFold,
    RankLog,
    reads_artifact,
)
from inductoscope.analysis.ranks.report import rank_of_label, rank_of_path
from inductoscope.hangs.logs.log_files import STDIN, Log, open_log
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_text import (
    HEADER,
    LONGEST,
    clean,
    decode,
    label_of,
)
from inductoscope.torch_facts.torch_trace import RECORD, written_by

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


class TextDecisions(DecisionFold):
    """A fold of log text into decisions; text holds fewer of them than trace records."""

    def __init__(self) -> None:
        super().__init__()
        self._operation = ""
        # The lines of graphs that collectives are read from, by compile.
        self._graphs: dict[str, list[str]] = {}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions, in order."""
        for compile_id in list(self._graphs):
            self._close_graph(compile_id)
        return super().decisions

    def take_line(self, text: str, *, in_torch: bool) -> None:
        """Add a line without its header, or a line that has none."""
        if not in_torch:
            self._take_printed(text)
            return
        if found := _TRACING.match(text):
            file = found["file"].replace("\\", "/").rpartition("/")[2]
            self.begin(found["compile"], f"{found['name']} {file}:{found['line']}")
        elif found := _FAILED.match(text):
            # Only the first failed guard counts.
            if ("guard", found["compile"]) not in self._decisions:
                self.take_guard(found["compile"], "", found["reason"])
        elif found := _CACHE.match(text):
            self._take_cache(f"fx_graph_cache_{found['state'].lower()}", found["compile"], "")
        elif found := _GRAPH.match(text):
            if "class " in found["line"] and "torch.nn.Module" in found["line"]:
                self._close_graph(found["compile"])
            self._graphs.setdefault(found["compile"], []).append(found["line"])

    def _close_graph(self, compile_id: str) -> None:
        lines = self._graphs.pop(compile_id, [])
        if any("def forward" in line for line in lines):
            key = self._key(compile_id, "post-grad graph")
            self._take_collectives(key, compile_id, "\n".join(lines))

    def _take_printed(self, text: str) -> None:
        """Parse autotuning's table, which has no header; its first row is the winner."""
        table = _TABLE.match(text)
        if table:
            self._operation = self._key("autotuning of", table["operation"])
            return
        row = _ROW.match(text) if self._operation else None
        if row:
            shown = f"{row['choice']} {row['how']}".strip()
            self._add(Decision(stages.AUTOTUNE, self._operation, shown, shown))
            self._operation = ""


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
    """Return the ranks that wrote a log; empty if it names none."""
    reader = _LogReader()
    reader.read(log)
    return tuple(_rank_logs(reader, log))


def compared_lines(log: Log, rank: int, key: _Key) -> list[str]:
    """Return the lines behind the digest of a rank's decision; empty if there are none."""
    reader = _LogReader(keeps_lines=True)
    reader.read(log)
    found = dict(reader.ranks(log)).get(rank)
    return found.trace.lines.get(key, []) if found else []


def _rank_logs(reader: _LogReader, log: Log) -> Iterator[RankLog]:
    for rank, written in reader.ranks(log):
        form = "trace" if written.trace.decisions else "text"
        source = written.trace if form == "trace" else written.text
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
    """The output of one rank in a log: its trace and its text."""

    def __init__(self, *, keeps_lines: bool) -> None:
        self.trace = DecisionFold()
        self.trace.keeps_lines = keeps_lines
        self.text = TextDecisions()
        self.began = ""
        self.lines = 0


class _LogReader:
    """A reader that divides a log among ranks. Lines that name no rank are kept under None."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self._keeps_lines = keeps_lines
        self._written: dict[int | None, _WrittenByRank] = {}
        self._named: set[int] = set()
        # The output of a log that one process wrote; None if several did.
        self._alone: _WrittenByRank | None = None

    def ranks(self, log: Log) -> Iterator[tuple[int, _WrittenByRank]]:
        """Every rank, with its output."""
        if self._alone is not None:
            # A single process logs without a rank until it knows its rank.
            known = next(iter(self._named)) if len(self._named) == 1 else None
            rank = known if known is not None else rank_of_path(log.name)
            if rank is not None:
                yield rank, self._alone
            return
        yield from ((rank, one) for rank, one in self._written.items() if rank is not None)

    def read(self, log: Log) -> None:
        """Read all parts; unreadable ones are skipped, and the reader of logs reports them."""
        parts = [path for path in log.parts if path != STDIN]
        # Of a rotated log, one part may have lines of one rank only, such as of a stuck one.
        if not _are_several(sum(map(_named_ranks, parts), Counter())):
            self._alone = _WrittenByRank(keeps_lines=self._keeps_lines)
        for path in parts:
            with suppress(*_UNREADABLE), open_log(path) as file:
                self._read(file)

    def _read(self, file: IO[bytes]) -> None:
        record: _OpenRecord | None = None
        for line in itertools.chain(_lines(file), [b""]):
            if line[:1] == _TAB:
                if record is not None:
                    record.add(line)
                continue
            if record is not None:
                self._take_record(record)
            record = _begun(line)
            if record is None and line:
                self._take_line(line)

    def _of(self, rank: int | None, time: str) -> _WrittenByRank:
        if rank is not None:
            self._named.add(rank)
        written = self._alone
        if written is None:
            written = self._written.setdefault(rank, _WrittenByRank(keeps_lines=self._keeps_lines))
        written.began = written.began or time
        written.lines += 1
        return written

    def _take_record(self, record: _OpenRecord) -> None:
        written = self._of(record.rank, record.time)
        written.trace.take(
            record.name, record.compile_id, record.head, decode(bytes(record.payload))
        )

    def _take_line(self, line: bytes) -> None:
        header = HEADER.search(line, 0, _HEADER_REACH)
        label = label_of(line[: header.start()]) if header else label_of(line[:60])
        rank = rank_of_label(label)
        if header is None and rank is None and self._alone is None:
            return
        time = header[2].decode() if header else ""
        text = decode(line[header.end() :] if header else line).strip()
        written = self._of(rank, time)
        written.text.take_line(text, in_torch=header is not None)


@dataclass
class _OpenRecord:
    """A record that is still being read."""

    name: str
    rank: int | None
    compile_id: str
    time: str
    head: str
    payload: bytearray = field(default_factory=bytearray)

    def add(self, line: bytes) -> None:
        """Add a line of the payload, without its tab."""
        if len(self.payload) < _MOST_PAYLOAD:
            self.payload += line[1:]


def _begun(line: bytes) -> _OpenRecord | None:
    """Begin the record on this line; None if it holds no decision."""
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
    return _OpenRecord(
        name=name,
        rank=rank_of_label(rank),
        compile_id=compile_id or "",
        time=head[2].decode(),
        head=decode(line[head.start() :][:LONGEST]),
    )


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines; an over-long line is cut."""
    buffered = io.BufferedReader(file, 1 << 20) if isinstance(file, io.RawIOBase) else file
    is_rest = False
    while line := buffered.readline(LONGEST * 16):
        if not is_rest:
            # Payloads are compared unchanged.
            yield line if line[:1] == _TAB else clean(line)
        is_rest = not line.endswith(b"\n")


def _are_several(lines: Counter[int]) -> bool:
    """Check whether the labels of lines are those of several ranks.

    Line numbers, as `grep -n` adds them, look like ranks, but only ranks repeat.
    """
    return len(lines) > 1 and lines.total() >= 2 * len(lines)


def _named_ranks(path: str) -> Counter[int]:
    """Count the lines of each rank at the beginning of a file."""
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
