"""The page of a recording with 2,000 kernels, beside tlparse's of the same run: make bench-report.

The program runs once, under the scope and with TORCH_TRACE. Then `inductoscope report` and tlparse
(pip install tlparse) make their pages of it in turns, each in new processes; what counts is the
middle run. The page is opened in Chromium, from disk: the time until its first view is there, and
the time of the slowest switch to another view, are taken by the page's own clock. What cannot be
measured is said, and is null in the JSON.
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
from pathlib import Path
from typing import Any

from bench import page_speed
from bench.peers import find_tlparse

GOALS = {"build": 0.5, **page_speed.GOALS}
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


def cost_of(command: list[str]) -> tuple[float, float]:
    """The seconds that a command takes, and those that it and its children compute."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used


def builds(place: Path, turns: int) -> dict[str, list[tuple[float, float]]]:
    """Both pages, in turns; nothing of tlparse where it is missing or fails."""
    ours = [sys.executable, "-m", "inductoscope", "report", str(place / "recording")]
    ours += ["-o", str(place / "report.html")]
    traces = sorted((place / "trace").glob("*.log"))
    tlparse = find_tlparse() if traces else None
    found: dict[str, list[tuple[float, float]]] = {"inductoscope": [], "tlparse": []}
    for _ in range(turns):
        found["inductoscope"].append(cost_of(ours))
        if tlparse:
            theirs = [tlparse, str(traces[0]), "-o", str(place / "pages")]
            try:
                found["tlparse"].append(cost_of([*theirs, "--overwrite", "--no-browser"]))
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"tlparse fails: {error}", file=sys.stderr)
                tlparse = None
    return found


def size_of(place: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def ratio(ours: list[float], theirs: list[float]) -> float | None:
    """Of the middle runs; None where the other has none."""
    return statistics.median(ours) / statistics.median(theirs) if theirs else None


def table(place: Path, kernels: int, turns: int) -> dict[str, Any]:
    """Everything that is measured of a run that both have recorded."""
    costs = builds(place, turns)
    seconds = {name: [cost[0] for cost in found] for name, found in costs.items()}
    cpu_seconds = {name: [cost[1] for cost in found] for name, found in costs.items()}
    missing = page_speed.why_not_measured()
    page = place / "report.html"
    return {
        "kernels": kernels,
        "goals": GOALS,
        "build seconds": seconds,
        "build CPU seconds": cpu_seconds,
        "build ratio": ratio(seconds["inductoscope"], seconds["tlparse"]),
        "build CPU ratio": ratio(cpu_seconds["inductoscope"], cpu_seconds["tlparse"]),
        "tlparse missing": "" if seconds["tlparse"] else "tlparse is not installed, or failed",
        "page bytes": size_of(page),
        "tlparse bytes": size_of(place / "pages") if seconds["tlparse"] else None,
        "browser missing": missing,
        "first view seconds": None if missing else page_speed.first_views(page, turns),
        "switch seconds": None if missing else page_speed.switches(page, turns),
        "recording bytes": size_of(place / "recording"),
        "trace bytes": size_of(place / "trace"),
    }


def show(found: dict[str, Any]) -> None:
    """The table as text."""
    for name, runs in found["build seconds"].items():
        if runs:
            used = found["build CPU seconds"][name]
            print(f"{name:14} builds in {_spread(runs)}, {_spread(used)} of CPU")
    if found["build ratio"] is not None:
        print(f"ratio          {found['build ratio']:.2f} of tlparse (goal {GOALS['build']})")
        print(f"page           {_megabytes(found['page bytes'])}; ", end="")
        print(f"tlparse {_megabytes(found['tlparse bytes'])}")
    else:
        print(f"No ratio: {found['tlparse missing']}.")
        print(f"page           {_megabytes(found['page bytes'])}")
    if found["browser missing"]:
        print(f"The page was not opened: {found['browser missing']}.")
        return
    print(f"first view     {_spread(found['first view seconds'])} (goal {GOALS['first view']} s)")
    name, worst = worst_switch(found["switch seconds"])
    print(f"slowest switch {_spread(worst)}, to {name} (goal {GOALS['switch']} s)")


def worst_switch(switches: dict[str, list[float]]) -> tuple[str, list[float]]:
    """The view that takes longest to get to, by its middle turn."""
    return max(switches.items(), key=lambda item: statistics.median(item[1]))


def _spread(runs: list[float]) -> str:
    return f"{statistics.median(runs):.2f} s ({min(runs):.2f} to {max(runs):.2f})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--place", type=Path, help="keep what is recorded in this folder, or use what is there"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = (asked.place or Path(folder)).absolute()
        if not (place / "recording").exists():
            place.mkdir(parents=True, exist_ok=True)
            record(place, asked.kernels)
        found = table(place, asked.kernels, asked.turns)
    show(found)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
