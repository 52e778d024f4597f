"""The page of a recording with 2,000 kernels, beside tlparse's of the same run: make bench-report.

The program runs once, under the scope and with TORCH_TRACE. Then `inductoscope report` and tlparse
(pip install tlparse) make their pages of it in turns, each in new processes; what counts is the
middle run. The page is opened in Chromium, from disk, and the time until its first view is there is
taken by the page's own clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.peers import find_tlparse

GOALS = {"build": 0.5, "first view": 1.0}
# In a folder of its own: beside a program, modules such as bench/profile.py hide those of Python.
PROGRAM = Path(__file__).parent / "programs" / "many_kernels.py"
CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


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


def seconds_of(command: list[str]) -> float:
    """The seconds that a command takes."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def builds(place: Path, turns: int) -> dict[str, list[float]]:
    """Both pages, in turns."""
    ours = [sys.executable, "-m", "inductoscope", "report", str(place / "recording")]
    ours += ["-o", str(place / "report.html")]
    trace = next((place / "trace").glob("*.log"))
    tlparse = find_tlparse()
    theirs = [str(tlparse), str(trace), "-o", str(place / "pages"), "--overwrite", "--no-browser"]
    found: dict[str, list[float]] = {"inductoscope": [], "tlparse": []}
    for _ in range(turns):
        found["inductoscope"].append(seconds_of(ours))
        if tlparse:
            found["tlparse"].append(seconds_of(theirs))
    return found


def first_views(page: Path, turns: int) -> list[float]:
    """Seconds until the first view is there; empty where there is no browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    if browser is None:
        return []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=CHROMIUM_OPTIONS)
        return [_first_view(chromium, page) for _ in range(turns)]


def _first_view(chromium: Any, path: Path) -> float:
    page = chromium.new_page()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector("h1")
    milliseconds = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.now()"
    )
    page.close()
    return float(milliseconds) / 1000


def size_of(place: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def table(place: Path, kernels: int, turns: int) -> dict[str, Any]:
    """Everything that is measured."""
    record(place, kernels)
    seconds = builds(place, turns)
    middle = {name: statistics.median(found) for name, found in seconds.items() if found}
    views = first_views(place / "report.html", turns)
    return {
        "kernels": kernels,
        "build seconds": seconds,
        "build ratio": middle["inductoscope"] / middle["tlparse"] if "tlparse" in middle else None,
        "page bytes": size_of(place / "report.html"),
        "tlparse bytes": size_of(place / "pages"),
        "first view seconds": views,
        "recording bytes": size_of(place / "recording"),
        "trace bytes": size_of(place / "trace"),
    }


def show(found: dict[str, Any]) -> None:
    """The table as text."""
    for name, runs in found["build seconds"].items():
        if runs:
            spread = f"{min(runs):.1f} to {max(runs):.1f}"
            print(f"{name:14} builds in {statistics.median(runs):5.1f} s ({spread})")
    ours, theirs = found["page bytes"] / 1e6, found["tlparse bytes"] / 1e6
    print(f"page           {ours:.1f} MB; tlparse {theirs:.1f} MB")
    views = found["first view seconds"]
    if views:
        print(f"first view     {statistics.median(views):.2f} s (goal {GOALS['first view']:.1f} s)")
    if found["build ratio"] is not None:
        print(f"ratio          {found['build ratio']:.2f} of tlparse (goal {GOALS['build']})")


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = table(Path(folder), asked.kernels, asked.turns)
    show(found)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
