"""How long the command line takes to answer, beside a bare Python: make bench-cli.

A large recording is made by repeating the events of a recorded training step: 28 compiles with each
kernel five times, 1,008 kernels in all, in a folder that is removed afterwards. The commands run in
turns with `python -c pass`, each in a new process; the first turn, which may have to compile
modules, does not count. A goal is about seconds by the clock. CPU seconds are kept too: they are
what is left to compare where others use the machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from battery.workplace import workplace
from bench.command_cost import CommandCost, column, run_command, why_failed
from bench.figures import finish
from bench.measurement import Measurement
from bench.peers import ROOT

TESTS = ROOT / "tests"
RECORDED = TESTS / "data" / "recordings" / "training_step" / "recording"
TOOL = [sys.executable, "-m", "inductoscope"]
BARE = "python -c pass"
SHOW = "show"
GOALS = {"--help": 0.3, SHOW: 1.0}
COMPILES, KERNELS = 28, 5
# Nothing is wrong, or something was found.
ANSWERED = (0, 1)


def make_recording(folder: Path, compiles: int) -> int:
    """Make one, and say how many kernels it has."""
    sys.path.append(str(TESTS))  # It is made as the tests make theirs.
    from support.multiplied import multiply

    multiply(RECORDED, folder, compiles=compiles, kernels=KERNELS)
    streams = (path.read_text("utf-8") for path in (folder / "streams").iterdir())
    return sum(text.count('"kind":"kernel"') for text in streams)


def compare(recording: Path, turns: int) -> dict[str, list[CommandCost]]:
    """Run every command, in turns."""
    commands = {
        BARE: [sys.executable, "-c", "pass"],
        "--version": [*TOOL, "--version"],
        "--help": [*TOOL, "--help"],
        SHOW: [*TOOL, "show", str(recording)],
    }
    runs: dict[str, list[CommandCost]] = {what: [] for what in commands}
    for turn in range(turns + 1):
        for what, command in commands.items():
            run = run_command(command)
            if turn:
                runs[what].append(run)
    return runs


def summarize(runs: dict[str, list[CommandCost]], kernels: int) -> list[Measurement]:
    """Commands by the clock, and in processor seconds beside a Python that does nothing."""
    nothing = column(runs[BARE], "cpu_seconds", (0,))
    measurements = []
    for what, each in runs.items():
        if what == BARE:
            continue
        name = f"{what} of {kernels:,} kernels" if what == SHOW else what
        why = why_failed(each, ANSWERED)
        seconds, computed = (column(each, key, ANSWERED) for key in ("seconds", "cpu_seconds"))
        measurements += [
            Measurement(name, "s", seconds, GOALS.get(what), why_failed=why),
            Measurement(name, "CPU s", computed, compared_with=BARE, peer=nothing, why_failed=why),
        ]
    return measurements


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.cli", description=__doc__)
    parser.add_argument("--compiles", type=int, default=COMPILES, metavar="N")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    with workplace("bench-cli") as folder:
        kernels = make_recording(folder / "large", options.compiles)
        runs = compare(folder / "large", options.turns)
    finish(summarize(runs, kernels), options.json)


if __name__ == "__main__":
    main()
