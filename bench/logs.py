"""Reading logs, beside tlparse: make bench-logs.

A trace and a text log of the size that is asked for are made by repeating recorded ones with other
ids, in a folder that is removed afterwards. Each is read with one core and with two, and the trace
by tlparse too, where it is installed (pip install tlparse), which writes its pages into the same
folder: as usual, and with --plain-text, which colours no code and is much faster. The goals are for
two cores, and count beside tlparse at its fastest. The ways run in turns, each run in new
processes. Memory is that of all processes of a run together, looked at many times a second; pages
that they share count more than once.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from battery.workplace import descendants, workplace
from bench.command_cost import CommandCost, column, run_command, why_failed
from bench.figures import finish
from bench.measurement import Measurement
from bench.peers import NOT_INSTALLED, ROOT, TLPARSE, TLPARSE_AT_BEST, find_tlparse, ways_of_tlparse

RECORDED = ROOT / "tests" / "data" / "recorded_logs"
TOOL = [sys.executable, "-m", "inductoscope", "logs", "--json"]
# Beside tlparse, with two cores.
GOALS = {"seconds": 0.1, "megabytes": 0.08}
GOAL_WAY = "trace, 2 cores"
# Nothing is wrong, or something was found.
ANSWERED = (0, 1)
_SAMPLE_SECONDS = 0.02
_RECORD = re.compile(rb'("has_payload": ")[0-9a-f]{32}("\}\n)((?:\t[^\n]*(?:\n|$))+)')


@dataclass(frozen=True)
class LogCost(CommandCost):
    """Time and memory of one run."""

    megabytes: float


# --- logs -----------------------------------------------------------------------------------------


def make_log(
    path: Path, recorded: list[str], size: int, change: Callable[[bytes, int], bytes]
) -> None:
    """Repeat recorded logs until the file has its size."""
    parts = [gzip.decompress((RECORDED / name).read_bytes()) for name in recorded]
    with open(path, "wb") as file:
        number = 0
        while file.tell() < size:
            file.write(change(parts[number % len(parts)], number))
            number += 1


def change_text(data: bytes, number: int) -> bytes:
    """The same program with another process number and other compile ids."""
    process = re.search(rb"^[VIWE]\d{4} \S+ (\d+) ", data, re.MULTILINE)
    assert process is not None
    data = data.replace(b" %s torch/" % process[1], b" %d torch/" % (10_000 + number))
    return data.replace(b"] [0/0]", b"] [%d/0]" % number)


def change_trace(data: bytes, number: int) -> bytes:
    """The same compile as another frame; the digests of payloads fit again."""
    data = data.replace(b'"frame_id": 0', b'"frame_id": %d' % number)
    data = data.replace(b'"compile_id": "0/0"', b'"compile_id": "%d/0"' % number)
    return _RECORD.sub(_with_digest, data)


def _with_digest(match: re.Match[bytes]) -> bytes:
    payload = b"\n".join(line[1:] for line in match[3].rstrip(b"\n").split(b"\n"))
    digest = hashlib.md5(payload, usedforsecurity=False).hexdigest().encode()
    return match[1] + digest + match[2] + match[3]


# --- measuring ------------------------------------------------------------------------------------


def measure(command: Sequence[str], folder: Path) -> LogCost:
    """Run a command and watch it and its children."""
    watcher = _MemoryWatcher()
    watcher.start()
    try:
        cost = run_command(command, folder)
    finally:
        watcher.ended.set()
        watcher.join()
    return LogCost(**asdict(cost), megabytes=watcher.most / 1e6)


class _MemoryWatcher(threading.Thread):
    """The most memory that what we have started had together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.most = 0.0

    def run(self) -> None:
        while not self.ended.wait(_SAMPLE_SECONDS):
            self.most = max(self.most, sum(map(_resident, descendants(os.getpid()))))


def _resident(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


# --- the comparison -------------------------------------------------------------------------------


def ways(trace: Path, text: Path, tlparse: str | None, folder: Path) -> dict[str, list[str]]:
    """Commands to run, by name."""
    read = [*TOOL, str(folder / "answer.json"), "--cores"]
    ours = {
        "trace, 1 core": [*read, "1", str(trace)],
        GOAL_WAY: [*read, "2", str(trace)],
        "text, 1 core": [*read, "1", str(text)],
        "text, 2 cores": [*read, "2", str(text)],
    }
    return ours | (ways_of_tlparse(tlparse, trace, folder / "pages") if tlparse else {})


def compare(folder: Path, size: int, turns: int, tlparse: str | None) -> dict[str, list[LogCost]]:
    """Run every way, in turns."""
    trace, text = folder / "dedicated_log_torch_trace_bench.log", folder / "text.log"
    ok = "h200_autotune_ok"
    make_log(trace, [f"{ok}.trace.log.gz"], size, change_trace)
    make_log(text, [f"{ok}.log.gz", "h200_autotune_hang.log.gz"], size, change_text)
    commands = ways(trace, text, tlparse, folder)
    runs: dict[str, list[LogCost]] = {way: [] for way in commands}
    for _ in range(turns):
        for way, command in commands.items():
            runs[way].append(measure(command, folder))
            shutil.rmtree(folder / "pages", ignore_errors=True)
    return runs


def summarize(runs: dict[str, list[LogCost]]) -> list[Measurement]:
    """Reading with one core and with two; the trace beside tlparse, run in both ways."""
    peers = {way: found for way, found in runs.items() if way in (TLPARSE, TLPARSE_AT_BEST)}
    measurements: list[Measurement] = []
    for way, found in runs.items():
        if way in peers:
            continue
        theirs = (peers or {TLPARSE_AT_BEST: []}) if way.startswith("trace") else {"": []}
        for peer, peer_runs in theirs.items():
            measurements += _read_log(way, found, peer, peer_runs)
    return measurements


_READ = (
    ("seconds", "s", "time"),
    ("cpu_seconds", "CPU s", "processor time"),
    ("megabytes", "MB", "memory"),
)


def _read_log(
    way: str, runs: Sequence[LogCost], peer: str, theirs: Sequence[LogCost]
) -> Iterator[Measurement]:
    """Time, processor time and memory."""
    for key, unit, what in _READ:
        yield Measurement(
            name=f"{way}: {what}",
            unit=unit,
            ours=column(runs, key, ANSWERED),
            goal=GOALS.get(key) if way == GOAL_WAY else None,
            compared_with=peer,
            peer=column(theirs, key, (0,)),
            why_no_peer=why_failed(theirs, (0,)) if theirs else NOT_INSTALLED,
            why_failed=why_failed(runs, ANSWERED),
            counts=peer == TLPARSE_AT_BEST,
        )


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.logs", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tlparse", default=find_tlparse(), metavar="PATH")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    with workplace("bench-logs") as folder:
        runs = compare(folder, options.megabytes * 1_000_000, options.turns, options.tlparse)
    finish(summarize(runs), options.json)


if __name__ == "__main__":
    main()
