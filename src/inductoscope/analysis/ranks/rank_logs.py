"""Reduces a log to the decisions of its ranks; TORCH_LOGS text yields fewer than a trace."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from inductoscope.analysis.ranks.decisions import Decision, DecisionFold, RankLog, reads_record
from inductoscope.analysis.ranks.report import rank_of_label, rank_of_path
from inductoscope.hangs.logs.log_files import STDIN, UNREADABLE, Log, LogStream, open_log
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_text import (
    HEADER,
    LONGEST,
    TORCH_LINE,
    clean,
    decode,
    label_of,
)
from inductoscope.torch_facts.torch_trace import writer_of

_TRACING = re.compile(r"torchdynamo start tracing (?P<name>\S+) (?P<file>\S+):(?P<line>\d+)")
_FAILED = re.compile(r"\s*- (?P<reason>\d+/\d+: .*)")
_CACHE = re.compile(r"\bFX (?:graph )?cache (?P<state>hit|miss)\b", re.IGNORECASE)
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

    def take_line(self, compile_id: str, artifact: str, text: str) -> None:
        """Add the message of a line of torch's, and the marks before it."""
        compile_id = compile_id.partition("_")[0]
        if found := _TRACING.search(text):
            file = found["file"].replace("\\", "/").rpartition("/")[2]
            self.begin(compile_id, f"{found['name']} {file}:{found['line']}")
        elif artifact == "recompiles" and (found := _FAILED.match(text)):
            # Only the first failed guard counts.
            if ("guard", compile_id) not in self._decisions:
                self.take_guard(compile_id, "", found["reason"])
        elif found := _CACHE.search(text):
            self._take_cache(f"fx_graph_cache_{found['state'].lower()}", compile_id, "")
        elif artifact == "post_grad_graphs":
            if "class " in text and "torch.nn.Module" in text:
                self._close_graph(compile_id)
            self._graphs.setdefault(compile_id, []).append(text)

    def _close_graph(self, compile_id: str) -> None:
        lines = self._graphs.pop(compile_id, [])
        if any("def forward" in line for line in lines):
            key = self._key(compile_id, "post-grad graph")
            self._take_collectives(key, compile_id, "\n".join(lines))

    def take_printed(self, text: str) -> None:
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
# How far into a line its header and the key of its record reach, and how far a launcher's label
# does on other lines.
_HEAD_REACH, _LABEL_REACH = 600, 60
_MOST_SAMPLED = 4000
_TAB = b"\t"
_ARTIFACT = re.compile(rb'\{"name": "([^"\n]*)"')
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
            with suppress(*UNREADABLE), open_log(path) as file:
                self._read(file)

    def _read(self, file: LogStream) -> None:
        record: re.Match[bytes] | None = None
        payload = bytearray()
        for line in itertools.chain(_lines(file), [b""]):
            if line[:1] == _TAB:
                if record is not None and len(payload) < _MOST_PAYLOAD:
                    payload += line[1:]
                continue
            if record is not None:
                self._take_record(record, decode(bytes(payload)))
            payload.clear()
            head = TORCH_LINE.search(line, 0, _HEAD_REACH)
            record = head if head is not None and reads_record(_name_of(head)) else None
            if record is None and line:
                self._take_line(line, head)

    def _of(self, rank: int | None, time: bytes) -> _WrittenByRank:
        if rank is not None:
            self._named.add(rank)
        written = self._alone
        if written is None:
            written = self._written.setdefault(rank, _WrittenByRank(keeps_lines=self._keeps_lines))
        written.began = written.began or decode(time)
        written.lines += 1
        return written

    def _take_record(self, head: re.Match[bytes], payload: str) -> None:
        rank, compile_id = writer_of(head.string, head.end(), len(head.string))
        written = self._of(rank_of_label(rank), head[2])
        line = decode(head.string[head.start() :][:LONGEST])
        written.trace.take(_name_of(head), compile_id or "", line, payload)

    def _take_line(self, line: bytes, head: re.Match[bytes] | None) -> None:
        rank = rank_of_label(label_of(line[: head.start() if head else _LABEL_REACH]))
        if head is not None:
            written = self._of(rank, head[2])
            if head[6] is not None:  # Decisions are made in a compile.
                text = decode(line[head.end() :]).rstrip()
                written.text.take_line(decode(head[6]), decode(head[7] or b""), text)
        elif rank is not None or self._alone is not None:
            self._of(rank, b"").text.take_printed(decode(line).strip())


def _name_of(head: re.Match[bytes]) -> str:
    """Return the key of a record, or the name of an artifact; empty for other lines."""
    if head[8] != b"artifact":
        return decode(head[8] or b"")
    artifact = _ARTIFACT.match(head.string, head.end())
    return decode(artifact[1]) if artifact else ""


def _lines(file: LogStream) -> Iterator[bytes]:
    """Yield lines; an over-long line is cut."""
    is_rest = False
    while line := file.readline(LONGEST * 16):
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
    with suppress(*UNREADABLE), open_log(path) as file:
        head = file.read1(1 << 20)
    for line in head.splitlines()[:_MOST_SAMPLED]:
        if line[:1] == _TAB:
            continue
        header = HEADER.search(line, 0, _HEAD_REACH)
        rank = rank_of_label(label_of(line[: header.start()])) if header else None
        if rank is not None:
            found[rank] += 1
    return found
