"""How long the command line takes to answer, beside a bare Python: make bench-cli.

A large recording is made by repeating the events of a recorded training step: 28 compiles with each
kernel five times, 1,008 kernels in all, in a folder that is removed afterwards. The commands run in
turns with `python -c pass`, each in a new process; the first turn, which may have to compile
modules, does not count. A goal is about seconds by the clock. CPU seconds are kept too: they are
what is left to compare where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
RECORDED = TESTS / "data" / "recordings" / "training_step" / "recording"
TOOL = [sys.executable, "-m", "inductoscope"]
BARE = "python -c pass"
SHOW = "show"
GOALS = {"--help": 0.3, SHOW: 1.0}
COMPILES, KERNELS = 28, 5


@dataclass(frozen=True)
class Run:
    """What one run took."""

    seconds: float
    cpu_seconds: float
    exit_code: int


def make_recording(folder: Path, compiles: int) -> int:
    """Make one, and say how many kernels it has."""
    sys.path.append(str(TESTS))  # It is made as the tests make theirs.
    from support.multiplied import multiply

    multiply(RECORDED, folder, compiles=compiles, kernels=KERNELS)
    streams = (path.read_text("utf-8") for path in (folder / "streams").iterdir())
    return sum(text.count('"kind": "kernel"') for text in streams)


# --- measuring ------------------------------------------------------------------------------------


def measure(command: list[str]) -> Run:
    """Run a command to its end."""
    used, start = _cpu_of_children(), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    return Run(seconds, _cpu_of_children() - used, done.returncode)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(compiles: int, turns: int) -> tuple[dict[str, list[Run]], int]:
    """Run every command, in turns, and how many kernels the recording has."""
    with tempfile.TemporaryDirectory() as name:
        recording = Path(name) / "large"
        made = make_recording(recording, compiles)
        commands = {
            BARE: [sys.executable, "-c", "pass"],
            "--version": [*TOOL, "--version"],
            "--help": [*TOOL, "--help"],
            SHOW: [*TOOL, "show", str(recording)],
        }
        runs: dict[str, list[Run]] = {what: [] for what in commands}
        for turn in range(turns + 1):
            for what, command in commands.items():
                run = measure(command)
                if turn:
                    runs[what].append(run)
        return runs, made


def show(runs: dict[str, list[Run]], kernels: int) -> None:
    """A table: the middle of all turns, with the least and the most."""
    turns = len(runs[BARE])
    print(f"{kernels} kernels, turns: {turns}, {os.cpu_count()} cores")
    print(f"{'':16} {'seconds':>24} {'CPU seconds':>24}")
    for what, found in runs.items():
        columns = (_spread([getattr(run, key) for run in found]) for key in _COLUMNS)
        print(f"{what:16} " + " ".join(f"{column:>24}" for column in columns))


_COLUMNS = ("seconds", "cpu_seconds")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def judge(runs: dict[str, list[Run]]) -> bool:
    """Whether the goals are reached, and by how much a bare Python shares in that."""
    fine = True
    for what, goal in GOALS.items():
        if any(run.exit_code not in (0, 1) for run in runs[what]):
            print(f"{what}: it failed")
            fine = False
            continue
        seconds = statistics.median(run.seconds for run in runs[what])
        bare = statistics.median(run.seconds for run in runs[BARE])
        word = "met" if seconds <= goal else "missed"
        fine = fine and seconds <= goal
        print(f"{what}: {seconds:.2f} s, of which a bare Python {bare:.2f}; goal {goal} s: {word}")
    return fine


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiles", type=int, default=COMPILES, metavar="N")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    runs, kernels = compare(options.compiles, options.turns)
    show(runs, kernels)
    fine = judge(runs)
    if options.json:
        raw = {what: [asdict(run) for run in found] for what, found in runs.items()}
        data = {"kernels": kernels, "goals": GOALS, "runs": raw}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
