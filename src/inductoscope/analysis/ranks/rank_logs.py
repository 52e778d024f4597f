"""Reduces a log to the decisions of its ranks; TORCH_LOGS text yields fewer than a trace."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from inductoscope.analysis.ranks.decisions import Decision, DecisionFold, RankLog, reads_record
from inductoscope.analysis.ranks.report import rank_of_label, rank_of_path
from inductoscope.hangs.logs.log_files import STDIN, UNREADABLE, Log, LogStream, open_log
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_text import LONGEST, TORCH_LINE, clean, decode, label_of
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
_TAB = b"\t"
_ARTIFACT = re.compile(rb'\{"name": "([^"\n]*)"')
_Key = tuple[str, str]


def read_rank_log(log: Log, *, several: bool) -> tuple[RankLog, ...]:
    """Return the ranks that wrote a log, which `several` did or one; empty if it names none."""
    reader = _LogReader(several=several)
    reader.read(log.parts)
    return tuple(
        _rank_log(rank, written, log, several=several)
        for rank, written in reader.ranks(log.name).items()
        if written.lines
    )


def compared_lines(log: RankLog, key: _Key) -> list[str]:
    """Return the lines behind the digest of a rank's decision; empty if there are none."""
    reader = _LogReader(several=log.among_others, keeps_lines=True)
    reader.read(log.files)
    found = reader.written.get(log.rank if log.among_others else None)
    return found.trace.lines.get(key, []) if found else []


def _rank_log(rank: int, written: _WrittenByRank, log: Log, *, several: bool) -> RankLog:
    form = "trace" if written.trace.decisions else "text"
    source = written.trace if form == "trace" else written.text
    return RankLog(
        rank=rank,
        decisions=source.decisions,
        stage_seconds=written.trace.clock.stage_seconds,
        progress=source.progress,
        form=form,
        files=log.parts,
        began=written.began,
        among_others=several,
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
    """A reader that divides a log among ranks.

    Lines that name no rank are kept under None, and so are all lines of a log of one rank: it logs
    without its rank until it knows it.
    """

    def __init__(self, *, several: bool, keeps_lines: bool = False) -> None:
        self._several = several
        self._keeps_lines = keeps_lines
        self.written: dict[int | None, _WrittenByRank] = {}
        self._named: set[int] = set()

    def ranks(self, name: str) -> dict[int, _WrittenByRank]:
        """Return the output of each rank in a log with this name."""
        if self._several:
            return {rank: one for rank, one in self.written.items() if rank is not None}
        rank = next(iter(self._named)) if len(self._named) == 1 else rank_of_path(name)
        return {rank: self.written[None]} if rank is not None and self.written else {}

    def read(self, parts: Iterable[str]) -> None:
        """Read all parts; unreadable ones are skipped, and the reader of logs reports them."""
        for path in parts:
            if path != STDIN:
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
        key = rank if self._several else None
        written = self.written.get(key)
        if written is None:
            written = self.written[key] = _WrittenByRank(keeps_lines=self._keeps_lines)
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
        elif rank is not None or not self._several:
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
