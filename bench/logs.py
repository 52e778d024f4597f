"""Reading logs, beside tlparse: make bench-logs.

A trace and a text log of the size that is asked for are made by repeating recorded ones with other
ids, in a folder that is removed afterwards. Each is read with one core and with all of them, and
the trace by tlparse too, where it is installed (pip install tlparse), which writes its pages into
the same folder: as usual, and with --plain-text, which colours no code and is much faster. The ways
run in turns, each run in new processes. Memory is that of all processes of a run together, looked
at many times a second; pages that they share count more than once.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load import cpu_of_children
from bench.peers import find_tlparse

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "data" / "recorded_logs"
TOOL = [sys.executable, "-m", "inductoscope", "logs", "--json"]
# With all cores.
GOALS = {"seconds": 0.1, "megabytes": 0.08}
TLPARSE = "trace, tlparse"
_SAMPLE_SECONDS = 0.02
_RECORD = re.compile(rb'("has_payload": ")[0-9a-f]{32}("\}\n)((?:\t[^\n]*(?:\n|$))+)')


@dataclass(frozen=True)
class Run:
    """What one run took."""

    seconds: float
    megabytes: float
    exit_code: int
    cpu_seconds: float


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


def measure(command: list[str], folder: Path) -> Run:
    """Run a command and watch it and its children."""
    start, used = time.perf_counter(), cpu_of_children()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    watcher = _Watcher(process.pid)
    watcher.start()
    exit_code = process.wait()
    seconds = time.perf_counter() - start
    watcher.ended.set()
    watcher.join()
    return Run(seconds, watcher.most / 1e6, exit_code, cpu_of_children() - used)


class _Watcher(threading.Thread):
    """The most memory that a process and its children had together."""

    def __init__(self, root: int) -> None:
        super().__init__()
        self._root = root
        self.ended = threading.Event()
        self.most = 0.0

    def run(self) -> None:
        while not self.ended.wait(_SAMPLE_SECONDS):
            self.most = max(self.most, sum(_resident(p) for p in _family(self._root)))


def _family(root: int) -> Iterator[int]:
    yield root
    try:
        tasks = list(Path(f"/proc/{root}/task").iterdir())
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _resident(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


# --- the comparison -------------------------------------------------------------------------------


def ways(trace: Path, text: Path, tlparse: str | None, folder: Path) -> dict[str, list[str]]:
    """What is run, by name."""
    answer = str(folder / "answer.json")
    cores = str(os.cpu_count() or 1)
    found = {
        "trace, 1 core": [*TOOL, answer, "--cores", "1", str(trace)],
        f"trace, {cores} cores": [*TOOL, answer, "--cores", cores, str(trace)],
        "text, 1 core": [*TOOL, answer, "--cores", "1", str(text)],
        f"text, {cores} cores": [*TOOL, answer, "--cores", cores, str(text)],
    }
    if tlparse is not None:
        pages = str(folder / "pages")
        found[TLPARSE] = [tlparse, str(trace), "-o", pages, "--overwrite", "--no-browser"]
        found[f"{TLPARSE} --plain-text"] = [*found[TLPARSE], "--plain-text"]
    return found


def compare(size: int, turns: int, tlparse: str | None) -> dict[str, list[Run]]:
    """Run every way, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace, text = folder / "dedicated_log_torch_trace_bench.log", folder / "text.log"
        ok = "h200_autotune_ok"
        make_log(trace, [f"{ok}.trace.log.gz"], size, change_trace)
        make_log(text, [f"{ok}.log.gz", "h200_autotune_hang.log.gz"], size, change_text)
        commands = ways(trace, text, tlparse, folder)
        runs: dict[str, list[Run]] = {way: [] for way in commands}
        for _ in range(turns):
            for way, command in commands.items():
                runs[way].append(measure(command, folder))
                shutil.rmtree(folder / "pages", ignore_errors=True)
        return runs


def show(runs: dict[str, list[Run]], size: int) -> None:
    """A table: the middle of all turns, with the least and the most."""
    turns = len(next(iter(runs.values())))
    print(f"{size / 1e6:.0f} MB each, turns: {turns}, {os.cpu_count()} cores")
    print(f"{'':28} {'seconds':>24} {'MB of memory':>14} {'MB/s':>8}")
    for way, found in runs.items():
        seconds = sorted(run.seconds for run in found)
        middle = statistics.median(seconds)
        spread = f"{middle:.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f})"
        memory = max(run.megabytes for run in found)
        print(f"{way:28} {spread:>24} {memory:>14.0f} {size / 1e6 / middle:>8.0f}")


def judge(runs: dict[str, list[Run]]) -> bool:
    """Whether the goals are reached, beside tlparse on the same trace."""
    theirs = runs.get(f"{TLPARSE} --plain-text")
    if theirs is None:
        print("tlparse is not installed, so nothing is compared: pip install tlparse")
        return True
    ours = runs[f"trace, {os.cpu_count()} cores"]
    fine = True
    for name, goal in GOALS.items():
        middle = [
            statistics.median(getattr(run, name) for run in found) for found in (ours, theirs)
        ]
        ratio = middle[0] / middle[1]
        fine = fine and ratio <= goal
        print(f"{name}: {ratio:.3f} of tlparse's with all cores; the goal is {goal}")
    return fine


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tlparse", default=find_tlparse(), metavar="PATH")
    parser.add_argument("--json", metavar="PATH")
    options = parser.parse_args()
    size = options.megabytes * 1_000_000
    runs = compare(size, options.turns, options.tlparse)
    show(runs, size)
    fine = judge(runs)
    if options.json:
        data = {way: [asdict(run) for run in found] for way, found in runs.items()}
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(json.dumps(data, indent=1) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
