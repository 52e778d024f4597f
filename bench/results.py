"""Runs a benchmark and keeps what it found, with the commit, the machine and its load."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load import watching
from bench.machine import UNKNOWN_COMMIT, read_machine, read_versions
from bench.measurement import Measurement, read_measurements
from bench.peers import ROOT
from bench.summary import Result, result_from, source_of

# In the order of the page. A new one is a module with --json, which writes measurements and ends
# with 0 once it has measured, whether goals are met or not; and a line here.
BENCHES = (
    "doctor",
    "hang",
    "real_models",
    "growth",
    "report",
    "capture",
    "logs",
    "cli",
    "large",
    "large_gpu",
)
# Measured only where there is a GPU; elsewhere the result from there is kept.
_ON_GPU = ("large_gpu",)
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
# These add to what an interrupted run has left.
RESUMING = ("doctor",)


@dataclass(frozen=True)
class Places:
    """Where results are kept for the page, and where benchmarks write while they measure."""

    results: Path = ROOT / "docs" / "benchmarks"
    parts: Path = ROOT / "bench-results"


def run_bench(bench: str, places: Places, commit: str, options: Sequence[str] = ()) -> Result:
    """Run one and keep what it found; whatever goes wrong with it is its result."""
    part = places.parts / name_part(bench, commit, options)
    if bench not in RESUMING:
        part.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"bench.{bench}", "--json", str(part), *options]
    with watching() as watched:
        code = run_to_end(command) if exists(bench) else None
    failure, measurements = read_part(part, code)
    result = Result(
        bench=bench,
        commit=commit,
        date=datetime.date.today().isoformat(),
        machine=read_machine(),
        versions=read_versions(),
        load=watched.load,
        failure=failure,
        measurements=measurements,
        options=" ".join(options),
    )
    places.results.mkdir(parents=True, exist_ok=True)
    kept = json.dumps(asdict(result), indent=1)
    (places.results / f"{bench}.json").write_text(kept + "\n")
    if not failure:
        part.unlink()
    return result


def name_part(bench: str, commit: str, options: Sequence[str]) -> str:
    """Of its own for each commit and for other options: nobody goes on with something else."""
    digest = hashlib.sha256("\0".join(options).encode()).hexdigest()[:8]
    words = [bench, re.sub(r"\W+", "-", commit), *([digest] if options else [])]
    return f"{'-'.join(words)}.part.json"


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


def read_part(part: Path, code: int | None) -> tuple[str, list[Measurement]]:
    """Why there is nothing, or what there is. What died has not measured all, if anything."""
    if code is None:
        return "there is no such benchmark in this checkout", []
    if code != 0:
        return f"exit code {code}", []
    try:
        return "", read_measurements(json.loads(part.read_text()))
    except (OSError, *UNREADABLE) as error:
        return f"exit code 0, and no result can be read ({type(error).__name__})", []


def read_results(folder: Path) -> dict[str, Result]:
    """Results so far; a file that cannot be read is reported, and counts as none."""
    found = {}
    for path in (folder / f"{bench}.json" for bench in BENCHES):
        try:
            found[path.stem] = result_from(json.loads(path.read_text()))
        except FileNotFoundError:
            continue
        except (OSError, *UNREADABLE) as error:
            print(f"{path} cannot be read: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def choose(names: Sequence[str], results: dict[str, Result], commit: str) -> list[str]:
    """Those that are named, else those that were not measured at this commit as they should be."""
    if names:
        return [bench for bench in BENCHES if bench in names]
    can_run = [each for each in BENCHES if each not in _ON_GPU or shutil.which("nvidia-smi")]
    return [bench for bench in can_run if not _is_done(results.get(bench), commit)]


def _is_done(result: Result | None, commit: str) -> bool:
    if result is None or result.failure or result.options:
        return False
    return result.commit == commit != UNKNOWN_COMMIT
