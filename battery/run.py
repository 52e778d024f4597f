"""Lets the doctor loose on labelled programs: make battery, make cases, or python -m battery.run.

The programs are the generated battery, or with --stored the labelled scripts of a folder. Results
go to a file of JSON lines as they come; --resume goes on after an interruption. --plain runs the
programs without the doctor, to see that every fault shows what it should.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.metadata
import json
import platform
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from battery.fault import Fault
from battery.generate import generate
from battery.judge import Result, judge
from battery.paths import without_folders
from battery.stored import read_stored
from battery.table import BATTERY, STORED, describe_miss, render_markdown, render_text
from battery.trial import run_doctor, run_plain, shows_symptom, side_by_side
from battery.workplace import workplace

RESULTS = Path("bench-results")
# A plain run that is to hang is believed after this long.
HANG_SECONDS = 45.0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m battery.run", description=__doc__)
    parser.add_argument(
        "--stored",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="labelled scripts in this folder instead of the battery; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=0, help="programs and sample are made from it")
    parser.add_argument("--sample", type=int, metavar="N", help="only N, drawn by the seed")
    parser.add_argument("--only", action="append", metavar="NAME", help="names that contain NAME")
    parser.add_argument("--plain", action="store_true", help="run without the doctor")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each program")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--resume", action="store_true", help="skip what has a result already")
    parser.add_argument("--report", action="store_true", help="run nothing: show what there is")
    parser.add_argument(
        "--results", type=Path, help="JSON lines go here as they come; added to with --resume"
    )
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--json", type=Path, help="also write all results to this file, as JSON")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    options = parser.parse_args()
    if options.results is None:
        options.results = RESULTS / ("cases.jsonl" if options.stored else "battery.jsonl")
    return options


def choose(faults: Sequence[Fault], options: argparse.Namespace) -> list[Fault]:
    chosen = [f for f in faults if not options.only or any(o in f.name for o in options.only)]
    if options.sample is not None and options.sample < len(chosen):
        kept = {*random.Random(options.seed).sample(range(len(chosen)), options.sample)}
        chosen = [f for i, f in enumerate(chosen) if i in kept]
    return chosen


def run_plainly(faults: Sequence[Fault], folder: Path, limit: float) -> int:
    """How many do not show what they should."""
    silent = []
    for number, fault in enumerate(faults, 1):
        patience = min(limit, HANG_SECONDS) if fault.truth.kind == "hang" else limit
        outcome = run_plain(fault, folder / fault.folder, folder / "cache", patience)
        shown = shows_symptom(fault, outcome)
        state = "shows" if shown else "DOES NOT SHOW"
        _progress(number, len(faults), f"{state:14}{outcome.seconds:6.1f} s  {fault.name}")
        if not shown:
            silent.append(fault.name)
            print(f"  exit {outcome.exit_code}: …{outcome.output[-600:]}", flush=True)
    print(
        f"{len(faults) - len(silent)} of {len(faults)} show what they should", *silent, sep="\n  "
    )
    return len(silent)


def diagnose(
    faults: Sequence[Fault], folder: Path, limit: float, jobs: int = 1
) -> Iterator[Result]:
    """Results as they come, with several programs at a time not in the order of the faults."""

    def one(fault: Fault) -> Result:
        # Workarounds are not judged here.
        outcome, verdict = run_doctor(
            fault, folder / fault.folder, folder / "cache", limit, ("--no-workaround",)
        )
        late = outcome.exit_code is None
        why = f"no end within {limit:.0f} s" if late else outcome.output.strip()[-300:]
        return judge(fault, None if late else verdict, outcome.seconds, why)

    return side_by_side([functools.partial(one, fault) for fault in faults], jobs)


def read_results(path: Path) -> dict[str, Result]:
    """Results left by an earlier run; a last line cut short is no result."""
    found: dict[str, Result] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            result = Result(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[result.name] = result
    return found


def run_battery(faults: Sequence[Fault], folder: Path, options: argparse.Namespace) -> list[Result]:
    known = read_results(options.results) if options.resume else {}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    left = [f for f in faults if f.name not in known]
    # In no order of stages, so that a run that is ended early is a sample of all of them.
    random.Random(options.seed).shuffle(left)
    with options.results.open("a" if options.resume else "w") as stream:
        for number, result in enumerate(diagnose(left, folder, options.limit, options.jobs), 1):
            known[result.name] = result
            stream.write(result.as_json() + "\n")
            stream.flush()
            text = f"{'right' if result.named else 'MISS':6}{result.seconds:6.1f} s  {result.name}"
            _progress(number, len(left), text)
            if not result.named:
                print(f"  {describe_miss(result)}", flush=True)
    return [known[f.name] for f in faults]


def read_report(faults: Sequence[Fault], path: Path) -> list[Result]:
    """The results that there are, of these faults."""
    known = read_results(path)
    return [known[f.name] for f in faults if f.name in known]


def _progress(number: int, of: int, text: str) -> None:
    print(f"[{number}/{of}] {text}", flush=True)


def describe_run(results: Sequence[Result], programs: str, jobs: int) -> str:
    total = sum(r.seconds for r in results)
    return (
        f"{len(results)} of {programs} on {datetime.date.today().isoformat()}: "
        f"torch {importlib.metadata.version('torch')}, Python {platform.python_version()}, "
        f"{platform.machine()}; {total / 60:.0f} minutes in all, {jobs} at a time."
    )


def write_tables(results: Sequence[Result], of: int, options: argparse.Namespace) -> None:
    """The files that were asked for."""
    results = [replace(r, said_summary=without_folders(r.said_summary)) for r in results]
    for path in filter(None, (options.markdown, options.json)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if options.markdown:
        programs = f"{of} stored scripts" if options.stored else f"{of} from seed {options.seed}"
        about = describe_run(results, programs, options.jobs)
        page = STORED if options.stored else BATTERY
        options.markdown.write_text(render_markdown(results, page, about))
    if options.json:
        named = sum(result.named for result in results)
        data = {
            "schema": 1,
            "programs": len(results),
            "named": named,
            "results": [json.loads(result.as_json()) for result in results],
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n")


def main() -> int:
    options = parse_options()
    faults = choose(
        read_stored(options.stored) if options.stored else generate(options.seed), options
    )
    if options.list:
        print(*(fault.name for fault in faults), sep="\n")
        return 0
    with workplace("battery", options.keep) as folder:
        if options.plain:
            return 1 if run_plainly(faults, folder, options.limit) else 0
        results = (
            read_report(faults, options.results)
            if options.report
            else run_battery(faults, folder, options)
        )
    print(render_text(results))
    write_tables(results, len(faults), options)
    return 0 if all(result.named for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
