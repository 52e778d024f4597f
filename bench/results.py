"""Runs a benchmark and keeps what it found, with the commit, the machine and its load."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.adapters import measurements_of
from bench.load import watching
from bench.machine import ROOT, read_machine, read_versions
from bench.summary import Result, result_from, source_of

# In the order of the page. A new one is a module with --json, which writes measurements or has an
# adapter, and a line here.
BENCHES = (
    "doctor",
    "hang",
    "real_models",
    "growth",
    "report",
    "capture",
    "logs",
    "cli",
)
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
# These add to what an interrupted run has left.
RESUMING = ("doctor",)


def run_bench(bench: str, results: Path, commit: str, options: Sequence[str] = ()) -> Result:
    """Run one and keep what it found; whatever goes wrong with it is its result."""
    part = results / f"{bench}-{commit.replace(' ', '-')}.part.json"
    if bench not in RESUMING:
        part.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"bench.{bench}", "--json", str(part), *options]
    with watching() as watched:
        # Some return 1 where a goal is missed.
        code = run_to_end(command) if exists(bench) else None
    failure, found = read_part(bench, part, code)
    result = Result(
        bench=bench,
        commit=commit,
        date=datetime.date.today().isoformat(),
        machine=read_machine(),
        versions=read_versions(),
        load=watched.load,
        failure=failure,
        found=found,
        options=" ".join(options),
    )
    (results / f"{bench}.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    if not failure:
        part.unlink()
    return result


def run_to_end(command: Sequence[str]) -> int:
    """Whoever interrupts us interrupts it, too, and it ends what it has started."""
    child = subprocess.Popen(command, cwd=ROOT)
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise


def exists(bench: str) -> bool:
    return source_of(bench).exists()


def read_part(bench: str, part: Path, code: int | None) -> tuple[str, dict[str, Any]]:
    """Why there is nothing, or what there is."""
    if code is None:
        return "there is no such benchmark in this checkout", {}
    if code not in (0, 1):
        return f"exit code {code}", {}
    try:
        found = json.loads(part.read_text())
    except (OSError, ValueError) as error:
        return f"exit code {code}, and no result was written ({type(error).__name__})", {}
    try:
        measurements_of(bench, found)
    except UNREADABLE as error:
        return f"no adapter reads what it found ({type(error).__name__}: {error})", found
    return "", found


def read_results(folder: Path) -> dict[str, Result]:
    """What there is; a file that cannot be read is no result."""
    found = {}
    for bench in BENCHES:
        try:
            result = result_from(json.loads((folder / f"{bench}.json").read_text()))
            # Read once, since adapters change.
            _ = result.measurements
            found[bench] = result
        except (OSError, *UNREADABLE):
            continue
    return found


def choose(names: Sequence[str], results: dict[str, Result], commit: str) -> list[str]:
    """Those that are named, else those without a result at this commit."""
    if names:
        return [bench for bench in BENCHES if bench in names]
    done = {r.bench for r in results.values() if r.commit == commit and not r.failure}
    return [bench for bench in BENCHES if bench not in done]
