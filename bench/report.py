"""The page of a recording with 2,000 kernels, beside tlparse's of the same run: make bench-report.

The program runs once, under the scope and with TORCH_TRACE. Then `inductoscope report` and tlparse
(pip install tlparse) make their pages of it in turns, each in new processes: tlparse as usual, and
with --plain-text, which colours no code; the goal counts beside that. The page is opened in
Chromium, from disk: the time until its first view is there, and the time of the slowest switch to
another view, are taken by the page's own clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from battery.workplace import workplace
from bench import page_speed
from bench.command_cost import CommandCost, column, run_command, why_failed
from bench.figures import finish
from bench.measurement import Measurement
from bench.peers import NOT_INSTALLED, TLPARSE_AT_BEST, find_tlparse, ways_of_tlparse

GOALS = {"build": 0.5, **page_speed.GOALS}
OURS = "inductoscope"
# In a folder of its own: beside a program, modules such as bench/profile.py hide those of Python.
PROGRAM = Path(__file__).parent / "programs" / "many_kernels.py"


def record(place: Path, kernels: int) -> None:
    """One run, recorded by both."""
    environment = {
        **os.environ,
        "TORCH_TRACE": str(place / "trace"),
        "TORCHINDUCTOR_SHAPE_PADDING": "0",
    }
    command = [sys.executable, "-m", "inductoscope", "run", "--quiet", "--fresh"]
    command += ["--output", str(place / "recording"), str(PROGRAM), str(kernels)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def build_pages(place: Path, turns: int) -> dict[str, list[CommandCost]]:
    """All pages, in turns; nothing of tlparse where it is missing."""
    ours = [sys.executable, "-m", "inductoscope", "report", str(place / "recording")]
    commands = {OURS: [*ours, "-o", str(place / "report.html")]}
    traces, tlparse = sorted((place / "trace").glob("*.log")), find_tlparse()
    if tlparse and traces:
        commands |= ways_of_tlparse(tlparse, traces[0], place / "pages")
    found: dict[str, list[CommandCost]] = {way: [] for way in commands}
    for _ in range(turns):
        for way, command in commands.items():
            found[way].append(run_command(command))
    return found


def size_of(place: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


# --- what follows ---------------------------------------------------------------------------------


def compare_builds(built: dict[str, list[CommandCost]], kernels: int) -> Iterator[Measurement]:
    """Ours beside each way of running tlparse, by the clock and in processor seconds."""
    peers = {way: runs for way, runs in built.items() if way != OURS} or {TLPARSE_AT_BEST: []}
    for key, unit, goal in (("seconds", "s", GOALS["build"]), ("cpu_seconds", "CPU s", None)):
        for peer, runs in peers.items():
            yield Measurement(
                name=f"building the page of {kernels:,} kernels",
                unit=unit,
                ours=column(built[OURS], key, (0,)),
                goal=goal,
                compared_with=peer,
                peer=column(runs, key, (0,)),
                why_no_peer=why_failed(runs, (0,)) if runs else NOT_INSTALLED,
                why_failed=why_failed(built[OURS], (0,)),
                counts=peer == TLPARSE_AT_BEST,
            )


def open_page(page: Path, turns: int) -> Iterator[Measurement]:
    """Until the first view is there, and until the view is there that takes longest."""
    missing = page_speed.why_not_measured()
    first = () if missing else (*page_speed.first_views(page, turns),)
    yield Measurement("its first view", "s", first, GOALS["first view"], why_failed=missing)
    view, seconds = ("a view", ()) if missing else worst_switch(page_speed.switches(page, turns))
    name = f"the slowest switch, to {view}"
    yield Measurement(name, "s", (*seconds,), GOALS["switch"], why_failed=missing)


def worst_switch(switches: dict[str, list[float]]) -> tuple[str, tuple[float, ...]]:
    """The view that takes longest to get to, by its middle turn."""
    view = max(switches, key=lambda name: statistics.median(switches[name]))
    return view, (*switches[view],)


def weigh_pages(place: Path) -> Iterator[Measurement]:
    """Megabytes on disk, of what was made."""
    # tlparse's are those that it has made last.
    for name, what in (("report.html", "the page"), ("pages", f"the pages of {TLPARSE_AT_BEST}")):
        if (place / name).exists():
            yield Measurement(what, "MB", (size_of(place / name) / 1e6,))


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    parser.add_argument(
        "--place", type=Path, help="keep what is recorded in this folder, or use what is there"
    )
    asked = parser.parse_args()
    with workplace("bench-report", asked.place and asked.place.absolute()) as place:
        if not (place / "recording").exists():
            place.mkdir(parents=True, exist_ok=True)
            record(place, asked.kernels)
        built = build_pages(place, asked.turns)
        measurements = [*compare_builds(built, asked.kernels)]
        if (place / "report.html").exists():
            measurements += open_page(place / "report.html", asked.turns)
        measurements += weigh_pages(place)
    finish(measurements, asked.json)


if __name__ == "__main__":
    main()
